package pebble

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/freshet-cache/freshet/store/journal"
)

// spaces are the causal spaces of a store: one that has every write before it is acknowledged, one that keeps concurrent
// writes, one into which writes are merged, and a log.
type spaces struct{ rows, beside, merged, log *Journal }

func spacesOf(t *testing.T, s *Store) (all spaces) {
	t.Helper()
	for name, d := range map[string]**Journal{"rows": &all.rows, "beside": &all.beside, "merged": &all.merged, "log": &all.log} {
		var err error
		if *d, err = s.Journal(name); err == nil {
			err = (*d).KeepSiblings(t.Context(), name == "beside")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// causalCrasher runs servers over causal spaces, and takes the disk as a crash at one of the store's syncs would leave it.
type causalCrasher struct {
	t    *testing.T
	mem  *vfs.MemFS
	rnd  *rand.Rand
	at   int // the sync to crash at, before or after it
	seen int

	mu   sync.Mutex
	told []func(all spaces) error // what was said and holds from then on
	disk *vfs.MemFS
	then int // how much of it had been said by the crash

	opened, early bool // the store was there when it crashed, or was only being made
}

func (c *causalCrasher) synced() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen++; c.seen == c.at && c.disk == nil {
		c.then, c.early = len(c.told), !c.opened
		c.disk = c.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: c.rnd.IntN(101), RNG: c.rnd})
	}
}

// note remembers what the store has promised by saying that it was done.
func (c *causalCrasher) note(err error, holds func(all spaces) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.t.Errorf("promise %d: %v", len(c.told), err)
		return
	}
	c.told = append(c.told, holds)
}

// A row is never older than what was said of it: absent, it says what was collected.
func atLeast(d *Journal, key string, stamp journal.Stamp) error {
	rows, err := d.Load(context.Background(), key)
	if err != nil {
		return err
	}
	is := rows[0].Stamp
	for _, v := range rows[0].Siblings {
		if is.Less(v.Stamp) {
			is = v.Stamp
		}
	}
	if is.Time < stamp.Time {
		return fmt.Errorf("%s has %+v, and %+v was there", key, rows[0], stamp)
	}
	largest, err := d.Largest(context.Background())
	if err == nil && largest < stamp.Time {
		err = fmt.Errorf("%d is said to be the largest time, and %d was there", largest, stamp.Time)
	}
	return err
}

// journaled wants a write in the journal unless it was truncated.
func journaled(d *Journal, dot journal.Dot) error {
	left, truncated, err := d.Entries(context.Background(), dot.Incarnation, dot.N-1, 1)
	if err == nil && dot.N > truncated && (len(left) == 0 || left[0].N != dot.N || string(left[0].Body) != fmt.Sprint("body ", dot.N)) {
		err = fmt.Errorf("the journal has %+v, and %+v was written", left, dot)
	}
	return err
}

// server is one incarnation after the other of a server: each writes two keys at once, has its journal release, and is fenced.
func (c *causalCrasher) server(all spaces, d func(spaces) *Journal, id uint32, rnd *rand.Rand) {
	ctx, here, beside := context.Background(), d(all), d(all) == all.beside
	a, b := fmt.Sprint("a", id), fmt.Sprint("b", id)
	var over []journal.Dot
	time := uint64(0)
	for incarnation := id; incarnation < id+30; incarnation += 10 {
		name := journal.NewName()
		c.note(here.Begin(ctx, incarnation, name), func(all spaces) error {
			if err := d(all).Begin(ctx, incarnation, journal.NewName()); !errors.Is(err, journal.ErrBegun) {
				return fmt.Errorf("incarnation %d begins again: %v", incarnation, err)
			}
			return nil
		})
		for n := uint64(1); n <= 8; n++ {
			time += uint64(1 + rnd.IntN(3))
			w := journal.Write{Dot: journal.Dot{Incarnation: incarnation, N: n}, Stamp: journal.Stamp{Time: time, Incarnation: incarnation}, Body: []byte(fmt.Sprint("body ", n))}
			for _, key := range []string{a, b} {
				w.Muts = append(w.Muts, journal.Mutation{Key: key, Value: []byte(fmt.Sprint(incarnation, " ", n)), Delete: rnd.IntN(4) == 0, Supersedes: over})
			}
			if beside {
				over = []journal.Dot{w.Dot}
			}
			c.note(here.Persist(ctx, w), func(all spaces) error {
				return errors.Join(journaled(d(all), w.Dot), atLeast(d(all), a, w.Stamp), atLeast(d(all), b, w.Stamp))
			})
			if rnd.IntN(6) == 0 { // a crash may undo both
				c.note(errors.Join(here.Truncate(ctx, incarnation, n-1), here.CollectTombstones(ctx, time/2)), func(spaces) error { return nil })
			}
		}
		c.note(here.Fence(ctx, incarnation), func(all spaces) error {
			err := d(all).Persist(ctx, journal.Write{Dot: journal.Dot{Incarnation: incarnation, N: 99}, Stamp: journal.Stamp{Time: 1, Incarnation: incarnation}})
			if !errors.Is(err, journal.ErrFenced) {
				return fmt.Errorf("incarnation %d goes on: %v", incarnation, err)
			}
			return nil
		})
	}
}

