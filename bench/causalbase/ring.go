package causalbase

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/causal"
	"github.com/freshet-cache/freshet/codec"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/store/journal"
	"github.com/freshet-cache/freshet/store/memory"
)

// Ring is a ring of causal servers in one process, over emulated links.
type Ring struct {
	Spaces []*causal.Space[string]

	world   *World
	store   *journaled
	servers []*causal.Server
	ready   chan struct{}
	tcc     bool
	work    sync.WaitGroup
	mu      sync.Mutex
	conns   []*conn
	links   []*link.Link
}

// journaled is a store that counts the bytes in its journal.
type journaled struct {
	*memory.Journal
	mu    sync.Mutex
	sizes map[uint32]map[uint64]int // sizes by incarnation and number
	last  map[uint32]uint64         // numbers
	gone  map[uint32]uint64         // the number up to which it was truncated
}

// Persist commits a write.
func (j *journaled) Persist(ctx context.Context, w journal.Write) error {
	j.mu.Lock()
	incarnation := j.sizes[w.Dot.Incarnation]
	if incarnation == nil {
		incarnation = map[uint64]int{}
		j.sizes[w.Dot.Incarnation] = incarnation
	}
	incarnation[w.Dot.N] = len(w.Body)
	j.last[w.Dot.Incarnation] = max(j.last[w.Dot.Incarnation], w.Dot.N)
	j.mu.Unlock()
	return j.Journal.Persist(ctx, w)
}

// Truncate removes writes from the journal.
func (j *journaled) Truncate(ctx context.Context, incarnation uint32, upto uint64) error {
	err := j.Journal.Truncate(ctx, incarnation, upto)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for n := j.gone[incarnation] + 1; n <= upto; n++ {
		delete(j.sizes[incarnation], n)
	}
	j.gone[incarnation] = max(j.gone[incarnation], upto)
	return nil
}

// above returns the bytes of the writes of an incarnation after a number.
func (j *journaled) above(incarnation uint32, n uint64) (sum int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for n++; n <= j.last[incarnation]; n++ {
		sum += j.sizes[incarnation][n]
	}
	return sum
}

func newRing(ctx context.Context, w *World, rows map[string]string, tcc bool) (*Ring, error) {
	db := memory.NewJournal(memory.Options{After: func(context.Context, memory.Call) error {
		w.answer()
		return nil
	}})
	r := &Ring{world: w, store: &journaled{Journal: db, sizes: map[uint32]map[uint64]int{}, last: map[uint32]uint64{}, gone: map[uint32]uint64{}}, ready: make(chan struct{}), tcc: tcc}
	for k, v := range rows {
		db.WriteExternally(k, []byte(v), 1)
	}
	view := causal.View{Number: 1, Newest: uint32(w.Servers)}
	for i := range w.Servers {
		view.Ring = append(view.Ring, causal.RingServer{Incarnation: uint32(i + 1), Addr: fmt.Sprint(i)})
	}
	for i := range w.Servers {
		if err := db.Begin(ctx, uint32(i+1), journal.NewName()); err != nil {
			return nil, err
		}
		opt := causal.ServerOptions{Store: r.store, Incarnation: uint32(i + 1), View: view, Dial: r.dial, Floor: 1}
		if !tcc { // the setting of a node
			opt.Versions = 1
		}
		s, err := causal.NewServer(opt)
		if err != nil {
			return nil, err
		}
		sp, err := causal.NewSpace(s, causal.SpaceOptions[string]{Codec: codec.String(), Name: "bench"})
		if err != nil {
			return nil, err
		}
		r.servers, r.Spaces = append(r.servers, s), append(r.Spaces, sp)
	}
	close(r.ready)
	return r, r.fill(ctx, sorted(rows))
}

