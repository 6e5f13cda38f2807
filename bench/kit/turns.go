package kit

import (
	"context"
	"fmt"
	"runtime"
)

// Turns runs the systems in turn, in another order each round.
func Turns(ctx context.Context, opt Options, rounds int, do func(system string, round int) error) error {
	for round := range rounds {
		for i := range opt.Systems {
			s := opt.Systems[(i+round)%len(opt.Systems)]
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
