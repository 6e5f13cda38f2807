package linear

import (
	"cmp"
	"fmt"
	"os"

	"github.com/freshet-cache/freshet/bench/kit"
)

// dataDir returns the directory of recorded traces, from --trace or FRESHET_DATA; empty if there is
// none.
func dataDir(o kit.Options) (string, error) {
	dir := cmp.Or(o.Text("trace"), os.Getenv("FRESHET_DATA"))
	if dir == "" {
		return "", nil
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return "", fmt.Errorf("--trace: %w", err)
	case !info.IsDir():
		return "", fmt.Errorf("--trace %s: this experiment wants a directory, with traces, meta and lobsters in it", dir)
	}
	return dir, nil
}
