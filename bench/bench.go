package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/freshet-cache/freshet/bench/causal"
	"github.com/freshet-cache/freshet/bench/kit"
	"github.com/freshet-cache/freshet/bench/linear"
)

// experiments are all experiments. A new promise adds its package here.
var experiments = slices.Concat(causal.Experiments(), linear.Experiments())

// Experiments are the experiments that Run knows, by name.
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