// merger merges batches, in one term after the other.
func (c *causalCrasher) merger(all spaces, rnd *rand.Rand) {
	ctx, time := context.Background(), uint64(0)
	for term := uint64(1); term <= 4; term++ {
		_, err := all.merged.Claim(ctx, term)
		c.note(err, func(all spaces) error {
			if _, err := all.merged.Claim(ctx, term-1); !errors.Is(err, journal.ErrFenced) {
				return fmt.Errorf("a term before %d claims: %v", term, err)
			}
			return nil
		})
		for n := range uint64(5) {
			time++
			f := journal.Flush{Term: term, Number: n + 1, Mark: []byte(fmt.Sprintf("%03d", time))}
			for _, key := range []string{"a", "b"} {
				f.Rows = append(f.Rows, journal.Keyed{Key: key, Row: journal.Row{Exists: rnd.IntN(4) > 0, Value: f.Mark, Stamp: journal.Stamp{Time: time, Incarnation: 1}, Dot: journal.Dot{Incarnation: 1, N: time}}})
			}
			mark, stamp := string(f.Mark), f.Rows[0].Row.Stamp
			c.note(all.merged.Merge(ctx, f), func(all spaces) error {
				m, err := all.merged.merged()
				if err == nil && string(m.mark) < mark {
					err = fmt.Errorf("the mark is %q, and %q was merged", m.mark, mark)
				}
				return errors.Join(err, atLeast(all.merged, "a", stamp), atLeast(all.merged, "b", stamp))
			})
		}
	}
}

// logger writes the logs of incarnations, each of which is given back and removed.
func (c *causalCrasher) logger(all spaces) {
	ctx := context.Background()
	for incarnation := uint32(1); incarnation <= 3; incarnation++ {
		c.note(all.log.Begin(ctx, incarnation, journal.NewName()), func(spaces) error { return nil })
		for n := uint64(1); n <= 8; n++ {
			w := journal.Write{Dot: journal.Dot{Incarnation: incarnation, N: n}, Stamp: journal.Stamp{Time: n, Incarnation: incarnation}, Body: []byte(fmt.Sprint("body ", n))}
			c.note(all.log.Persist(ctx, w), func(all spaces) error {
				if incarnations, err := all.log.Incarnations(ctx); err != nil || !slices.Contains(incarnations, incarnation) && incarnation < 3 { // it was removed
					return err
				}
				return journaled(all.log, w.Dot)
			})
		}
		if incarnation < 3 {
			c.note(errors.Join(all.log.Fence(ctx, incarnation), all.log.Remove(ctx, incarnation)), func(all spaces) error {
				incarnations, err := all.log.Incarnations(ctx)
				if err == nil && slices.Contains(incarnations, incarnation) {
					err = fmt.Errorf("the log of incarnation %d is back", incarnation)
				}
				return err
			})
		}
	}
}

