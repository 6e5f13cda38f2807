package kit

import (
	"context"
	"fmt"
	"runtime"
	"slices"
)

// Order returns the systems in the order of a round. Another one is first in the next round.
func Order(systems []string, round int) []string {
	if len(systems) == 0 {
		return nil
	}
	first := round % len(systems)
	return slices.Concat(systems[first:], systems[:first])
}

// Turns runs the systems in turn, in another order each round.
func Turns(ctx context.Context, opt Options, rounds int, do func(system string, round int) error) error {
	for round := range rounds {
		for _, s := range Order(opt.Systems, round) {
			opt.Progress(fmt.Sprintf("round %d of %d: %s", round+1, rounds, s))
			if err := do(s, round); err != nil {
				return err
			}
			runtime.GC()
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
	return nil
}
