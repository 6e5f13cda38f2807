package causal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/journal"
	"github.com/freshet-cache/freshet/store/memory"
	"github.com/freshet-cache/freshet/store/pebble"
)

// disks are the logs of a cluster, one for each server.
type disks struct {
	dirs []string
	logs []*pebble.Journal
}

// log opens the log of the next server.
func (d *disks) log(t testing.TB, dir string) *pebble.Journal {
	t.Helper()
	s, err := pebble.Open(dir, pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	l, err := s.Journal("log")
	if err != nil {
		t.Fatal(err)
	}
	d.dirs, d.logs = append(d.dirs, dir), append(d.logs, l)
	return l
}

// onDisk gives every server that begins a log of its own.
func (d *disks) onDisk(t testing.TB, more func(*ServerOptions)) func(*ServerOptions) {
	return func(o *ServerOptions) {
		o.Log = d.log(t, t.TempDir())
		if more != nil {
			more(o)
		}
		if err := o.Log.Begin(t.Context(), o.Incarnation, journal.NewName()); err != nil {
			t.Fatal(err)
		}
	}
}

// image is a disk as it is at this instant, as a process finds it that begins after the one
// that writes it was killed.
func image(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	for tries := 0; ; tries++ { // files come and go while it is copied
		err := os.CopyFS(filepath.Join(to, fmt.Sprint(tries)), os.DirFS(dir))
		if err == nil {
			return filepath.Join(to, fmt.Sprint(tries))
		}
		if tries == 20 {
			t.Fatal(err)
		}
	}
}

// stuck is a store into which nothing is merged while it is shut.
func stuck(shut *atomic.Bool) memory.Options {
	return memory.Options{Before: func(_ context.Context, c memory.Call) error {
		if c.Op == memory.OpMerge && shut.Load() {
			return errors.New("the store does not answer")
		}
		return nil
	}}
}

// row is what the store has of a key.
func (c *cluster) row(t *testing.T, key string) string {
	t.Helper()
	rows, err := c.store.Load(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(rows[0].Value)
}

// A write is acknowledged though the store does not answer, is seen everywhere, stays in
// memories that are too small for it, and is in the store later.
func TestAsync(t *testing.T) {
	var shut atomic.Bool
	shut.Store(true)
	d := &disks{}
	c, ctx := gather(t, 3, stuck(&shut), d.onDisk(t, func(o *ServerOptions) { o.Keys = 2 })), t.Context()
	s := c.spaces[0].Begin()
	for i := range 60 {
		if err := s.Set(ctx, fmt.Sprint("k", i), strings.Repeat(fmt.Sprint(i), 100)); err != nil {
			t.Fatal(err)
		}
		s = roam(t, s, c.spaces[i%3])
	}
	if len(s.m.Bare) > 0 {
		t.Errorf("a token is short: %v", s.m)
	}
	for i := range 60 {
		at := c.spaces[i%3]
		testkit.Eventually(t, func() bool { // without a token too
			v, _, err := at.Begin().Get(ctx, fmt.Sprint("k", i))
			if err != nil {
				t.Fatal(err)
			}
			return v == strings.Repeat(fmt.Sprint(i), 100)
		})
		if row := c.row(t, fmt.Sprint("k", i)); row != "" {
			t.Fatalf("the store has %q", row)
		}
	}
	shut.Store(false)
	for i := range 60 {
		testkit.Eventually(t, func() bool { return c.row(t, fmt.Sprint("k", i)) == strings.Repeat(fmt.Sprint(i), 100) })
	}
	for i, l := range d.logs {
		testkit.Eventually(t, func() bool {
			left, _, err := l.Entries(ctx, uint32(i+1), 0, 10)
			if err != nil {
				t.Fatal(err)
			}
			return len(left) == 0
		})
	}
	if err := s.Set(ctx, strings.Repeat("k", 0), ""); !errors.Is(err, ErrKey) {
		t.Error(err)
	}
}

// All servers are killed, with writes that only their disks have. Incarnations that begin over what
// is on the disks bring all of it back; a disk that comes later is waited for.
func TestAsyncAllKilled(t *testing.T) {
	var shut atomic.Bool
	d := &disks{}
	c, ctx := gather(t, 3, stuck(&shut), d.onDisk(t, nil)), t.Context()
	s := c.spaces[0].Begin()
	for i := range 100 {
		shut.Store(i > 30)
		if err := s.Set(ctx, fmt.Sprint("k", i), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		s = roam(t, s, c.spaces[i%3])
	}
	var images []string
	for i, srv := range c.servers {
		srv.crash()
		images = append(images, image(t, d.dirs[i]))
	}
	shut.Store(false)
	mark, err := c.store.Claim(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	largest, err := c.store.Largest(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c.change = func(o *ServerOptions) {
		o.Mark, o.Floor, o.Log = mark, largest, d.log(t, images[0])
		images = images[1:]
		if err := o.Log.Begin(ctx, o.Incarnation, journal.NewName()); err != nil {
			t.Fatal(err)
		}
	}
	c.view = View{Number: 2, Ring: []RingServer{{4, "3"}}, Departed: []uint32{1, 2, 3}, Newest: 4}
	c.start(t, false)
	at := roam(t, s, c.spaces[3])
	if _, _, err := at.Get(ctx, "k99"); !errors.Is(err, ErrBehind) {
		t.Errorf("what two disks have was read without them: %v", err)
	}
	for range 2 {
		c.enter(func(v *View) {
			v.Newest++
			v.Ring = append(v.Ring, RingServer{v.Newest, fmt.Sprint(v.Newest - 1)})
		})
		c.start(t, true)
	}
	for i := range 100 {
		testkit.Eventually(t, func() bool {
			v, _, err := at.Get(ctx, fmt.Sprint("k", i))
			if err != nil && !errors.Is(err, ErrBehind) {
				t.Fatal(err)
			}
			return err == nil && v == fmt.Sprint(i)
		})
		testkit.Eventually(t, func() bool { return c.row(t, fmt.Sprint("k", i)) == fmt.Sprint(i) })
	}
	c.retire(t)
	for _, l := range d.logs[3:] { // only the incarnations that live are left
		testkit.Eventually(t, func() bool {
			incarnations, err := l.Incarnations(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return len(incarnations) == 1
		})
	}
}

// A disk that never comes back is given up: what only it had is lost, everything else is not,
// and the ring forgets its name.
func TestAsyncGivenUp(t *testing.T) {
	d := &disks{}
	c, ctx := gather(t, 2, memory.Options{}, d.onDisk(t, nil)), t.Context()
	s := c.spaces[1].Begin()
	if err := s.Set(ctx, "x", "1"); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, func() bool { v, _, _ := c.spaces[0].Begin().Get(ctx, "x"); return v == "1" })
	c.servers[1].crash()
	c.enter(func(v *View) { v.Ring, v.Departed = v.Ring[:1], []uint32{2} })
	s = c.spaces[0].Begin()
	if err := s.Set(ctx, "y", "1"); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, func() bool { return c.row(t, "x") == "1" && c.row(t, "y") == "1" })
	select {
	case incarnation := <-c.retired:
		t.Errorf("incarnation %d is retired, and its log has not come back", incarnation)
	default:
	}
	if err := GiveUp(ctx, c.store, 2); err != nil {
		t.Fatal(err)
	}
	if incarnation := <-c.retired; incarnation != 2 {
		t.Errorf("incarnation %d is retired", incarnation)
	}
	c.enter(func(v *View) { v.Departed = nil })
	if v, _, err := s.Get(ctx, "x"); v != "1" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
}

// Who leaves in peace leaves nothing in its log.
func TestAsyncDrain(t *testing.T) {
	var shut atomic.Bool
	shut.Store(true)
	d := &disks{}
	c, ctx := gather(t, 2, stuck(&shut), d.onDisk(t, nil)), t.Context()
	s := c.spaces[1].Begin()
	for i := range 50 {
		if err := s.Set(ctx, "x", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	soon, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := c.servers[1].Drain(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("it leaves with writes that are only in its log: %v", err)
	}
	shut.Store(false)
	if err := c.servers[1].Drain(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Set(ctx, "x", "more"); !errors.Is(err, ErrExpelled) {
		t.Errorf("it takes a write: %v", err)
	}
	incarnations, err := d.logs[1].Incarnations(ctx)
	over, e := c.store.Fenced(ctx, 1, 2)
	if err = errors.Join(err, e); err != nil || len(incarnations) > 0 || !slices.Equal(over, []uint32{2}) || c.row(t, "x") != "49" {
		t.Errorf("the log has %v, released are %v, x is %q, %v", incarnations, over, c.row(t, "x"), err)
	}
}

// What no store takes is refused, also if the log would take it; a store that cannot merge is
// found out at once.
func TestAsyncRefusals(t *testing.T) {
	d := &disks{}
	c, ctx := gather(t, 1, memory.Options{}, d.onDisk(t, func(o *ServerOptions) { o.Store = picky{o.Store.(*memory.Journal)} })), t.Context()
	s := c.spaces[0].Begin()
	if err := s.Set(ctx, "no", "1"); !errors.Is(err, ErrRejected) || !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("%v", err)
	}
	if err := s.Set(ctx, "x", "1"); err != nil {
		t.Error(err)
	}
	s.m.Carried = []*mesh.Write{{Dot: mesh.Dot{Incarnation: 9, N: 1}, Muts: []mesh.Mut{{Key: "x", Value: make([]byte, 2<<20)}}}}
	if _, err := s.Token(); !errors.Is(err, ErrCarriesTooMuch) {
		t.Errorf("a token that leaves values out: %v", err)
	}
	_, err := NewServer(ServerOptions{Store: struct{ Store }{c.store}, Incarnation: 1, View: View{Ring: []RingServer{{Incarnation: 1}}}, Settings: Settings{Log: d.logs[0]}})
	if err == nil || !strings.Contains(err.Error(), "cannot merge") {
		t.Errorf("%v", err)
	}
}

// picky takes no key "no".
type picky struct{ *memory.Journal }

func (p picky) Fits(muts []journal.Mutation) error {
	if len(muts) > 0 && muts[0].Key == "no" {
		return store.ErrTooLarge
	}
	return p.Journal.Fits(muts)
}

// Servers are killed and begin again over their disks while workflows roam and the store fails
// now and then: what they see is causally consistent, and nothing acknowledged is lost.
func TestAsyncWhateverBreaks(t *testing.T) {
	var mu sync.Mutex
	dice := rand.New(rand.NewPCG(7, 7))
	fails := memory.Options{Before: func(_ context.Context, c memory.Call) error {
		mu.Lock()
		defer mu.Unlock()
		if c.Op != memory.OpPersist && dice.IntN(10) == 0 {
			return errors.New("the store does not answer")
		}
		return nil
	}}
	d := &disks{}
	dirs := map[uint32]string{} // where an incarnation's log is
	c := gather(t, 3, fails, d.onDisk(t, func(o *ServerOptions) { o.Window = 64 }))
	for i := range uint32(3) {
		dirs[i+1] = d.dirs[i]
	}
	h, end := c.wander(t, 4)
	for range 4 {
		n := len(h.now())
		testkit.Eventually(t, func() bool { return len(h.now()) > n+100 })
		c.replace(t, d, dirs)
	}
	end()
	c.retire(t)
}

// replace kills the second server, and lets another join over what is on its disk.
func (c *cluster) replace(t *testing.T, d *disks, dirs map[uint32]string) {
	dead := c.view.Ring[1]
	c.servers[dead.Incarnation-1].crash()
	disk := image(t, dirs[dead.Incarnation])
	incarnation := uint32(len(c.servers) + 1)
	c.mu.Lock()
	c.enter(func(v *View) {
		v.Ring = []RingServer{v.Ring[0], v.Ring[2], {incarnation, fmt.Sprint(incarnation - 1)}}
		v.Departed, v.Newest = append(v.Departed, dead.Incarnation), incarnation
	})
	c.mu.Unlock()
	c.change = func(o *ServerOptions) {
		o.Window, o.Log = 64, d.log(t, disk)
		if err := o.Log.Begin(t.Context(), o.Incarnation, journal.NewName()); err != nil {
			t.Fatal(err)
		}
	}
	c.start(t, true)
	dirs[incarnation] = disk
	testkit.Eventually(t, func() bool { return c.servers[incarnation-1].Joined() })
}

// retire waits until every incarnation that is lost may be retired.
func (c *cluster) retire(t *testing.T) {
	t.Helper()
	retired := map[uint32]bool{}
	for deadline := time.After(30 * time.Second); len(retired) < len(c.view.Departed); {
		select {
		case incarnation := <-c.retired:
			retired[incarnation] = true
		case <-deadline:
			t.Fatalf("of %v only %v are retired", c.view.Departed, retired)
		}
	}
}
