package causal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/check"
	"github.com/freshet-cache/freshet/codec"
	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/journal"
	"github.com/freshet-cache/freshet/store/memory"
)

// cluster is a ring of servers in one process, over real links.
type cluster struct {
	store   *memory.Journal
	servers []*Server
	spaces  []*Space[string]

	view    View
	change  func(*ServerOptions)
	retired chan uint32

	mu    sync.Mutex
	links []*link.Link
	ready sync.WaitGroup // until all servers are there
}

func gather(t testing.TB, n int, st memory.Options, change func(*ServerOptions)) *cluster {
	t.Helper()
	c := &cluster{store: memory.NewJournal(st), retired: make(chan uint32, 1000)}
	c.ready.Add(1)
	c.change, c.view = change, View{Number: 1, Newest: uint32(n)}
	for i := range n {
		c.view.Ring = append(c.view.Ring, RingServer{uint32(i + 1), fmt.Sprint(i)})
	}
	for range n {
		c.start(t, false)
	}
	c.ready.Done()
	t.Cleanup(func() {
		for _, s := range c.servers {
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
		c.cut(func(int) bool { return true })
		for _, l := range c.links {
			l.Wait()
		}
	})
	return c
}

// start begins the next incarnation, in the current view.
func (c *cluster) start(t testing.TB, joins bool) {
	t.Helper()
	opt := ServerOptions{Store: c.store, Incarnation: uint32(len(c.servers) + 1), View: c.view, Joins: joins, Dial: c.dial,
		Retired: func(incarnation uint32) {
			select {
			case c.retired <- incarnation:
			default: // it is told again
			}
		}, Settings: Settings{Round: time.Millisecond}}
	if c.change != nil {
		c.change(&opt)
	}
	if err := c.store.Begin(t.Context(), opt.Incarnation, journal.NewName()); err != nil {
		t.Fatal(err)
	}
	s, err := NewServer(opt)
	if err != nil {
		t.Fatal(err)
	}
	sp, err := NewSpace(s, SpaceOptions[string]{Codec: codec.String(), Name: "test", Key: []byte("secret")})
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers, c.spaces = append(c.servers, s), append(c.spaces, sp)
}

// enter tells the members of a changed view of it.
func (c *cluster) enter(change func(v *View)) {
	v := c.view
	v.Number++
	v.Ring, v.Departed = slices.Clone(v.Ring), slices.Clone(v.Departed)
	change(&v)
	c.view = v
	for _, s := range c.servers {
		s.Enter(v)
	}
}

// maxFrame is the longest frame of the links: less than what a server may have to say.
const maxFrame = 2 << 20

// dial connects two servers by a pipe.
func (c *cluster) dial(_ context.Context, to RingServer, deliver func([]byte)) (Conn, error) {
	c.ready.Wait()
	here, there := net.Pipe()
	made := make(chan struct{})
	var take func([]byte)
	far := link.New(there, nil, link.Options{MaxFrame: maxFrame, Message: func(f []byte) { <-made; take(f) }})
	i := 0
	_, _ = fmt.Sscan(to.Addr, &i)
	c.mu.Lock()
	defer c.mu.Unlock()
	if i >= len(c.servers) {
		return nil, errors.New("nobody is there")
	}
	take = c.servers[i].Accept(far)
	close(made)
	near := link.New(here, nil, link.Options{MaxFrame: maxFrame, Message: deliver})
	c.links = append(c.links, far, near)
	return near, nil
}

// cut breaks the connections that which says, by their age.
func (c *cluster) cut(which func(i int) bool) {
	c.mu.Lock()
	links := slices.Clone(c.links)
	c.mu.Unlock()
	for i, l := range links {
		if which(i) {
			l.Close()
		}
	}
}

// roam takes a session to another server, as a token.
func roam(t *testing.T, s *Session[string], to *Space[string]) *Session[string] {
	t.Helper()
	token, err := s.Token()
	if err != nil {
		t.Fatal(err)
	}
	moved, err := to.Resume(token)
	if err != nil {
		t.Fatal(err)
	}
	return moved
}

// What a session wrote it reads wherever it goes, and so does who reads an effect of it.
func TestRoaming(t *testing.T) {
	c := gather(t, 3, memory.Options{}, nil)
	ctx := t.Context()
	for i := range 100 {
		a := c.spaces[i%3].Begin()
		want := fmt.Sprint("photo ", i)
		if err := a.Set(ctx, "album", want); err != nil {
			t.Fatal(err)
		}
		a = roam(t, a, c.spaces[(i+1)%3])
		if got, ok, err := a.Get(ctx, "album"); err != nil || !ok || got != want {
			t.Fatalf("%q, %v, %v", got, ok, err)
		}
		if err := a.Set(ctx, "feed", want); err != nil {
			t.Fatal(err)
		}
		b := c.spaces[(i+2)%3].Begin()
		for range 3 {
			items, err := b.GetMany(ctx, "feed", "album")
			if err != nil {
				t.Fatal(err)
			}
			if items[0].Value > items[1].Value && items[0].Exists && len(items[0].Value) == len(items[1].Value) {
				t.Fatalf("the feed shows %q, and the album has %q only", items[0].Value, items[1].Value)
			}
			b = roam(t, b, c.spaces[(i+1)%3])
		}
		if err := a.Delete(ctx, "feed"); err != nil {
			t.Fatal(err)
		}
		if got, ok, err := roam(t, a, c.spaces[i%3]).Get(ctx, "feed"); err != nil || ok {
			t.Fatalf("%q was deleted, %v", got, err)
		}
	}
	for i := range c.spaces { // what is written somewhere is seen everywhere, by who asks without a token
		testkit.Eventually(t, func() bool {
			v, ok, err := c.spaces[i].Begin().Get(ctx, "album")
			return err == nil && ok && v == "photo 99"
		})
	}
	testkit.Eventually(t, func() bool { // and the journal is empty when it has been everywhere
		for o := range uint32(3) {
			if left, _, err := c.store.Entries(ctx, o+1, 0, 1); err != nil || len(left) > 0 {
				return false
			}
		}
		return true
	})
}

// history is what clients did.
type history struct {
	mu   sync.Mutex
	acts []check.Act
	ids  atomic.Int64
}

func (h *history) add(a check.Act) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acts = append(h.acts, a)
	return len(h.acts) - 1
}

