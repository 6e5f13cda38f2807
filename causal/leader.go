package causal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/causal/view"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
)

// LeaderOptions configures a Leader.
type LeaderOptions struct {
	view.Options
	Clock shard.Clock
	// Beat is how often the Leader looks for silent members. Default a twentieth of a lease.
	Beat   time.Duration
	Logger *slog.Logger // default: discard
}

// Leader decides which servers are in a ring, while its coordinator lets it lead. All methods are
// safe for concurrent use.
type Leader struct {
	opt     LeaderOptions
	coord   shard.Coordinator
	mu      sync.Mutex
	machine *view.Leader
	saves   chan view.Save
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// StartLeader begins to stand for election. coord must be the coordinator of this ring alone.
func StartLeader(coord shard.Coordinator, opt LeaderOptions) *Leader {
	if opt.Length <= 0 {
		opt.Length = lease.Tick(10 * time.Second)
	}
	if opt.Beat <= 0 {
		opt.Beat = max(time.Duration(opt.Length)/20, time.Millisecond)
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if len(opt.Key) == 0 {
		opt.Key = newKey()
	}
	ctx, cancel := context.WithCancel(context.Background())
	k := &Leader{opt: opt, coord: coord, machine: view.NewLeader(opt.Options), saves: make(chan view.Save, 1), stop: cancel}
	k.done.Go(func() { k.run(ctx) })
	k.done.Go(func() { k.save(ctx) })
	return k
}

func (k *Leader) run(ctx context.Context) {
	tick := time.NewTicker(k.opt.Beat)
	defer tick.Stop()
	for ctx.Err() == nil {
		lead, err := k.coord.Lead(ctx)
		if err == nil {
			err = k.lead(ctx, lead, tick.C)
		}
		if err != nil && ctx.Err() == nil {
			k.opt.Logger.Error("the leader of the ring does not lead", "err", err)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}
}

// lead decides until the leadership is lost.
func (k *Leader) lead(ctx context.Context, l shard.Leadership, tick <-chan time.Time) error {
	var v view.View
	if l.State != nil {
		var err error
		if v, err = view.DecodeView(l.State); err != nil {
			return fmt.Errorf("causal: the coordinator's view of term %d cannot be read; restore it, or remove it when no node is running: %w", l.Term, err)
		}
	}
	until := func() lease.Tick { return 1<<63 - 1 }
	if l.Until != nil {
		until = l.Until
	}
	k.step(func(now lease.Tick) []view.Save {
		k.machine.Elected(now, l.Term, until(), l.Slack, v)
		return nil
	})
	for _, m := range v.Ring {
		if l.Gone != nil && l.Gone(m.Host) {
			k.step(func(now lease.Tick) []view.Save { return k.machine.Gone(now, m.Host) })
		}
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick:
		}
		led := true
		k.step(func(now lease.Tick) []view.Save {
			k.machine.Led(l.Term, until())
			led = k.machine.Leads(now)
			return k.machine.Beat(now)
		})
		if !led {
			return shard.ErrDeposed
		}
	}
}

// save stores one view after the other.
func (k *Leader) save(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-k.saves:
			b := view.AppendView(nil, s.View)
			err := k.coord.Save(ctx, s.Term, b)
			// The outcome is unknown, so the view is saved again.
			for err != nil && !errors.Is(err, shard.ErrDeposed) && ctx.Err() == nil {
				k.opt.Logger.Error("coordinator does not save; the ring does not change until it does", "err", err)
				select {
				case <-ctx.Done():
				case <-time.After(k.opt.Beat):
				}
				err = k.coord.Save(ctx, s.Term, b)
			}
			k.step(func(lease.Tick) []view.Save { return k.machine.Saved(s.Term, s.View.Number, err == nil) })
		}
	}
}

func (k *Leader) step(do func(now lease.Tick) []view.Save) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range do(k.opt.Clock.Now()) {
		select {
		case <-k.saves: // of an older term, and not begun: no caller waits for it
		default:
		}
		k.saves <- s
	}
}

// Answer answers a Ring's request. It returns nil if this leader does not lead, or cannot read the
// request.
func (k *Leader) Answer(request []byte) (answer []byte) {
	in, err := view.DecodeRenew(request)
	if err != nil {
		k.opt.Logger.Warn("a server asked for a place in the ring in a way that cannot be read", "err", err)
		return nil
	}
	k.step(func(now lease.Tick) []view.Save {
		g, saves, ok := k.machine.Renewed(now, in)
		if ok {
			answer = view.AppendGrant(nil, g)
		}
		return saves
	})
	return answer
}

// View returns the latest view that was stored.
func (k *Leader) View() view.View {
	k.mu.Lock()
	defer k.mu.Unlock()
	v := k.machine.View()
	v.Ring, v.Departed = slices.Clone(v.Ring), slices.Clone(v.Departed)
	return v
}

// Close stops deciding. The ring stays as it is until leases end.
func (k *Leader) Close() {
	k.stop()
	k.done.Wait()
}
