package linear

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/clock"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/memory"
)

// tables is a database with one table of texts, beside a store that holds the marks of
// its keys. Its transactions see the stored values and their own writes.
type tables struct {
	marks *memory.Store
	mu    sync.Mutex // held while a transaction commits, and while a snapshot is taken
	rows  map[string]string
	loads atomic.Int64
	lose  atomic.Int32 // so many commits are not answered: odd ones are done, even ones not
	late  func()       // called between a transaction and its commit
}

type textTx struct {
	rows   map[string]string
	writes map[string]string
}

func newTables() *tables {
	return &tables{marks: memory.New(memory.Options{}), rows: map[string]string{}}
}

func (t *tables) SetGuard(ctx context.Context, low, high string, token store.Token) error {
	return t.marks.SetGuard(ctx, low, high, token)
}

func (t *tables) Splits(ctx context.Context, low, high string) ([]string, error) { return nil, nil }

func (t *tables) Snapshot(ctx context.Context, key string, read func(ctx context.Context, tx *textTx) error) (store.Row, error) {
	t.mu.Lock()
	row, err := t.marks.Load(ctx, key)
	rows := maps.Clone(t.rows)
	t.mu.Unlock()
	if err == nil && read != nil {
		t.loads.Add(1)
		err = read(ctx, &textTx{rows: rows})
	}
	return row, err
}

func (t *tables) Transact(ctx context.Context, id store.ID, keys []string, guards []store.Token, write func(ctx context.Context, tx *textTx) error) error {
	t.mu.Lock()
	tx := &textTx{rows: maps.Clone(t.rows), writes: map[string]string{}}
	t.mu.Unlock()
	if err := write(ctx, tx); err != nil {
		return fmt.Errorf("%w: %w", store.ErrRefused, err)
	}
	if t.late != nil {
		t.late()
	}
	lost := t.lose.Add(-1)
	if lost >= 0 && lost%2 == 0 {
		return errors.New("the connection is gone, and nothing was done")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var muts []store.Mutation
	for i, k := range keys {
		muts = append(muts, store.Mutation{Key: k, Guard: guards[i], Delete: true})
	}
	if _, err := t.marks.Commit(ctx, id, muts); err != nil {
		return err
	}
	maps.Copy(t.rows, tx.writes)
	if lost > 0 {
		return errors.New("the connection is gone, and all was done")
	}
	return nil
}

// text is the value of a key: its row.
func (t *tables) text(_ context.Context, tx *textTx, key string) (string, bool, error) {
	if tx.rows[key] == "broken" {
		return "", false, errors.New("the row is broken")
	}
	v, ok := tx.rows[key]
	return v, ok, nil
}

func (t *tables) view(tb testing.TB, opt Options[string]) *View[string, *textTx] {
	opt.Codec = String()
	v, err := NewView(t, t.text, opt)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = v.Close(context.Background()) })
	return v
}

func appends(keys []string, text string) func(context.Context, *textTx) error {
	return func(_ context.Context, tx *textTx) error {
		for _, k := range keys {
			tx.writes[k] = tx.rows[k] + text
		}
		return nil
	}
}

