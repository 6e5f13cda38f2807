package linear

import (
	"bytes"
	"compress/gzip"
	_ "embed" // the trace in this package
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/freshet-cache/freshet/bench/kit"
)

// access is one request of a trace.
type access struct {
	key    uint32
	write  bool
	client int
}

// burst is how many accesses in a row belong to one client.
const burst = 50

// inject turns the accesses of a trace into requests. If the trace does not mark writes, an access
// is a write with the probability writes, chosen by its position. Each client sends bursts of
// requests.
func inject(r *recording, writes float64, clients int, seed uint64) []access {
	out := make([]access, len(r.keys))
	for i, k := range r.keys {
		out[i] = access{
			key:    k,
			write:  float64(kit.Mix(seed, uint64(i))>>11)/(1<<53) < writes,
			client: int(kit.Mix(^seed, uint64(i/burst)) % uint64(clients)),
		}
		if r.writes != nil {
			out[i].write = r.writes[i]
		}
	}
	return out
}

// size returns the length of the value of a key: that of a row of its type of object.
func size(key uint32) int { return 64 * (1 + int(key>>27)%16) }

//go:embed testdata/orm-busy-200k.be32.gz
var ormBusy []byte

// ormBusySource credits the authors of the trace.
const ormBusySource = "Trace: the first 200,000 of 5,000,000 accesses to database objects of an e-commerce application, orm-busy of cache2k, (c) headissue GmbH, Jens Wilke, CC BY 4.0, cut and re-encoded; see bench/linear/testdata."

// maxTrace bounds how many accesses are read from a trace.
const maxTrace = 20_000_000

// readTrace reads at most limit accesses from a file or, without a name, from the trace in this
// package.
func readTrace(name string, limit int) (*recording, error) {
	var in io.Reader = bytes.NewReader(ormBusy)
	if name != "" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("--trace: %w", err)
		}
		defer f.Close()
		in = f
	}
	if name == "" || strings.HasSuffix(name, ".gz") {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("--trace %s: %w", name, err)
		}
		in = z
	}
	r, err := parseTrace(name, in, min(limit, maxTrace))
	if err != nil {
		return nil, fmt.Errorf("--trace %s: %w", name, err)
	}
	return r, nil
}
