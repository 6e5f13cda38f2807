package causal

import (
	"context"
	"fmt"
	"time"
)

// Ready waits until this node serves sessions: it is in the ring, has the state to answer from, and
// knows the key of tokens. It is ErrJoining if ctx ends before that.
func (r *Ring) Ready(ctx context.Context) error {
	beat := time.NewTicker(joinBeat)
	defer beat.Stop()
	for {
		if s, err := r.Server(); err == nil && s.Joined() {
			if _, err := r.TokenKey(); err == nil {
				return nil
			}
		}
		select {
		case <-beat.C:
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", ErrJoining, context.Cause(ctx))
		}
	}
}
