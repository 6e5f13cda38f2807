package baseline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/memory"
)

const testKeys = 5

func key(i int) string { return fmt.Sprint("k", i) }

// filled are rows of version 1.
func filled(t *testing.T, m *Memory) *Memory {
	t.Helper()
	for i := range testKeys {
		if _, err := m.Set(t.Context(), key(i), "first"); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// storm reads and writes through all instances at once and returns what the judge
// found, and how many reads were hits.
func storm(t *testing.T, first uint64, instances ...System) (stale, hits int) {
	t.Helper()
	j := NewJudge(testKeys, first)
	var wg sync.WaitGroup
	var served atomic.Int64
	for g := range 8 {
		s := instances[g%len(instances)]
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for n := range 2000 {
				i := r.IntN(testKeys - 1)
				if r.IntN(10) == 0 {
					v, err := s.Set(t.Context(), key(i), fmt.Sprint(g, n))
					if errors.Is(err, ErrLate) { // nothing was written: bounds are short here
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					j.Acknowledged(i, v)
					continue
				}
				floors := []uint64{j.Floor(i), j.Floor(i + 1)}
				out := make([]Reading, 2)
				if err := s.Get(t.Context(), []string{key(i), key(i + 1)}, out); err != nil {
					t.Error(err)
					return
				}
				for at, o := range out {
					j.Read(floors[at], o.Version)
					if o.Hit {
						served.Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	for _, s := range instances {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	reads, stale := j.Counts()
	if reads == 0 {
		t.Error("nothing was judged")
	}
	return stale, int(served.Load())
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// What promises fresh reads has no stale ones, with several instances too.
func TestNoReadIsStale(t *testing.T) {
	now := func() int64 { return time.Now().UnixNano() }
	rows := func() *Memory { return filled(t, &Memory{}) }
	service, versioned, dated := &Local{}, rows(), rows()
	st := memory.New(memory.Options{})
	var first uint64
	for i := range testKeys {
		s, err := st.Commit(t.Context(), store.ID{byte(i), 1}, []store.Mutation{{Key: key(i), Value: []byte("first")}})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 { // versions are counted over all keys
			first = uint64(s[0].Version)
		}
	}
	for name, c := range map[string]struct {
		instances []System
		hits      bool
	}{
		"storage": {[]System{Storage{rows()}}, false},
		"version": {[]System{must(NewVersion(versioned, 1<<20)), must(NewVersion(versioned, 1<<20))}, true},
		"chrono": {[]System{&Chrono{Rows: dated, Service: service, Ahead: 20 * time.Microsecond, Now: now},
			&Chrono{Rows: dated, Service: service, Ahead: 20 * time.Microsecond, Now: now}}, true},
		"freshet": {[]System{Freshet{must(linear.New(linear.Options[string]{Store: st, Codec: linear.String()}))}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			from := uint64(1)
			if name == "freshet" {
				from = first
			}
			if stale, hits := storm(t, from, c.instances...); stale != 0 || c.hits != (hits > 0) {
				t.Errorf("%d stale reads, %d hits", stale, hits)
			}
		})
	}
}

// deaf is a service of Chrono's that forgets bounds.
type deaf struct{ Local }

func (*deaf) Raise(_ context.Context, _ string, bound int64) (bool, int64, error) {
	return true, bound, nil
}

// The judge finds what is stale: instances that know nothing of each other's writes,
// and Chrono without its bounds.
func TestStaleReadsAreCaught(t *testing.T) {
	shared := filled(t, &Memory{})
	for name, instances := range map[string][]System{
		"ttl":    {must(NewTTL(shared, 1<<20, time.Hour)), must(NewTTL(shared, 1<<20, time.Hour))},
		"chrono": {&Chrono{Rows: shared, Service: &deaf{}, Ahead: time.Hour, Now: func() int64 { return time.Now().UnixNano() }}},
	} {
		first := must(shared.Load(t.Context(), []string{key(0)}, nil))[0].Version
		if stale, _ := storm(t, min(first, 1), instances...); stale == 0 {
			t.Errorf("%s: no stale read was found", name)
		}
	}
}

func TestJudge(t *testing.T) {
	j := NewJudge(2, 7)
	before := j.Floor(0)
	j.Acknowledged(0, 9)
	j.Acknowledged(0, 8) // acknowledged late: it does not lower what is known
	for _, c := range []struct {
		floor, version uint64
		stale          bool
	}{
		{before, 7, false}, {before, 9, false}, // overlaps both writes: either is right
		{j.Floor(0), 7, true}, {j.Floor(0), 8, true}, {j.Floor(0), 9, false}, {j.Floor(0), 10, false},
		{j.Floor(1), 7, false}, {j.Floor(1), 0, true},
	} {
		if got := j.Read(c.floor, c.version); got != c.stale {
			t.Errorf("floor %d, version %d: stale is %v", c.floor, c.version, got)
		}
	}
	if reads, stale := j.Counts(); reads != 8 || stale != 3 {
		t.Error(reads, stale)
	}
}

func get(t *testing.T, s System, k string) Reading {
	t.Helper()
	out := make([]Reading, 1)
	if err := s.Get(t.Context(), []string{k}, out); err != nil {
		t.Fatal(err)
	}
	return out[0]
}

func put(t *testing.T, s System, k, v string) {
	t.Helper()
	if _, err := s.Set(t.Context(), k, v); err != nil {
		t.Fatal(err)
	}
}

// A write keeps its key from the cache until the bound is over, and no other key.
func TestChronoBlocksAfterAWrite(t *testing.T) {
	now := int64(1000)
	clock := func() int64 { return now }
	s := &Chrono{Rows: filled(t, &Memory{Clock: clock}), Service: &Local{}, Ahead: 50, Now: clock}
	want := func(k, value string, hit bool) {
		t.Helper()
		if r := get(t, s, k); r.Value != value || r.Hit != hit {
			t.Errorf("at %d: %s is %q, a hit: %v", now, k, r.Value, r.Hit)
		}
	}
	want("k0", "first", false)
	want("k0", "first", true)
	want("k1", "first", false)
	put(t, s, "k0", "second")
	for _, now = range []int64{1001, 1049, 1050} {
		want("k0", "second", false)
		want("k1", "first", true)
	}
	now = 1051
	want("k0", "second", false) // the first read behind the bound
	want("k0", "second", true)
}

// A bound that is taken is not accepted again, and a commit that comes too late is
// tried under a later one.
func TestChronoProposesAgain(t *testing.T) {
	now := int64(1000)
	service := &Local{}
	late := int64(0)
	s := &Chrono{Rows: filled(t, &Memory{Clock: func() int64 { now += late; return now }}), Service: service, Ahead: 10, Now: func() int64 { return now }}
	if ok, _, _ := service.Raise(t.Context(), "k0", 1010); !ok {
		t.Fatal("a first bound is refused")
	}
	put(t, s, "k0", "second")
	if _, b, _ := service.Raise(t.Context(), "k0", 0); b != 1011 {
		t.Error("the bound is", b)
	}
	late = 20 // every commit is later than its bound
	if _, err := s.Set(t.Context(), "k0", "third"); !errors.Is(err, ErrLate) {
		t.Error(err)
	}
	if r := get(t, s, "k0"); r.Value != "second" {
		t.Error("a late write took effect:", r)
	}
}

// Version serves its own bytes only while they are the store's.
func TestVersionAsksTheStore(t *testing.T) {
	rows := filled(t, &Memory{})
	s := must(NewVersion(rows, 1<<20))
	defer s.Close()
	for i, want := range []bool{false, true, true} {
		if r := get(t, s, "k0"); r.Hit != want {
			t.Errorf("read %d is a hit: %v", i, r.Hit)
		}
	}
	_ = must(rows.Set(t.Context(), "k0", "by somebody else"))
	if r := get(t, s, "k0"); r.Hit || r.Value != "by somebody else" {
		t.Error(r)
	}
}

// TTL sees its own writes, and others' not.
func TestTTLServesWhatItHas(t *testing.T) {
	rows := filled(t, &Memory{})
	s := must(NewTTL(rows, 1<<20, time.Hour))
	defer s.Close()
	_ = get(t, s, "k0")
	_ = must(rows.Set(t.Context(), "k0", "by somebody else"))
	if r := get(t, s, "k0"); !r.Hit || r.Value != "first" {
		t.Error(r)
	}
	put(t, s, "k0", "own")
	if r := get(t, s, "k0"); !r.Hit || r.Value != "own" || r.Version != 3 {
		t.Error(r)
	}
	brief := must(NewTTL(rows, 1<<20, time.Nanosecond))
	defer brief.Close()
	for range 2 {
		if r := get(t, brief, "k0"); r.Hit {
			t.Error("what has expired is served")
		}
	}
}

func TestKeysThatDoNotExist(t *testing.T) {
	for _, s := range []System{Storage{&Memory{}}, must(NewTTL(&Memory{}, 1, 0)), &Chrono{Rows: &Memory{}, Service: &Local{}, Now: func() int64 { return 1 }},
		Freshet{must(linear.New(linear.Options[string]{Store: memory.New(memory.Options{}), Codec: linear.String()}))}} {
		if err := s.Get(t.Context(), []string{"none"}, make([]Reading, 1)); !errors.Is(err, errAbsent) {
			t.Errorf("%T: %v", s, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
