package causal

import (
	"context"
	"fmt"
	"time"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
)

// ErrUntold means that a write was done, and that its session does not fit into a token, because
// other servers have not received its writes yet. A later read of the key sees the write.
var ErrUntold = fmt.Errorf("causal: untold: the write was done, and the session that knows of it does not fit into a token yet, for other servers have not received what it carries; read the key later (%w)", ErrCarriesTooMuch)

// shrinkPoll is how often Shrink asks the server what has become visible.
const shrinkPoll = 5 * time.Millisecond

// Shrink waits until the session's token has at most size bytes, or as many as any server accepts
// if size is 0. A session stops carrying a write when every server has it. Shrink returns
// ErrCarriesTooMuch if ctx ends before that. It returns at once if tokens carry names.
func (s *Session[V]) Shrink(ctx context.Context, size int) error {
	if size <= 0 {
		size = wire.MaxToken * 4 / 3
	}
	if s.least() < size/2 {
		return nil
	}
	tick := time.NewTicker(shrinkPoll)
	defer tick.Stop()
	for {
		token, err := s.Token()
		if err == nil && len(token) <= size {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%w: %d bytes", ErrCarriesTooMuch, len(token))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
		_, _ = s.ask(ctx, func(op mesh.Op) mesh.Input { return s.m.ReadMany(op) }) // the next try may succeed
	}
}

// least returns approximately how many bytes a token has that carries everything.
func (s *Session[V]) least() (n int) {
	for _, w := range s.m.Carried {
		n += 64
		for _, m := range w.Muts {
			n += len(m.Key) + len(m.Value) + 16*len(m.Supersedes)
		}
		n += 16 * len(w.After)
	}
	return n + 16*(s.m.Deps.Size()+len(s.m.Bare))
}
