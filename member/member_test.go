package member

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/leader"
	"github.com/freshet-cache/freshet/member/view"
	"github.com/freshet-cache/freshet/ticks"
)

// Who recovers an incarnation waits from when it heard that the incarnation is over until no lease of it is left.
func TestEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const length = 2 * time.Second
		r := &Membership{}
		m := view.NewMember(view.MemberOptions{Name: "a"})
		one := &Incarnation{in: r, member: m}
		granted := func(of time.Duration, v view.View) {
			now := r.opt.Clock.Now()
			m.Granted(now, view.Grant{Seq: m.Beat(now, true).Seq, Length: ticks.Tick(of), View: v})
		}
		ring := []view.Place{{Incarnation: 1, Name: "a"}, {Incarnation: 2, Name: "b"}}
		granted(length, view.View{Number: 1, Ring: ring, Newest: 2})
		over := make(chan error, 1)
		go func() { over <- one.Ended(t.Context(), 2) }()
		time.Sleep(time.Minute)
		select {
		case <-over:
			t.Fatal("a member is over")
		default:
		}
		r.mu.Lock()
		granted(time.Second, view.View{Number: 2, Ring: ring[:1], Departed: []uint32{2}, Newest: 2})
		r.mu.Unlock()
		time.Sleep(length)
		select {
		case <-over:
			t.Fatal("an incarnation is over whose lease may last")
		default:
		}
		if err := <-over; err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := one.Ended(ctx, 3); !errors.Is(err, context.Canceled) {
			t.Errorf("who is closed waits: %v", err)
		}
	})
}

// office is a coordinator whose saves fail as the test says.
type office struct {
	mu    sync.Mutex
	term  uint64
	state []byte
	fails []error // of the saves to come; then they succeed
	tried int
}

// Lead implements leader.Coordinator.
func (o *office) Lead(context.Context) (leader.Leadership, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.term++
	return leader.Leadership{Term: o.term, State: o.state}, nil
}

// Save implements leader.Coordinator.
func (o *office) Save(_ context.Context, term uint64, state []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tried++
	if len(o.fails) > 0 {
		err := o.fails[0]
		o.fails = o.fails[1:]
		return err
	}
	o.state = state
	return nil
}

// A view that is not stored is told to nobody, and saved again, whether nobody knows what became of the
// save or it was refused for its size; meanwhile the leader says what is wrong.
func TestSavesThatFail(t *testing.T) {
	for name, failure := range map[string]error{"unknown": errors.New("no answer"), "too large": leader.ErrStateTooLarge} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &office{fails: []error{failure, failure, failure}}
				k := StartLeader(o, LeaderOptions{Options: view.Options{Length: ticks.Tick(20 * time.Second)}})
				defer k.Close()
				ask := func(seq uint64) *view.Grant {
					b := k.Answer(view.AppendRenew(nil, view.Renew{Name: "a", Addr: "a", Seq: seq}))
					if b == nil {
						return nil
					}
					g, err := view.DecodeGrant(b)
					if err != nil {
						t.Fatal(err)
					}
					return &g
				}
				time.Sleep(100 * time.Millisecond)
				for seq, told := uint64(1), false; ; seq++ {
					g := ask(seq)
					synctest.Wait()
					told = told || k.Trouble() != ""
					if g != nil && g.View.Number > 0 {
						o.mu.Lock()
						stored, tried := o.state != nil, o.tried
						o.mu.Unlock()
						if !stored || !told || tried > 8 {
							t.Errorf("a view is told: stored %v, trouble told %v, %d saves", stored, told, tried)
						}
						break
					}
					if seq == 1000 {
						t.Fatal("no view is ever told")
					}
					time.Sleep(500 * time.Millisecond)
				}
				if k.Trouble() != "" {
					t.Errorf("it is over, and told: %s", k.Trouble())
				}
			})
		})
	}
}