func TestView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, tb := t.Context(), newTables()
		v := tb.view(t, Options[string]{})
		synctest.Wait() // for the first guard
		want := func(key, value string, loads int64) {
			t.Helper()
			before := tb.loads.Load()
			got, ok, err := v.Get(ctx, key)
			if err != nil || ok != (value != "") || got != value || tb.loads.Load()-before != loads {
				t.Fatalf("%s is %q %v %v after %d loads, not %q after %d", key, got, ok, err, tb.loads.Load()-before, value, loads)
			}
		}
		want("a", "", 1)
		want("a", "", 0) // absence is kept too
		if err := v.Update(ctx, []string{"a", "b"}, appends([]string{"a", "b"}, "1")); err != nil {
			t.Fatal(err)
		}
		want("a", "1", 1)
		want("a", "1", 0)
		sad := errors.New("no")
		if err := v.Update(ctx, []string{"a"}, func(context.Context, *textTx) error { return sad }); err != sad {
			t.Fatalf("a function's error came back as %v", err)
		}
		want("a", "1", 1) // it was dropped before
		if err := v.Update(ctx, []string{"a"}, func(context.Context, *textTx) error { panic("oh") }); err == nil || !strings.Contains(err.Error(), "panicked") {
			t.Fatalf("a panic came back as %v", err)
		}
		if err := v.Update(ctx, nil, nil); err == nil {
			t.Fatal("an update of nothing was done")
		}
		// The guards are lost: the update is done under new ones.
		if err := tb.marks.SetGuard(ctx, "", "", store.Token{9}); err != nil {
			t.Fatal(err)
		}
		if err := v.Update(ctx, []string{"a"}, appends([]string{"a"}, "2")); err != nil {
			t.Fatal(err)
		}
		want("a", "12", 1)
		// No answer to the commit: what became of it is found out. A value that cannot be
		// built does not keep that from happening.
		tb.lose.Store(2)
		if err := v.Update(ctx, []string{"a", "c"}, appends([]string{"a"}, "3")); err != nil { // done
			t.Fatal(err)
		}
		want("a", "123", 1)
		tb.rows["broken"] = "broken"
		if err := v.Update(ctx, []string{"a", "broken"}, appends([]string{"a"}, "4")); err != nil { // not done, and then done
			t.Fatal(err)
		}
		want("a", "1234", 1)
		if _, _, err := v.Get(ctx, "broken"); err == nil || !strings.Contains(err.Error(), "the row is broken") {
			t.Fatalf("a load's error came back as %v", err)
		}
	})
}

func TestViewOptions(t *testing.T) {
	tb := newTables()
	for _, c := range []struct {
		load func(context.Context, *textTx, string) (string, bool, error)
		opt  Options[string]
	}{{nil, Options[string]{Codec: String()}}, {tb.text, Options[string]{}}, {tb.text, Options[string]{Codec: String(), Store: tb.marks}}} {
		if v, err := NewView(tb, c.load, c.opt); err == nil {
			_ = v.Close(t.Context())
			t.Errorf("%+v was taken", c.opt)
		}
	}
}

// town is nodes that call each other directly, in which key ranges are dealt by hand.
type town struct {
	mu      sync.Mutex
	members map[string]Participant
	owner   map[string]string // by first letter
	deaf    map[string]bool
	handles map[string]*shard.Handle
	gen     lease.Gen
}

type citizen struct {
	*town
	name string
}

func (c citizen) Self() string { return c.name }
func (c citizen) Join(m Participant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members[c.name] = m
}
func (c citizen) Owner(key string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owner[key[:1]]
}
func (c citizen) Call(ctx context.Context, owner string, request []byte) ([]byte, error) {
	c.mu.Lock()
	m, deaf := c.members[owner], c.deaf[owner]
	c.mu.Unlock()
	if deaf {
		return nil, ErrUnreached
	}
	return m.Serve(ctx, request), nil
}

// deal gives the keys that begin with letter to a node, as its lease does.
func (w *town) deal(letter, name string) {
	w.mu.Lock()
	old, was := w.handles[letter], w.members[w.owner[letter]]
	w.gen++
	h := shard.NewHandle(lease.Lease{Range: lease.Range{Low: letter, High: string(letter[0] + 1)}, Gen: w.gen}, clock.Clock{}, 1<<62)
	w.handles[letter], w.owner[letter] = h, name
	m := w.members[name]
	w.mu.Unlock()
	if old != nil {
		old.Revoke()
		was.Revoked(old)
	}
	m.Acquired(h, 0)
}

func newTown() *town {
	return &town{members: map[string]Participant{}, owner: map[string]string{}, deaf: map[string]bool{}, handles: map[string]*shard.Handle{}}
}

