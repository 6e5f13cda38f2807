package linear

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/maypok86/otter/v2/stats"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/store/memory"
	"github.com/freshet-cache/freshet/ticks"
)

// slowLookups makes every look-up that finds an entry take some time: the map reports
// the hit while the look-up is under way.
type slowLookups struct {
	stats.NoopRecorder
	takes time.Duration
}

func (s *slowLookups) RecordHits(int) { time.Sleep(s.takes) }

// A lease may end while an entry is being looked up, and another node may write then. So
// the time that the lease is compared with must be read after the look-up: whoever reads
// it before serves what the next owner has replaced.
func TestClockIsReadAfterTheLookUp(t *testing.T) {
	const length = time.Second
	for name, served := range map[string]func(c *Cache[string]) bool{
		"Get": func(c *Cache[string]) bool { // the store has nothing, so what is found is from memory
			_, ok, err := c.Get(context.Background(), "k")
			return ok || err != nil
		},
		"GetEntry": func(c *Cache[string]) bool {
			e, err := c.GetEntry(context.Background(), "k")
			return e.Hit || err != nil
		},
		"Peek": func(c *Cache[string]) bool { _, ok := c.Peek("k"); return ok },
		"Hits": func(c *Cache[string]) bool { return c.Hits([]string{"k"}, make([]Entry[string], 1)) != 0 },
		"VersionEntry": func(c *Cache[string]) bool {
			e, err := c.VersionEntry(context.Background(), "k")
			return e.Hit || err != nil
		},
	} {
		for takes, want := range map[time.Duration]bool{length - 1: true, length: false} {
			synctest.Test(t, func(t *testing.T) {
				lookups := &slowLookups{}
				c := openAt(t, &otter.Options[string, entry[string]]{StatsRecorder: lookups})
				h := shard.NewHandle(lease.Lease{Gen: 1}, c.opt.Clock, c.opt.Clock.Now()+ticks.Tick(length))
				c.kept.Set("k", entry[string]{value: "v", version: 2, validity: newValidity(h)})
				lookups.takes = takes
				if got := served(c); got != want {
					t.Errorf("%s: after a look-up of %v, under a lease of %v, it serves from memory: %v", name, takes, length, got)
				}
				lookups.takes = 0
			})
		}
	}
}

// openAt is a cache that owns nothing yet, over the given map.
func openAt(t *testing.T, opt *otter.Options[string, entry[string]]) *Cache[string] {
	t.Helper()
	c := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String(), Peers: hooks{}})
	c.kept.StopAllGoroutines()
	c.kept = otter.Must(opt)
	c.entries = c.kept
	return c
}

// What is kept under a lease whose slice was cut or joined goes on under the lease that
// followed: exactly as long as that one holds, its own TTL lasts, and the key lies in its
// part. It is so before the entries are moved there, and afterwards.
func TestWhatOutlivesItsLease(t *testing.T) {
	const first, second, third, ttl = 10 * time.Second, 20 * time.Second, 30 * time.Second, 25 * time.Second
	for _, moved := range []bool{false, true} {
		for _, c := range []struct {
			key  string
			ttl  time.Duration
			last time.Duration // it is served until then
		}{
			{"a", 0, first},    // no lease follows for it
			{"b", 0, second},   // its part
			{"bz", 0, second},  // its end
			{"c", 0, first},    // outside of it, and of the next one
			{"d", 0, third},    // a part of another, which was cut again
			{"d", ttl, ttl},    // whose own TTL is shorter than the lease
			{"b", ttl, second}, // or longer
			{"a", 5 * time.Second, 5 * time.Second},
		} {
			synctest.Test(t, func(t *testing.T) {
				cache := openAt(t, &otter.Options[string, entry[string]]{})
				start := cache.opt.Clock.Now()
				under := func(gen lease.Gen, low, high string, length time.Duration) *validity {
					h := shard.NewHandle(lease.Lease{Range: lease.Range{Low: low, High: high}, Gen: gen}, cache.opt.Clock, start+ticks.Tick(length))
					cache.validities[gen] = newValidity(h)
					return cache.validities[gen]
				}
				r := under(1, "", "", first)
				under(2, "b", "c", second)
				under(3, "d", "", first)
				under(4, "d", "e", third)
				e := entry[string]{value: "v", version: 2, validity: r}
				if c.ttl != 0 {
					e.validity = r.before(start + ticks.Tick(c.ttl))
				}
				cache.kept.Set(c.key, e)
				cache.retags = true // nobody moves entries but the test
				for _, next := range []clink.Retag{{Old: 1, New: 2, Range: lease.Range{Low: "b", High: "c"}}, {Old: 1, New: 3, Range: lease.Range{Low: "d"}},
					{Old: 3, New: 4, Range: lease.Range{Low: "d", High: "e"}}} {
					cache.transfer(next)
				}
				if moved {
					cache.retag()
				}
				for _, ahead := range []time.Duration{c.last - 1, c.last} {
					time.Sleep(time.Duration(start) + ahead - time.Duration(cache.opt.Clock.Now()))
					_, served := cache.Peek(c.key)
					if hits := cache.Hits([]string{c.key}, make([]Entry[string], 1)); served != (ahead < c.last) || hits == 1 != served {
						t.Errorf("%s with ttl %v, moved %v: served at %v: %v, %d hits", c.key, c.ttl, moved, ahead, served, hits)
					}
					if e, err := cache.VersionEntry(t.Context(), c.key); err == nil && e.Hit != served {
						t.Errorf("%s with ttl %v, moved %v: its version is served at %v: %v", c.key, c.ttl, moved, ahead, e.Hit)
					}
				}
			})
		}
	}
}

// A slice that is handed over takes along what is in memory of the part that moves, of
// this lease, and for ever: what expires stays behind, and so does what another lease holds.
func TestWhatIsOffered(t *testing.T) {
	var got []moved
	cache := openAt(t, &otter.Options[string, entry[string]]{})
	cache.opt.Peers = hooks{offer: func(_ context.Context, next string, after lease.Gen, batch []moved) {
		if next != "n2" || after != 7 {
			t.Errorf("offered to %s, after generation %d", next, after)
		}
		got = append(got, batch...)
	}}
	now := cache.opt.Clock.Now()
	h, other := shard.NewHandle(lease.Lease{Gen: 7}, cache.opt.Clock, now), shard.NewHandle(lease.Lease{Gen: 6}, cache.opt.Clock, now)
	r, before := newValidity(h), newValidity(other)
	for key, e := range map[string]entry[string]{
		"a":  {value: "before the part", version: 2, validity: r},
		"b":  {value: "v", version: 2, validity: r},
		"b1": {version: 4 | gone, validity: r},
		"b2": {value: "expires", version: 6, validity: r.before(now + 1e12)},
		"b3": {value: "another lease", version: 8, validity: before},
		"c":  {value: "behind the part", version: 2, validity: r},
	} {
		cache.kept.Set(key, e)
	}
	cache.handedOver(h, lease.Range{Low: "b", High: "c"}, 7, "n2")
	if err := cache.offersDone(t.Context()); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, func(a, b moved) int { return strings.Compare(a.Key, b.Key) })
	want := []moved{{Key: "b", Value: []byte("v"), Exists: true, Version: 2}, {Key: "b1", Version: 4}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("offered %+v, want %+v", got, want)
	}
}
