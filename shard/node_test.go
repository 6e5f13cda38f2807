package shard

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/clock"
	"github.com/freshet-cache/freshet/leader"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// Of several handles that cover a key, which follow one another, the newest is had; never a
// copy, and none that has lapsed.
func TestAcquireTakesTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		n := StartNode(NodeOptions{NodeOptions: lease.NodeOptions{Node: "n1", Groups: true}, Beat: time.Hour, Watch: d, Send: d.send})
		synctest.Wait()
		grant := func(length ticks.Tick, group lease.Group, leases ...lease.Lease) {
			n.Deliver(&lease.Grant{Node: "n1", Seq: 1, Length: length, Leases: leases, After: make([]lease.Gen, len(leases)), Groups: []lease.Group{group}})
		}
		grant(100e9, nil, lease.Lease{Range: lease.Range{}, Gen: 5})
		for gen := lease.Gen(6); gen < 16; gen++ { // each covers a part
			grant(100e9, nil, lease.Lease{Range: lease.Range{High: "m"}, Gen: gen})
			if h := n.Acquire("a"); h == nil || h.Gen != gen {
				t.Fatalf("generation %d is held, and %+v is had", gen, h)
			}
		}
		grant(1e9, nil, lease.Lease{Range: lease.Range{High: "c"}, Gen: 20})
		time.Sleep(time.Second)
		if h := n.Acquire("a"); h == nil || h.Gen != 15 {
			t.Errorf("%+v is had, and the newest has lapsed", h)
		}
		grant(100e9, lease.Group{{Node: "n2"}, {Node: "n1"}}, lease.Lease{Range: lease.Point("z"), Gen: 30})
		if h := n.Acquire("z"); h == nil || h.Gen != 5 {
			t.Errorf("%+v is had of a copy", h)
		}
		n.Close()
		if last := d.lines[len(d.lines)-1]; !strings.HasPrefix(last, "revoked") && !strings.HasPrefix(last, "unshared") || n.Acquire("a") != nil {
			t.Errorf("closed, and the last that is heard is %q", last)
		}
	})
}

// hard is a coordinator that does what a test says.
type hard struct {
	mu   sync.Mutex
	lead func(n int) (leader.Leadership, error)
	n    int
}

func (h *hard) Lead(ctx context.Context) (leader.Leadership, error) {
	h.mu.Lock()
	h.n++
	l, err := h.lead(h.n)
	h.mu.Unlock()
	if err == nil && l.Term == 0 {
		<-ctx.Done()
		return l, ctx.Err()
	}
	return l, err
}

// stood is how often somebody stood for election.
func (h *hard) stood() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

func (h *hard) Save(context.Context, uint64, []byte) error { return nil }

// said counts what is logged.
type said struct {
	slog.Handler
	mu    sync.Mutex
	lines []string
}

func (s *said) Enabled(context.Context, slog.Level) bool { return true }
func (s *said) Handle(_ context.Context, r slog.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.Value.String(); return true })
	s.lines = append(s.lines, text)
	return nil
}

// Why nobody leads is known as long as it lasts, and logged once a minute, unless it is
// another trouble; to be deposed is none, and each time is logged.
func TestTroubleIsToldAndOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &said{}
		gone, other := errors.New("nobody answers"), errors.New("no password")
		coord := &hard{lead: func(n int) (leader.Leadership, error) {
			switch {
			case n <= 100:
				return leader.Leadership{}, gone
			case n <= 110:
				return leader.Leadership{}, other
			case n <= 113:
				return leader.Leadership{}, leader.ErrDeposed
			case n == 114:
				return leader.Leadership{Term: 5, State: []byte("no state"), Slack: 1}, nil
			}
			return leader.Leadership{Term: 6, Until: func() ticks.Tick { return 1<<63 - 1 }}, nil
		}}
		a := StartAssigner(coord, AssignerOptions{Beat: time.Second, Logger: slog.New(log), Send: func(string, any) {}})
		trouble := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := a.Trouble(); (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("the trouble is %q, not %q", got, want)
			}
		}
		time.Sleep(99*time.Second + 1)
		trouble("nobody answers")
		if log.mu.Lock(); len(log.lines) != 2 {
			t.Errorf("in a hundred seconds: %q", log.lines)
		}
		log.mu.Unlock()
		time.Sleep(10 * time.Second)
		trouble("no password")
		time.Sleep(4 * time.Second)
		trouble("cannot be read")
		if a.Leads() {
			t.Error("it leads with a state that cannot be read")
		}
		time.Sleep(2 * time.Second)
		trouble("")
		if !a.Leads() {
			t.Error("it does not lead")
		}
		a.Close()
		if len(log.lines) != 2+1+3+1 {
			t.Errorf("%d lines: %q", len(log.lines), log.lines)
		}
	})
}

