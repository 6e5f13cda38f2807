package linear

import (
	"cmp"
	"fmt"
	"os"

	"github.com/freshet-cache/freshet/bench/kit"
)

// dataDir is the directory of recorded traces, empty if there is none: that of --trace,
// or of FRESHET_DATA.
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
