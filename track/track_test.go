package track

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// told is who is to be told of what, for people.
func told(k *Ticket[string]) string {
	if k == nil {
		return ""
	}
	var out []string
	for _, who := range slices.Sorted(maps.Keys(k.Tell)) {
		keys := slices.Clone(k.Tell[who])
		slices.Sort(keys)
		out = append(out, who+":"+strings.Join(keys, ","))
	}
	return strings.Join(out, " ")
}

func want(t *testing.T, k *Ticket[string], who string) {
	t.Helper()
	if got := told(k); got != who {
		t.Errorf("told %q, want %q", got, who)
	}
	if k != nil {
		k.Wait(t.Context())
		k.Done()
	}
}

func TestReadersAreToldOnce(t *testing.T) {
	var busy atomic.Int64
	x := New[string](Options[string]{Busy: &busy})
	want(t, x.Take("k"), "")
	x.Add("k", "ann", nil)
	x.Add("k", "ann", nil)
	x.Add("k", "bob", nil)
	x.Add("l", "bob", nil)
	want(t, x.Take("k", "l", "m", "k"), "ann:k bob:k,l")
	if k := x.Take("k", "l"); k != nil {
		t.Errorf("they are told again: %v", k)
	}
	if busy.Load() != 0 {
		t.Errorf("an empty table is busy with %d", busy.Load())
	}
}

func TestWhoWritesAndReadsStays(t *testing.T) {
	x := New[string](Options[string]{})
	x.Add("k", "ann", 1)
	x.Add("k", "bob", 1)
	x.Add("l", "bob", 1)
	want(t, x.TakeBut("ann", "k", "l"), "ann:k bob:k,l")
	want(t, x.TakeBut("", "k", "l"), "ann:k")
	if x.Take("k") != nil || x.readers != 0 {
		t.Errorf("%d readers are left", x.readers)
	}
}

// The second of two writers must not be answered before the readers that the first
// one took have been told.
func TestALaterWriterWaits(t *testing.T) {
	x := New[string](Options[string]{})
	x.Add("k", "ann", nil)
	first := x.Take("k")
	second := x.Take("k")
	if told(first) != "ann:k" || second == nil || told(second) != "" {
		t.Fatalf("%q %v", told(first), second)
	}
	done := make(chan struct{})
	var order atomic.Int64
	started := make(chan struct{})
	go func() {
		close(started)
		second.Wait(t.Context())
		if order.Load() != 1 {
			t.Error("the later writer did not wait")
		}
		second.Done()
		close(done)
	}()
	<-started
	for range 1000 { // it has time enough not to wait
		runtime.Gosched()
	}
	order.Store(1)
	first.Done()
	<-done
	if k := x.Take("k"); k != nil {
		t.Error("something is left of them")
	}
}

// A key that must go because the table is full is not forgotten without a word,
// and whoever writes it meanwhile waits.
func TestFullTableTells(t *testing.T) {
	x := New[string](Options[string]{Keys: 3})
	for i := range 3 {
		if k := x.Add(fmt.Sprint("k", i), "ann", nil); k != nil {
			t.Fatalf("%d keys are too many", i+1)
		}
	}
	k := x.Add("k3", "ann", nil)
	if k == nil || len(k.Tell["ann"]) != 1 {
		t.Fatalf("a key too many is answered with %v", k)
	}
	w := x.Take(k.Tell["ann"][0])
	if w == nil || len(w.wait) != 1 {
		t.Error("a writer of the key that goes does not wait")
	}
	k.Done()
	w.Done()
	if keys, _, evicted := x.Counts(); keys != 3 || evicted != 1 {
		t.Errorf("%d keys, %d evicted", keys, evicted)
	}
}

func TestAnotherWayToTheKey(t *testing.T) {
	x := New[string](Options[string]{})
	x.Add("k", "ann", 1)
	x.Add("k", "bob", nil)
	if k := x.Add("k", "bob", 1); k != nil {
		t.Error("the same way is taken for another")
	}
	k := x.Add("k", "bob", 2)
	if told(k) != "ann:k bob:k" {
		t.Errorf("told %q", told(k))
	}
	k.Done()
	x.Add("l", "ann", 1)
	want(t, x.TakeIf(func(_ string, via any) bool { return via == 1 }), "ann:l")
	want(t, x.Take("k", "l"), "bob:k")
}