// client is a workflow that roams, forks and joins.
type client struct {
	h    *history
	c    *cluster
	r    *rand.Rand
	name string
	s    *Session[string]
	last []int        // acts that the next one follows
	at   func() []int // the servers there are; default: all
}

func (cl *client) act(t *testing.T) {
	a := check.Act{Session: cl.name, After: cl.last}
	key := func() string { return fmt.Sprint("k", cl.r.IntN(6)) }
	var err error
	switch n := cl.r.IntN(20); {
	case n < 8:
		keys := []string{key()}
		if n < 3 {
			keys = append(keys, key(), key())
		}
		var items []Item[string]
		if n < 3 {
			items, err = cl.s.GetMany(t.Context(), keys...)
		} else {
			var it Item[string]
			it.Value, it.Exists, err = cl.s.Get(t.Context(), keys[0])
			items = append(items, it)
		}
		if err != nil {
			break
		}
		for i, it := range items {
			a.Reads = append(a.Reads, check.Cell{Key: keys[i], Write: it.Value, Gone: !it.Exists})
		}
		cl.last = []int{cl.h.add(a)}
	case n < 14:
		k, v := key(), fmt.Sprint(cl.h.ids.Add(1))
		if n == 13 {
			err = cl.s.Delete(t.Context(), k)
			v += " deleted"
		} else {
			err = cl.s.Set(t.Context(), k, v)
		}
		a.Writes = append(a.Writes, check.Cell{Key: k, Write: v, Gone: n == 13})
		if err == nil {
			cl.last = []int{cl.h.add(a)}
		} else if cl.at != nil && !errors.Is(err, ErrBusy) { // it may yet happen, and nobody knows that it is this one's
			a.Session += "?"
			cl.h.add(a)
		}
	case n < 19:
		cl.roam(t)
	default:
		f := &client{h: cl.h, c: cl.c, r: cl.r, name: cl.name + "'", s: cl.s.Fork(), last: cl.last, at: cl.at}
		for range 3 {
			f.act(t)
		}
		cl.s.Join(f.s)
		cl.last = append(slices.Clone(cl.last), f.last...)
		slices.Sort(cl.last)
		cl.last = slices.Compact(cl.last) // the fork may have done nothing
	}
	switch {
	case err == nil, errors.Is(err, ErrBusy), strings.Contains(err.Error(), "no answer"):
	case cl.at != nil && (errors.Is(err, ErrClosed) || errors.Is(err, ErrExpelled) || errors.Is(err, ErrJoining) || errors.Is(err, ErrBehind)):
		cl.roam(t)
	default:
		t.Error(err)
	}
}

func (cl *client) roam(t *testing.T) {
	servers := []int{0, 1, 2}
	if cl.at != nil {
		servers = cl.at()
	}
	if len(servers) == 0 { // all have ended
		return
	}
	i := servers[cl.r.IntN(len(servers))]
	cl.c.mu.Lock()
	if i >= len(cl.c.spaces) { // it is about to be there
		i = 0
	}
	to := cl.c.spaces[i]
	cl.c.mu.Unlock()
	cl.s = roam(t, cl.s, to)
}

// disturb breaks connections until stop is closed.
func (c *cluster) disturb(stop chan struct{}) {
	r := rand.New(rand.NewPCG(3, 3))
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			n := r.IntN(3)
			c.cut(func(i int) bool { return i%3 == n })
		}
	}
}

