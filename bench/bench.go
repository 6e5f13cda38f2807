package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/freshet-cache/freshet/bench/causal"
	"github.com/freshet-cache/freshet/bench/kit"
	"github.com/freshet-cache/freshet/bench/linear"
)

// experiments are all experiments. A new promise adds its package here.
var experiments = slices.Concat(causal.Experiments(), linear.Experiments())

// Experiments returns the experiments that Run knows, by name.
func Experiments() []kit.Experiment {
	return slices.SortedFunc(slices.Values(experiments), func(a, b kit.Experiment) int { return strings.Compare(a.Name, b.Name) })
}

// Run runs the experiment of that name. It leaves the results in opt.Out: NAME.json, a
// page NAME.md, and plots. The error is ErrAnomaly if freshet answered wrongly.
func Run(ctx context.Context, name string, opt kit.Options) error {
	e, err := find(name)
	if err != nil {
		return err
	}
	return e.Measure(ctx, opt)
}

// Render makes the pages and the plots of the reports in a directory from their JSON. It
// returns the names of the reports.
func Render(dir string) (names []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("bench: %s has no reports, which are files *.json", dir)
	}
	for _, file := range files {
		r, err := kit.Load(file)
		if err != nil {
			return names, err
		}
		e, err := find(r.Experiment)
		if err != nil {
			return names, fmt.Errorf("%s: %w", file, err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		if err := e.Render(dir, name); err != nil {
			return names, fmt.Errorf("%s: %w", file, err)
		}
		names = append(names, name)
	}
	return names, nil
}

func find(name string) (kit.Experiment, error) {
	var names []string
	for _, e := range Experiments() {
		if e.Name == name {
			return e, nil
		}
		names = append(names, e.Name)
	}
	return kit.Experiment{}, fmt.Errorf("bench: experiment %q is not known; there are %s", name, strings.Join(names, ", "))
}