func TestPrefixes(t *testing.T) {
	x := New[string](Options[string]{})
	x.Subscribe("ann", []string{"a", "b:"})
	x.Subscribe("bob", []string{""})
	x.Subscribe("link", []string{"a", "ab"})
	want(t, x.Take("abc", "b:1", "b"), "ann:abc,b:1 bob:abc,b,b:1 link:abc")
	if got := x.Prefixes(); !slices.Equal(got, []string{"", "a", "ab", "b:"}) {
		t.Errorf("prefixes %q", got)
	}
	if got := slices.Sorted(slices.Values(x.Subscribers())); !slices.Equal(got, []string{"ann", "bob", "link"}) {
		t.Errorf("subscribers %q", got)
	}
	x.Subscribe("bob", nil)
	x.Forget("link")
	x.Subscribe("ann", []string{"c"})
	want(t, x.Take("abc", "c"), "ann:c")
	x.Subscribe("ann", nil)
	if _, prefixes, _ := x.Counts(); prefixes != 0 || len(x.lengths) != 0 {
		t.Errorf("%d prefixes are left", prefixes)
	}
}

func TestLivesEnd(t *testing.T) {
	x := New[string](Options[string]{})
	for i := range 20 {
		key := fmt.Sprint("k", i)
		x.Add(key, "ann", nil)
		x.Ends(key, int64(1+i%10))
	}
	x.Ends("k0", 99)
	x.Ends("k1", 0)
	x.Ends("nothing", 1)
	x.Take("k2").Done()
	k, more := x.TakeEnded(3)
	if want(t, k, "ann:k10,k11,k12"); more {
		t.Error("there are not more")
	}
	x.Forget("ann")
	if k, _ := x.TakeEnded(1000); k != nil || len(x.ends) != 0 || x.readers != 0 {
		t.Errorf("%v is left, of %d readers", k, x.readers)
	}
}

// Who has gone is not told, and does not take room for ever.
func TestWhoHasGone(t *testing.T) {
	alive := map[string]bool{"ann": true}
	x := New[string](Options[string]{Alive: func(who string) bool { return alive[who] }})
	for i := range 5000 {
		x.Add("k", fmt.Sprint("guest", i), nil)
	}
	x.Add("k", "ann", nil)
	if n := x.readers; n > 4*few {
		t.Errorf("%d readers are remembered, of whom one is there", n)
	}
	want(t, x.Take("k"), "ann:k")
}

// A key that is named twice is taken once, and who reads it again counts once.
func TestNamedTwice(t *testing.T) {
	x := New[string](Options[string]{})
	x.Add("k", "ann", nil)
	want(t, x.TakeBut("ann", "k", "k"), "ann:k")
	if x.readers != 1 {
		t.Errorf("%d readers are remembered", x.readers)
	}
	x.Forget("ann")
	if x.readers != 0 {
		t.Errorf("%d readers are left", x.readers)
	}
}

// What everybody does at once is done as if one after the other: a reader that
// added itself is told by the next writer, by one of them.
func TestMany(t *testing.T) {
	var busy atomic.Int64
	x := New[int](Options[int]{Keys: 50, Busy: &busy})
	var wg sync.WaitGroup
	for id := 1; id <= 8; id++ {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(id)))
			finish := func(k *Ticket[int]) {
				if k != nil {
					k.Wait(t.Context())
					k.Done()
				}
			}
			for range 3000 {
				key := fmt.Sprint(r.IntN(100))
				switch r.IntN(8) {
				case 0, 1, 2:
					finish(x.Add(key, id, r.IntN(3)))
				case 3:
					x.Ends(key, int64(r.IntN(100)))
				case 4:
					k, _ := x.TakeEnded(int64(r.IntN(100)))
					finish(k)
				case 5:
					finish(x.TakeIf(func(k string, _ any) bool { return k < "3" }))
				case 6:
					x.Forget(id)
				default:
					finish(x.Take(key, fmt.Sprint(r.IntN(100))))
				}
			}
		})
	}
	wg.Wait()
	x.TakeIf(func(string, any) bool { return true })
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.keys) != 0 || x.readers != 0 || len(x.ends) != 0 || busy.Load() != int64(len(x.going)) {
		t.Errorf("left: %d keys, %d readers, %d ends; busy with %d", len(x.keys), x.readers, len(x.ends), busy.Load())
	}
}
