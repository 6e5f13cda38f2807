package shard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/freshet-cache/freshet/clock"
	"github.com/freshet-cache/freshet/leader"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock.Clock
		h := NewHandle(lease.Lease{Gen: 1}, c, c.Now()+ticks.Tick(time.Second))
		if !h.Valid() {
			t.Fatal("not valid from the beginning")
		}
		h.extend(c.Now() + ticks.Tick(2*time.Second))
		time.Sleep(1500 * time.Millisecond)
		if !h.Valid() {
			t.Fatal("not extended")
		}
		h.extend(c.Now() - 1) // a renewal that was overtaken takes nothing away
		if !h.Valid() {
			t.Fatal("cut short")
		}
		time.Sleep(time.Second)
		if h.Valid() {
			t.Fatal("valid for ever")
		}
		h = NewHandle(lease.Lease{Gen: 2}, c, c.Now()+ticks.Tick(time.Hour))
		h.Revoke()
		h.extend(c.Now() + ticks.Tick(time.Hour))
		if h.Valid() || h.Until() != 0 {
			t.Fatal("a revoked handle came back")
		}
	})
}

func TestClocksDoNotStepBack(t *testing.T) {
	for _, c := range []clock.Clock{{}, {Boot: true}} {
		last := c.Now()
		for range 1000 {
			now := c.Now()
			if now < last || now <= 0 {
				t.Fatalf("%v after %v", now, last)
			}
			last = now
		}
	}
}

// watched collects what a node is told.
type watched struct {
	mu    sync.Mutex
	held  map[lease.Gen]*Handle
	given int // parts handed over
}

func (w *watched) Acquired(h *Handle, _ lease.Gen) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[h.Gen] = h
}
func (w *watched) Extended(*Handle) {}
func (w *watched) HandedOver(h *Handle, over lease.Range, _ lease.Gen, next string) {
	if h.Valid() || next == "" || !over.Overlaps(h.Range) {
		panic("handed over what is not to be")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.given++
}
func (w *watched) Revoked(h *Handle) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.Valid() {
		panic("told of the end of a handle that is valid")
	}
	delete(w.held, h.Gen)
}

func (w *watched) count() int { w.mu.Lock(); defer w.mu.Unlock(); return len(w.held) }

// office is a coordinator in memory that can be taken away.
type office struct {
	mu    sync.Mutex
	term  uint64
	state []byte
	fails int // that many saves are not stored, and have no answer
	late  int // that many are stored, and have no answer
	most  int // states that are larger are refused for good; 0 for none
	tried int // saves, of whatever outcome
}

func (o *office) Lead(ctx context.Context) (leader.Leadership, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.term++
	return leader.Leadership{Term: o.term, State: o.state}, ctx.Err()
}

func (o *office) Save(_ context.Context, term uint64, state []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tried++
	switch {
	case term != o.term:
		return leader.ErrDeposed
	case o.most > 0 && len(state) > o.most:
		return fmt.Errorf("%w: %d bytes", leader.ErrStateTooLarge, len(state))
	case o.fails > 0:
		o.fails--
		return errors.New("no answer")
	case o.late > 0:
		o.late--
		o.state = state
		return errors.New("no answer")
	}
	o.state = state
	return nil
}

// fleet is nodes and one assigner, in virtual time.
type fleet struct {
	office   office
	assigner *Assigner
	nodes    map[string]*Node
	watched  map[string]*watched
	mu       sync.Mutex
	cut      map[string]bool
}

func (f *fleet) start() {
	f.mu.Lock() // its first messages wait until it has a name
	defer f.mu.Unlock()
	f.assigner = StartAssigner(&f.office, AssignerOptions{
		AssignerOptions: lease.AssignerOptions{Length: ticks.Tick(2 * time.Second), First: []string{"h", "p"}}, Beat: 100 * time.Millisecond,
		Send: func(node string, msg any) { go f.to(node, func() { f.node(node).Deliver(msg) }) },
	})
}

func (f *fleet) to(node string, deliver func()) {
	f.mu.Lock()
	there := f.nodes[node] != nil && !f.cut[node]
	f.mu.Unlock()
	if there {
		deliver()
	}
}

func (f *fleet) node(name string) *Node { f.mu.Lock(); defer f.mu.Unlock(); return f.nodes[name] }
func (f *fleet) current() *Assigner     { f.mu.Lock(); defer f.mu.Unlock(); return f.assigner }

func (f *fleet) join(name string) {
	w := &watched{held: map[lease.Gen]*Handle{}}
	n := StartNode(NodeOptions{NodeOptions: lease.NodeOptions{Node: name, Addr: name, Host: name}, Beat: 200 * time.Millisecond, Watch: w,
		Send: func(msg any) { go f.to(name, func() { f.current().Deliver(msg) }) }})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes[name], f.watched[name] = n, w
}

func (f *fleet) close() {
	for _, n := range f.nodes {
		n.Close()
	}
	f.assigner.Close()
}

// owner is the one node that holds key; it fails if there are two.
func (f *fleet) owner(t *testing.T, key string) (name string) {
	t.Helper()
	for n, node := range f.nodes {
		if h := node.Acquire(key); h != nil {
			if name != "" {
				t.Fatalf("%s and %s hold %q", name, n, key)
			}
			name = n
		}
	}
	return name
}

func TestFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{nodes: map[string]*Node{}, watched: map[string]*watched{}, cut: map[string]bool{}}
		f.start()
		for i := range 3 {
			f.join(fmt.Sprint("n", i))
		}
		time.Sleep(20 * time.Second)
		for name, w := range f.watched { // they are spread without any load
			if w.count() != 1 {
				t.Errorf("%s holds %d slices", name, w.count())
			}
		}
		was := f.owner(t, "a")
		to := map[bool]string{true: "n1", false: "n0"}[was == "n0"]
		if !f.assigner.Move("a", to) {
			t.Fatal("it does not move")
		}
		time.Sleep(50 * time.Millisecond)
		if got := f.owner(t, "a"); got != to {
			t.Fatalf("moved to %q, want %q", got, to)
		}
		if f.watched[was].given == 0 {
			t.Error("a move hands nothing over")
		}
		if r, ok := f.nodes["n2"].Table().Find("zzz"); !ok || r.Node == "" {
			t.Error("nobody knows who owns zzz")
		}

		f.mu.Lock() // who falls silent loses everything, and not before its lease is over
		f.cut[to] = true
		f.mu.Unlock()
		for range 40 {
			time.Sleep(100 * time.Millisecond)
			f.owner(t, "a")
		}
		if got := f.owner(t, "a"); got == to || got == "" {
			t.Fatalf("%q holds what a silent node had", got)
		}
		f.mu.Lock()
		f.cut[to] = false
		f.mu.Unlock()

		f.assigner.Close() // and the assigner may die
		f.start()
		time.Sleep(10 * time.Second)
		for _, key := range []string{"a", "k", "z"} {
			if f.owner(t, key) == "" {
				t.Errorf("nobody owns %q after the assigner came back", key)
			}
		}
		if err := f.nodes["n2"].Leave(t.Context()); err != nil || f.watched["n2"].count() != 0 {
			t.Errorf("left with %d slices, %v", f.watched["n2"].count(), err)
		}
		f.close()
	})
}

// A coordinator that fails for a while, or that will never store so large a state, does
// not stop slices from changing hands for ever.
func TestSavesThatFail(t *testing.T) {
	for name, trouble := range map[string]func(o *office){
		"no answer":        func(o *office) { o.fails = 7 },
		"stored, unheard":  func(o *office) { o.late = 7 },
		"larger than this": func(o *office) { o.most = len(o.state) + 3 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fleet{nodes: map[string]*Node{}, watched: map[string]*watched{}, cut: map[string]bool{}}
				f.start()
				f.join("n0")
				f.join("n1")
				time.Sleep(20 * time.Second)
				f.office.mu.Lock()
				trouble(&f.office)
				tried := f.office.tried
				f.office.mu.Unlock()
				f.assigner.Cut("abcd", "abce", "abcf", "abcg") // the first state to fail
				time.Sleep(200 * time.Millisecond)
				if what := f.assigner.Trouble(); name != "larger than this" && what == "" {
					t.Error("nobody hears that the coordinator does not save")
				}
				time.Sleep(800 * time.Millisecond)
				f.office.mu.Lock()
				if tried = f.office.tried - tried; name == "larger than this" && tried > 3 {
					t.Errorf("%d saves in a second of what is refused for good", tried)
				}
				f.office.mu.Unlock()
				time.Sleep(20 * time.Second)
				was := f.owner(t, "z")
				to := map[bool]string{true: "n1", false: "n0"}[was == "n0"]
				if !f.assigner.Move("z", to) {
					t.Fatal("it does not move")
				}
				time.Sleep(10 * time.Second)
				if got := f.owner(t, "z"); got != to {
					t.Errorf("moved to %q, want %q", got, to)
				}
				if what := f.assigner.Trouble(); what != "" {
					t.Errorf("it is over, and told: %s", what)
				}
				f.close()
			})
		})
	}
}

func TestLeaveHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{nodes: map[string]*Node{}, watched: map[string]*watched{}, cut: map[string]bool{}}
		f.start()
		f.join("n0")
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := f.nodes["n0"].Leave(ctx); !errors.Is(err, context.DeadlineExceeded) { // there is nobody else
			t.Error(err)
		}
		f.close()
	})
}

// Stay ends Leave: a call that waits returns, and slices come again.
func TestStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{nodes: map[string]*Node{}, watched: map[string]*watched{}, cut: map[string]bool{}}
		f.start()
		f.join("n0")
		time.Sleep(time.Second)
		go func() {
			time.Sleep(time.Second)
			f.nodes["n0"].Stay()
		}()
		if err := f.nodes["n0"].Leave(t.Context()); !errors.Is(err, ErrStayed) { // there is nobody else
			t.Error(err)
		}
		f.join("n1")
		if err := f.nodes["n0"].Leave(t.Context()); err != nil {
			t.Error(err)
		}
		f.nodes["n0"].Stay()
		time.Sleep(20 * time.Second)
		if f.watched["n0"].count() == 0 {
			t.Error("it was told to stay, and is given nothing")
		}
		f.close()
	})
}

func BenchmarkValid(b *testing.B) {
	h := NewHandle(lease.Lease{Gen: 1}, clock.Clock{}, 1<<63-1)
	for b.Loop() {
		if !h.Valid() {
			b.Fatal("not valid")
		}
	}
}
