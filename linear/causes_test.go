package linear

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/clock"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/store/memory"
	"github.com/freshet-cache/freshet/ticks"
)

// A miss says why it was one, for every cause there is and up to the instant at which the
// cause begins: operators size the memory, and look for lost leases, by these counts.
func TestMissesSayWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := &causes{}
		var during func()
		st := memory.New(memory.Options{Before: func(_ context.Context, c memory.Call) error {
			if during != nil && c.Op == memory.OpCommit {
				during()
			}
			return nil
		}})
		c := open(t, Options[string]{Store: st, Codec: String(), Recorder: rec, Peers: hooks{}})
		const leased = time.Hour
		start := c.opt.Clock.Now()
		c.acquired(shard.NewHandle(lease.Lease{Gen: 1}, c.opt.Clock, start+ticks.Tick(leased)), 0)
		synctest.Wait()
		until := func(at ticks.Tick) { time.Sleep(time.Duration(at - c.opt.Clock.Now())) }
		get := func(key string, want map[MissCause]int) {
			t.Helper()
			rec.of = [MissCauses]int{}
			if _, _, err := c.Get(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			got := map[MissCause]int{}
			for why, n := range rec.of {
				if n > 0 {
					got[MissCause(why)] = n
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("%s: misses by cause are %v, want %v", key, got, want)
			}
		}
		put := func(key string, ttl time.Duration) {
			t.Helper()
			if _, err := c.SetTTL(t.Context(), key, "v", ttl); err != nil {
				t.Fatal(err)
			}
		}
		get("k", map[MissCause]int{Absent: 1})
		get("k", map[MissCause]int{})
		put("k", 0)
		get("k", map[MissCause]int{})
		during = func() { // a write is under way, and has dropped what was kept
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			rec.of = [MissCauses]int{}
			_, _, _ = c.Get(ctx, "k")
			if rec.of[Invalidated] != 1 {
				t.Errorf("while it is written: %v", rec.of)
			}
		}
		put("k", 0)
		during = nil
		put("short", time.Minute)
		e, _ := c.kept.GetIfPresent("short")
		until(e.validity.until - 1)
		get("short", map[MissCause]int{})
		until(e.validity.until)
		get("short", map[MissCause]int{Expired: 1})
		put("lives on", 2*leased)
		until(start + ticks.Tick(leased) - 1)
		get("k", map[MissCause]int{})
		until(start + ticks.Tick(leased))
		get("k", map[MissCause]int{Invalid: 1})
		get("lives on", map[MissCause]int{Invalid: 1})
	})
}

// What had to make room says so when it is missed, and is counted.
func TestEvictionsSaySo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := &causes{}
		c := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String(), Recorder: rec, MaxBytes: 160})
		synctest.Wait()
		slot := func(key string) uint64 { return maphash.String(c.fates.seed, key) / 8 % uint64(len(c.fates.slots)) }
		keys := []string{"first"}
		for i := 0; len(keys) < 2; i++ {
			if k := fmt.Sprint("second", i); slot(k) != slot(keys[0]) { // a key may make another's cause be forgotten
				keys = append(keys, k)
			}
		}
		for _, k := range keys {
			if err := c.Set(t.Context(), k, "v"); err != nil {
				t.Fatal(err)
			}
		}
		c.kept.CleanUp()
		synctest.Wait()
		if c.Len() != 1 || c.Evictions() != 1 || c.Bytes() <= 0 || c.Bytes() > 160 {
			t.Fatalf("%d entries of %d bytes fit into 160, %d were evicted", c.Len(), c.Bytes(), c.Evictions())
		}
		for _, k := range keys {
			if _, ok := c.Peek(k); ok {
				continue
			}
			if _, _, err := c.Get(t.Context(), k); err != nil || rec.of != [MissCauses]int{Evicted: 1} {
				t.Errorf("%s: %v, %v", k, rec.of, err)
			}
			break
		}
	})
}

// Causes are remembered in little memory: a key may make another's be forgotten, and is
// never given another's.
func TestCausesOfOtherKeys(t *testing.T) {
	f := fates{seed: maphash.MakeSeed()}
	slot := func(key string) uint64 { return maphash.String(f.seed, key) / 8 % uint64(len(f.slots)) }
	other := "other"
	for i := 0; slot(other) != slot("k"); i++ {
		other = fmt.Sprint("other", i)
	}
	for _, why := range []MissCause{Evicted, Invalidated} {
		f.note("k", why)
		if a, b := f.why("k"), f.why(other); a != why || b != Absent {
			t.Errorf("%v is remembered as %v, and of another key as %v", why, a, b)
		}
	}
	f.note(other, Evicted)
	if a, b := f.why("k"), f.why(other); a != Absent || b != Evicted {
		t.Errorf("of the key that made room %v is remembered, of the other %v", a, b)
	}
}