// Transfers between keys of three owners, from all of them, while keys change hands:
// nothing is lost or done twice, and nobody waits for ever.
func TestViewOfSeveralOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, tb, w := t.Context(), newTables(), newTown()
		names := []string{"n1", "n2", "n3"}
		var views []*View[string, *textTx]
		for _, n := range names {
			views = append(views, tb.view(t, Options[string]{Peers: citizen{w, n}}))
		}
		keys := []string{"a", "b", "c", "d"}
		for i, k := range keys {
			w.deal(k, names[i%3])
		}
		synctest.Wait()
		tb.late = func() { time.Sleep(time.Millisecond) }
		const each = 40
		done := [3]int{}
		var wg sync.WaitGroup
		for i, v := range views {
			wg.Go(func() {
				for n := range each {
					which := []string{keys[(i+n)%4], keys[(i+n+1+n%3)%4]}
					err := v.Update(ctx, which, appends(which, "x"))
					if err == nil {
						done[i]++
					} else if errors.Is(err, ErrOutcomeUnknown) {
						t.Errorf("unknown: %v", err)
					}
					if got, _, err := v.Get(ctx, which[0]); err != nil || len(got) == 0 && done[i] > 0 && n == 0 {
						t.Errorf("%q %v", got, err)
					}
				}
			})
		}
		for i := range 20 {
			time.Sleep(3 * time.Millisecond)
			w.deal(keys[i%4], names[(i+i/4)%3])
		}
		wg.Wait()
		total := 0
		for _, k := range keys {
			total += len(tb.rows[k])
			for _, v := range views {
				if got, _, err := v.Get(ctx, k); err != nil || got != tb.rows[k] {
					t.Errorf("%s is %q at a node, and %q in the table: %v", k, got, tb.rows[k], err)
				}
			}
		}
		if want := 2 * (done[0] + done[1] + done[2]); total != want || want < each {
			t.Fatalf("%d writes are there, and %d were acknowledged", total, want)
		}
		// The owner of one key is not to be reached: nothing is written, and nothing stays locked.
		w.deal("a", "n1")
		w.deal("b", "n2")
		synctest.Wait()
		w.deaf["n2"] = true
		before := tb.rows["a"]
		if err := views[0].Update(ctx, []string{"a", "b"}, appends([]string{"a"}, "y")); !errors.Is(err, ErrUnreached) || tb.rows["a"] != before {
			t.Fatalf("without the owner of one key: %v", err)
		}
		if err := views[0].Update(ctx, []string{"a"}, appends([]string{"a"}, "y")); err != nil {
			t.Fatal(err)
		}
	})
}

// A coordinator that vanishes between its cross-owner write and its commit is fenced: others go on, and
// its commit fails.
func TestCoordinatorVanishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, tb, w := t.Context(), newTables(), newTown()
		one := tb.view(t, Options[string]{Peers: citizen{w, "n1"}, Timeout: time.Second})
		two := tb.view(t, Options[string]{Peers: citizen{w, "n2"}, Timeout: time.Minute})
		w.deal("a", "n1")
		synctest.Wait()
		var again atomic.Bool
		tb.late = func() {
			if !again.Swap(true) {
				time.Sleep(10 * time.Second) // longer than n1 waits
			}
		}
		var late error
		var wg sync.WaitGroup
		wg.Go(func() {
			late = two.Update(ctx, []string{"a"}, func(ctx context.Context, tx *textTx) error {
				tx.writes["a"] = tx.rows["a"] + "2"
				return nil
			})
		})
		synctest.Wait()
		if err := one.Update(ctx, []string{"a"}, appends([]string{"a"}, "1")); err != nil {
			t.Fatal(err)
		}
		tb.mu.Lock()
		if a := tb.rows["a"]; a != "1" {
			t.Errorf("a is %q", a)
		}
		tb.mu.Unlock()
		wg.Wait()
		if late != nil || tb.rows["a"] != "12" { // its first attempt was refused, its second saw the other's write
			t.Fatalf("%v: a is %q", late, tb.rows["a"])
		}
	})
}

// What other nodes send may be anything.
func FuzzServe(f *testing.F) {
	f.Add([]byte{askRead, 1, 'a'})
	f.Add(append(append([]byte{askLock}, make([]byte, 16)...), 2, 1, 'a', 1, 'b'))
	f.Add(append(append([]byte{askSettle}, make([]byte, 16)...), 3))
	f.Add([]byte{askOffer, 1, 1, 1, 2, 1, 'a', 1, 'x'})
	tb := newTables()
	v := tb.view(f, Options[string]{Timeout: 10 * time.Millisecond})
	f.Fuzz(func(t *testing.T, b []byte) {
		if out := v.cache.serve(t.Context(), b); len(out) == 0 || !slices.Contains([]byte{sayYes, sayNotOwner, sayBusy, sayError}, out[0]) {
			t.Fatalf("%q was answered with %q", b, out)
		}
	})
}
