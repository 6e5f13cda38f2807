package linear

import (
	"github.com/freshet-cache/freshet/bench/kit"
)

// The options of experiments of this promise.
var (
	optTrace = kit.Option{Name: "trace", IsPath: true,
		Usage: "`file` of accesses, perhaps .gz: CSV with the columns key and op, what redis-cli MONITOR prints, or big-endian uint32 keys (default: the cut that is built in)"}
	optTraces  = kit.Option{Name: "trace", IsPath: true, Usage: "`directory` of traces, with traces, meta and lobsters in it (default: $FRESHET_DATA)"}
	optWrites  = kit.Option{Name: "writes", Default: "0.05", Check: kit.Share, Usage: "`share` of a recorded trace's accesses that are made writes, if the trace does not say which are"}
	optHistory = kit.Option{Name: "history", IsPath: true, Usage: "`directory` that exists, for the histories, which freshet check reads (default: they are not kept)"}
)