// Leadership lasts as long as the coordinator says at each beat, and no longer; then the
// assigner stands for election again. Slices of hosts that have surely ended are free at
// once, those of others when their leases are over.
func TestLeadershipIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock clock.Clock
		var mu sync.Mutex
		until := clock.Now() + ticks.Tick(3*time.Second)
		extend := func(d time.Duration) { mu.Lock(); until = clock.Now() + ticks.Tick(d); mu.Unlock() }
		state := lease.Append(nil, &lease.State{Gen: 4, Longest: 10e9, Slices: []lease.Held{
			{Lease: lease.Lease{Range: lease.Range{High: "m"}, Gen: 3}, Node: "dead", Host: "ended"}, {Lease: lease.Lease{Range: lease.Range{Low: "m"}, Gen: 4}, Node: "silent", Host: "who knows"}}})
		log := &said{}
		coord := &hard{lead: func(n int) (leader.Leadership, error) {
			if n > 1 {
				return leader.Leadership{}, nil // another leads
			}
			return leader.Leadership{Term: 5, State: state, Gone: func(host string) bool { return host == "ended" },
				Until: func() ticks.Tick { mu.Lock(); defer mu.Unlock(); return until }}, nil
		}}
		a := StartAssigner(coord, AssignerOptions{AssignerOptions: lease.AssignerOptions{Length: 10e9, First: []string{"m"}}, Beat: time.Second, Logger: slog.New(log), Send: func(string, any) {}})
		defer a.Close()
		synctest.Wait()
		owners := func(first, second string) {
			t.Helper()
			a.Deliver(&lease.Renew{Node: "n1", Addr: "n1", Seq: 1})
			synctest.Wait()
			if s := a.State().Slices; s[0].Node != first || s[1].Node != second {
				t.Errorf("owners are %q and %q, not %q and %q", s[0].Node, s[1].Node, first, second)
			}
		}
		owners("n1", "silent")
		for range 11 {
			time.Sleep(time.Second)
			extend(3 * time.Second)
			if !a.Leads() {
				t.Fatal("it was led for longer")
			}
		}
		owners("n1", "n1")
		time.Sleep(3*time.Second - 1)
		if !a.Leads() {
			t.Error("it ends too early")
		}
		time.Sleep(2 * time.Second)
		if synctest.Wait(); a.Leads() || coord.stood() != 2 || len(log.lines) != 1 {
			t.Errorf("it leads %v, and stood %d times: %q", a.Leads(), coord.stood(), log.lines)
		}
	})
}

// What a node was asked is sent with each renewal, and a node that stays says so at once.
func TestRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []*lease.Renew
		n := StartNode(NodeOptions{NodeOptions: lease.NodeOptions{Node: "n1"}, Watch: &diary{}, Send: func(msg any) { sent = append(sent, msg.(*lease.Renew)) },
			Loads: func() []lease.Load { return []lease.Load{{Gen: 7, Rate: uint64(len(sent))}} }})
		defer n.Close()
		time.Sleep(5*time.Second + 1)
		synctest.Wait()
		if len(sent) != 6 || sent[5].Loads[0].Gen != 7 || sent[5].Seq != 6 { // a beat is a second
			t.Fatalf("%d renewals, the last %+v", len(sent), sent[len(sent)-1])
		}
		n.Stay()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if len(sent) != 7 || sent[6].Leaving {
			t.Errorf("%d renewals", len(sent))
		}
		if err := n.Leave(t.Context()); err != nil { // it holds nothing
			t.Error(err)
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if len(sent) != 8 || !sent[7].Leaving {
			t.Errorf("%d renewals", len(sent))
		}
	})
}