// fill makes every server load every key.
func (r *Ring) fill(ctx context.Context, keys []string) error {
	errs := make([]error, len(r.Spaces))
	var wg sync.WaitGroup
	for i, sp := range r.Spaces {
		wg.Go(func() {
			for at := 0; at < len(keys) && errs[i] == nil; at += 64 {
				_, errs[i] = sp.Begin().GetMany(ctx, keys[at:min(at+64, len(keys))]...)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// conn is one side of an emulated connection. The other side receives frames in order, after the
// delay of the link.
type conn struct {
	line    *Line
	peer    *conn
	deliver func([]byte)
	mu      sync.Mutex
	inbox   [][]byte
	wake    chan struct{}
	done    chan struct{}
	once    *sync.Once
}

// Send implements causal.Conn.
func (c *conn) Send(frame []byte) error {
	select {
	case <-c.done:
		return errBroken
	default:
	}
	c.line.After(func() { c.peer.take(frame) })
	return nil
}

var errBroken = errors.New("causalbase: the connection is broken")

// Done implements causal.Conn.
func (c *conn) Done() <-chan struct{} { return c.done }

// Break implements causal.Conn.
func (c *conn) Break() { c.once.Do(func() { close(c.done) }) }

func (c *conn) take(frame []byte) {
	c.mu.Lock()
	c.inbox = append(c.inbox, frame)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *conn) run() {
	for {
		select {
		case <-c.wake:
		case <-c.done:
			return
		}
		c.mu.Lock()
		frames := c.inbox
		c.inbox = nil
		c.mu.Unlock()
		for _, f := range frames {
			c.deliver(f)
		}
	}
}

func (r *Ring) dial(_ context.Context, to causal.RingServer, deliver func([]byte)) (causal.Conn, error) {
	<-r.ready
	i := 0
	if _, err := fmt.Sscan(to.Addr, &i); err != nil {
		return nil, err
	}
	done, once := make(chan struct{}), &sync.Once{}
	side := func() *conn {
		return &conn{line: r.world.Links, wake: make(chan struct{}, 1), done: done, once: once}
	}
	if r.world.Loopback {
		return r.loopback(i, deliver)
	}
	near, far := side(), side()
	near.peer, far.peer, near.deliver = far, near, deliver
	far.deliver = r.servers[i].Accept(far)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.work.Go(near.run)
	r.work.Go(far.run)
	r.conns = append(r.conns, near)
	return near, nil
}

// loopback connects to a server by TCP.
func (r *Ring) loopback(to int, deliver func([]byte)) (causal.Conn, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	here, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	there, err := l.Accept()
	if err != nil {
		return nil, errors.Join(err, here.Close())
	}
	var take func([]byte)
	made := make(chan struct{})
	far := link.New(there, nil, link.Options{Message: func(f []byte) { <-made; take(f) }})
	take = r.servers[to].Accept(far)
	close(made)
	near := link.New(here, nil, link.Options{Message: deliver})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.links = append(r.links, near, far)
	return near, nil
}

// Act implements System: a function reads from one cut; a transaction is one act.
func (r *Ring) Act() Act {
	if r.tcc {
		return TheWorkflow
	}
	return EachFunction
}

// Settle implements System: it waits until every server knows that all servers have received its
// writes.
func (r *Ring) Settle(ctx context.Context) error {
	for r.Metadata() > 0 {
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// Metadata implements System: at most, every server holds in its I-cache and its log all writes
// that are not known to be at all servers.
func (r *Ring) Metadata() (sum int) {
	for i, s := range r.servers {
		sum += r.store.above(uint32(i+1), s.Truncated())
	}
	return sum * len(r.servers)
}

// Close implements System.
func (r *Ring) Close(ctx context.Context) error {
	var err error
	for _, s := range r.servers {
		err = errors.Join(err, s.Close(ctx))
	}
	r.mu.Lock()
	for _, c := range r.conns {
		c.Break()
	}
	for _, l := range r.links {
		l.Close()
		l.Wait()
	}
	r.mu.Unlock()
	r.work.Wait()
	return err
}

// Begin implements System.
func (r *Ring) Begin(ctx context.Context, places []int, _ []string) (Flow, error) {
	if !r.tcc {
		return &session{r, r.Spaces[places[0]].Begin()}, nil
	}
	tx, err := r.Spaces[places[0]].Begin().BeginTx(ctx)
	if err != nil {
		return nil, again(err)
	}
	return &transaction{r, tx}, nil
}

// again classifies errors: after some of them, the workflow begins again.
func again(err error) error {
	if errors.Is(err, causal.ErrStale) || errors.Is(err, causal.ErrBusy) {
		return fmt.Errorf("%w: %w", ErrAgain, err)
	}
	return err
}

// session is a workflow of the causal cache.
type session struct {
	r *Ring
	s *causal.Session[string]
}

// Read implements Flow.
func (f *session) Read(ctx context.Context, keys []string) ([]string, error) {
	items, err := f.s.GetMany(ctx, keys...)
	return values(items), again(err)
}

func values(items []causal.Item[string]) []string {
	out := make([]string, len(items))
	for i, it := range items {
		out[i] = it.Value
	}
	return out
}

// Write implements Flow. It repeats a write that a busy server has refused, which had no effect.
func (f *session) Write(ctx context.Context, key, value string) error {
	for {
		err := f.s.Set(ctx, key, value)
		if !errors.Is(err, causal.ErrBusy) {
			return err
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// Move implements Flow.
func (f *session) Move(to int) error {
	token, err := f.s.Token()
	if err != nil {
		return err
	}
	f.r.world.moved(len(token))
	f.s, err = f.r.Spaces[to].Resume(token)
	return err
}

// Fork implements Flow.
func (f *session) Fork() Flow { return &session{f.r, f.s.Fork()} }

// Join implements Flow.
func (f *session) Join(o Flow) { f.s.Join(o.(*session).s) }

// End implements Flow.
func (f *session) End(context.Context) error { return nil }

// transaction is a workflow of the causal cache with transactions.
type transaction struct {
	r  *Ring
	tx *causal.Tx[string]
}

// Read implements Flow.
func (f *transaction) Read(ctx context.Context, keys []string) ([]string, error) {
	items, err := f.tx.GetMany(ctx, keys...)
	return values(items), again(err)
}

// Write implements Flow.
func (f *transaction) Write(_ context.Context, key, value string) error { return f.tx.Set(key, value) }

// Move implements Flow.
func (f *transaction) Move(to int) error {
	token, err := f.tx.Token()
	if err != nil {
		return err
	}
	f.r.world.moved(len(token))
	f.tx, err = f.r.Spaces[to].ResumeTx(token)
	return err
}

// Fork implements Flow.
func (f *transaction) Fork() Flow { return &transaction{f.r, f.tx.Fork()} }

// Join implements Flow.
func (f *transaction) Join(o Flow) { f.tx.Join(o.(*transaction).tx) }

// End implements Flow.
func (f *transaction) End(ctx context.Context) error {
	_, err := f.tx.Commit(ctx)
	return again(err)
}