// Workflows roam at every step while connections break, the store is slow, forgets to
// answer, and little fits into memory: what they see is causally consistent.
func TestCausalWhateverBreaks(t *testing.T) {
	var calls atomic.Int64
	var faulty atomic.Bool
	lose := func(every int64) func(context.Context, memory.Call) error {
		return func(context.Context, memory.Call) error {
			if calls.Add(1)%every == 0 && faulty.Load() {
				return errors.New("no answer")
			}
			return nil
		}
	}
	for name, change := range map[string]func(*ServerOptions){
		"everything fits": func(*ServerOptions) {},
		"two keys fit":    func(o *ServerOptions) { o.Keys = 2 },
		"few writes wait": func(o *ServerOptions) { o.Window = 4 },
	} {
		t.Run(name, func(t *testing.T) {
			faulty.Store(false)
			c := gather(t, 3, memory.Options{Before: lose(41), After: lose(37)}, change)
			faulty.Store(true)
			began := time.Now()
			h := &history{}
			stop := make(chan struct{})
			var wg, disturber sync.WaitGroup
			disturber.Go(func() { c.disturb(stop) })
			for i := range 6 {
				cl := &client{h: h, c: c, r: rand.New(rand.NewPCG(uint64(i), 1)), name: fmt.Sprint("c", i), s: c.spaces[i%3].Begin()}
				wg.Go(func() {
					for range 600 {
						cl.act(t)
					}
				})
			}
			wg.Wait()
			close(stop)
			disturber.Wait()
			t.Logf("%d acts in %v", len(h.acts), time.Since(began).Round(time.Millisecond))
			faulty.Store(false)
			v := check.Causal(h.acts)
			if !v.OK {
				t.Fatalf("%s\n%s", v.Reason, strings.Join(v.Witness, "\n"))
			}
			c.agrees(t)
		})
	}
}

// What a server cannot do it says, and the session stays usable.
func TestRefusals(t *testing.T) {
	gate := make(chan struct{})
	var refuse atomic.Bool
	var held atomic.Int64
	st := memory.Options{Before: func(ctx context.Context, c memory.Call) error {
		switch {
		case c.Op == memory.OpPersist && c.Key == "large":
			return store.ErrTooLarge
		case c.Op == memory.OpPersist && c.Key == "slow":
			held.Add(1)
			<-gate
		case c.Op == memory.OpLoad && refuse.Load():
			return store.ErrUnavailable
		}
		return nil
	}}
	c := gather(t, 1, st, func(o *ServerOptions) { o.Window = 3 })
	ctx := t.Context()
	s := c.spaces[0].Begin()
	if err := s.Set(ctx, "large", "v"); !errors.Is(err, ErrRejected) || !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	if _, ok, err := s.Get(ctx, "large"); ok || err != nil {
		t.Errorf("what was rejected is there: %v", err)
	}
	refuse.Store(true)
	if _, _, err := s.Get(ctx, "unread"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("no answer of the store: %v", err)
	}
	refuse.Store(false)
	testkit.Eventually(t, func() bool { // the number that came to nothing is released
		_, settled, err := c.store.Entries(ctx, 1, 0, 1)
		return err == nil && settled == 1
	})
	short, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for range 3 {
		f := s.Fork()
		wg.Go(func() {
			if err := f.Set(short, "slow", "v"); !errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("given up: %v", err)
			}
		})
	}
	testkit.Eventually(t, func() bool { return held.Load() == 3 })
	if err := s.Set(ctx, "k", "v"); !errors.Is(err, ErrBusy) {
		t.Errorf("the window is full: %v", err)
	}
	cancel()
	wg.Wait()
	close(gate)
	testkit.Eventually(t, func() bool { return s.Set(ctx, "k", "w") == nil })
	if v, _, err := s.Get(ctx, "k"); err != nil || v != "w" {
		t.Error(v, err)
	}
	if err := s.Set(ctx, "", "v"); !errors.Is(err, ErrKey) {
		t.Error(err)
	}
	if _, err := s.GetMany(ctx, "k", ""); !errors.Is(err, ErrKey) {
		t.Error(err)
	}
}

// A server that was fenced, or is closed, says so.
func TestOver(t *testing.T) {
	c, ctx := gather(t, 1, memory.Options{}, nil), t.Context()
	s := c.spaces[0].Begin()
	if err := c.store.Fence(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Set(ctx, "k", "x"); !errors.Is(err, ErrExpelled) {
		t.Errorf("a fenced server: %v", err)
	}
	if err := c.servers[0].Close(ctx); err != nil {
		t.Error(err)
	}
	if _, _, err := s.Get(ctx, "k"); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed server: %v", err)
	}
}

func TestWrongOptions(t *testing.T) {
	one := View{Ring: []RingServer{{Incarnation: 1}}}
	for _, o := range []ServerOptions{
		{}, {Store: memory.NewJournal(memory.Options{})}, {Store: memory.NewJournal(memory.Options{}), Incarnation: 2, View: one},
		{Store: memory.NewJournal(memory.Options{}), Incarnation: 1, View: View{Ring: []RingServer{{Incarnation: 1}, {Incarnation: 2}}}},
		{Store: memory.NewJournal(memory.Options{}), Incarnation: 1, View: one, Settings: Settings{Timeout: -1}},
	} {
		if _, err := NewServer(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	if _, err := NewSpace(nil, SpaceOptions[string]{}); err == nil {
		t.Error("a space without a codec")
	}
	var _ Store = (*memory.Journal)(nil)
	_ = journal.Dot{}
}