// whole wants what was committed at once to be there at once, whether it was acknowledged or not.
func (c *causalCrasher) whole(all spaces) {
	pairs := []struct {
		d    *Journal
		a, b string
	}{{all.rows, "a1", "b1"}, {all.rows, "a2", "b2"}, {all.beside, "a1", "b1"}, {all.merged, "a", "b"}}
	for _, p := range pairs {
		rows, err := p.d.Load(context.Background(), p.a, p.b)
		if err != nil {
			c.t.Fatal(err)
		}
		dots := func(r journal.Row) (out []journal.Dot) {
			for _, v := range r.Siblings {
				out = append(out, v.Dot)
			}
			return append(out, r.Dot)
		}
		one, other := dots(rows[0]), dots(rows[1])
		for i, dot := range one {
			none := journal.Dot{}
			if len(one) != len(other) || dot != none && other[i] != none && dot != other[i] { // a tombstone may be collected
				c.t.Errorf("%s is of %v, and %s of %v", p.a, one, p.b, other)
				break
			}
			if dot != none && p.d != all.merged {
				if err := journaled(p.d, dot); err != nil {
					c.t.Errorf("%s is of a write without its entry: %v", p.a, err)
				}
			}
		}
		if p.d != all.merged {
			c.entries(p.d, p.a, p.b)
		}
	}
	if m, err := all.merged.merged(); err == nil && m.mark != nil {
		if err := atLeast(all.merged, "a", journal.Stamp{Time: func() (n uint64) { _, _ = fmt.Sscan(string(m.mark), &n); return n }()}); err != nil {
			c.t.Errorf("the mark is %q: %v", m.mark, err)
		}
	}
}

// entries wants the rows to have what the journal has, of the server that writes two keys.
func (c *causalCrasher) entries(d *Journal, a, b string) {
	var id uint32
	_, _ = fmt.Sscanf(a, "a%d", &id)
	for incarnation := id; incarnation < id+30; incarnation += 10 {
		left, _, err := d.Entries(context.Background(), incarnation, 0, 100)
		if err != nil && !errors.Is(err, journal.ErrFenced) {
			c.t.Fatal(err)
		}
		for _, e := range left {
			time, _, err := d.entry(d.entryKey(incarnation, e.N))
			stamp := journal.Stamp{Time: time, Incarnation: incarnation}
			if err = errors.Join(err, atLeast(d, a, stamp), atLeast(d, b, stamp)); err != nil {
				c.t.Errorf("a write has its entry, and not its rows: %v", err)
			}
		}
	}
}

// At whichever sync the machine crashes: what causal spaces have acknowledged is there, rows, journals, logs, how far
// merging has come, and which incarnations and terms are over. What was committed at once is there at once or not at all.
func TestCausalCrashAtEverySync(t *testing.T) {
	crashed, every := 0, 1
	if testing.Short() {
		every = 4
	}
	for at := 1; at <= 160; at += every {
		c := &causalCrasher{t: t, mem: vfs.NewCrashableMem(), rnd: rand.New(rand.NewPCG(uint64(at), 9)), at: at}
		dir := t.TempDir()
		opt := Options{Sweep: time.Hour, Free: func(string) (uint64, error) { return 1 << 40, nil }}
		opt.fs = &watched{c.mem, c.synced}
		s, err := Open(dir, opt)
		if err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		c.opened = true
		c.mu.Unlock()
		all := spacesOf(t, s)
		var wg sync.WaitGroup
		for id := range uint32(2) {
			wg.Go(func() {
				c.server(all, func(s spaces) *Journal { return s.rows }, id+1, rand.New(rand.NewPCG(uint64(at), uint64(id))))
			})
		}
		wg.Go(func() {
			c.server(all, func(s spaces) *Journal { return s.beside }, 1, rand.New(rand.NewPCG(uint64(at), 7)))
		})
		wg.Go(func() { c.merger(all, rand.New(rand.NewPCG(uint64(at), 8))) })
		wg.Go(func() { c.logger(all) })
		wg.Wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if c.disk == nil {
			continue // it has fewer syncs
		}
		crashed++
		opt.fs = c.disk
		again, err := Open(dir, opt)
		if errors.Is(err, ErrDamaged) && c.early { // see TestCrashAtEverySync
			continue
		}
		if err != nil {
			t.Fatalf("after a crash at sync %d: %v", at, err)
		}
		all = spacesOf(t, again)
		c.whole(all)
		for i, holds := range c.told[:c.then] {
			if err := holds(all); err != nil {
				t.Errorf("promise %d: %v", i, err)
			}
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Fatalf("after a crash at sync %d, with %d promises", at, c.then)
		}
	}
	if crashed < 80/every {
		t.Errorf("only %d crashes", crashed)
	}
}