// The assigner is told of a load that is near the truth: hits of all kinds are sampled one
// in 64, by the clock, and writes one in 64 by their count; more samples than are kept are
// counted all the same.
func TestLoadsAreNearTheTruth(t *testing.T) {
	hits := map[string]func(c *Cache[string]) bool{
		"Get":      func(c *Cache[string]) bool { _, ok, err := c.Get(context.Background(), "k5"); return ok && err == nil },
		"GetEntry": func(c *Cache[string]) bool { e, _ := c.GetEntry(context.Background(), "k5"); return e.Hit },
		"Version":  func(c *Cache[string]) bool { e, _ := c.VersionEntry(context.Background(), "k5"); return e.Hit },
		"Peek":     func(c *Cache[string]) bool { _, ok := c.Peek("k5"); return ok },
		"Hits":     func(c *Cache[string]) bool { return c.Hits([]string{"k5"}, make([]Entry[string], 1)) == 1 },
	}
	for name, hit := range hits {
		for _, times := range []int{1, 2048, 3000} {
			synctest.Test(t, func(t *testing.T) {
				c := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String(), Peers: hooks{}})
				low := shard.NewHandle(lease.Lease{Gen: 4, Range: lease.Range{Low: "a", High: "k5"}}, c.opt.Clock, 1<<62)
				high := shard.NewHandle(lease.Lease{Gen: 9, Range: lease.Range{Low: "k5", High: "z"}}, c.opt.Clock, 1<<62)
				c.acquired(low, 0)
				c.acquired(high, 0)
				synctest.Wait()
				for _, k := range []string{"b", "k5"} {
					if err := c.Set(t.Context(), k, "v"); err != nil {
						t.Fatal(err)
					}
				}
				for c.opt.Clock.Now()%sampleEvery != 0 {
					time.Sleep(time.Nanosecond)
				}
				c.sliceLoads() // what was before does not count
				for range times {
					if !hit(c) {
						t.Fatal("no hit")
					}
				}
				time.Sleep(time.Nanosecond)
				for range 100 { // not the instants that are sampled
					hit(c)
				}
				time.Sleep(time.Duration(sampleSpan) - 2)
				if l := c.sliceLoads(); l != nil {
					t.Errorf("%s: after a moment, %v", name, l)
				}
				time.Sleep(time.Nanosecond)
				got, want := c.sliceLoads(), uint64(times*sampleEvery*2) // in half a second
				if len(got) != 2 || got[0].Gen != 9 || got[1].Gen != 4 || got[1].Rate != 0 || len(got[1].Hot)+len(got[1].Sample) != 0 {
					t.Fatalf("%s: %+v", name, got)
				}
				near := func(n uint64) bool { return n <= want && want-n <= want/100 }
				if l := got[0]; !near(l.Rate) || len(l.Hot) != 1 || l.Hot[0].Key != "k5" || !near(l.Hot[0].Rate) || len(l.Sample) != min(times, 64) {
					t.Errorf("%s: %d samples are the load %+v, want %d", name, times, l, want)
				}
				time.Sleep(time.Duration(sampleSpan))
				if l := c.sliceLoads(); len(l) != 2 || l[0].Rate != 0 {
					t.Errorf("%s: when nothing is asked any more, %v", name, l)
				}
			})
		}
	}
}

// Writes, and reads that are not hits, are sampled one in 64 by their count. One reading of
// the clock samples one of many hits.
func TestSlowOperationsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String()})
		synctest.Wait()
		rate := func(what string, want uint64, do func(i int)) {
			t.Helper()
			time.Sleep(time.Duration(sampleSpan))
			c.sliceLoads()
			for i := range 2 * sampleEvery {
				do(i)
			}
			time.Sleep(time.Duration(sampleSpan))
			l := c.sliceLoads()
			if len(l) != 1 || l[0].Rate > want || want-l[0].Rate > want/100 {
				t.Errorf("%s are the load %+v, want %d", what, l, want)
			}
		}
		check := func(err error) {
			if err != nil {
				t.Error(err)
			}
		}
		rate("puts", 256, func(i int) { check(c.Set(t.Context(), fmt.Sprint("k", i), "v")) })
		rate("puts of two keys", 512, func(i int) { check(c.SetAll(t.Context(), map[string]string{"a": "v", "b": "v"})) })
		rate("updates", 256, func(i int) {
			_, err := c.Update(t.Context(), []string{"a"}, func(*Tx[string]) error { return nil })
			check(err)
		})
		rate("misses", 256, func(i int) { _, _, err := c.Get(t.Context(), fmt.Sprint("absent", i)); check(err) })
		keys := make([]string, 70)
		for i := range keys {
			keys[i] = fmt.Sprint("k", i)
		}
		time.Sleep(time.Duration(sampleSpan))
		c.sliceLoads()
		for offset := range ticks.Tick(sampleEvery) { // the instant says which of the first keys is sampled
			for c.opt.Clock.Now()%sampleEvery != offset {
				time.Sleep(time.Nanosecond)
			}
			if n := c.Hits(keys[:batch], make([]Entry[string], batch)); n != batch {
				t.Fatalf("%d hits", n)
			}
		}
		time.Sleep(time.Duration(sampleSpan))
		if l := c.sliceLoads(); len(l[0].Sample) != batch || len(l[0].Hot) != 4 {
			t.Errorf("%d of %d hits are sampled: %+v", len(l[0].Sample), batch*sampleEvery, l[0])
		}
	})
}

// A key that two leases hold, one of which is about to end, is counted once, for the later one.
// Few operations are all in the sample.
func TestSpreadCountsOnce(t *testing.T) {
	var handles []*shard.Handle
	for i, r := range []lease.Range{{Low: "k"}, {Low: "a"}, {}} {
		handles = append(handles, shard.NewHandle(lease.Lease{Gen: lease.Gen(9 - i), Range: r}, clock.Clock{}, 1<<62))
	}
	loads := spread(handles, []string{"", "b", "k", "l", "m"}, 10)
	for i, want := range [][]string{{"k", "l", "m"}, {"b"}, {""}} {
		if l := loads[i]; l.Gen != handles[i].Gen || !slices.Equal(l.Sample, want) || l.Rate != uint64(10*len(want)) || len(l.Hot) != len(want) {
			t.Errorf("lease %d has the load %+v, want %q", handles[i].Gen, l, want)
		}
	}
}
