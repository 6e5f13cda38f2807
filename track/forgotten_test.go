package track

import (
	"context"
	"fmt"
	"slices"
	"testing"
)

// A reader that was forgotten and reads the key again is told of the next write, however many other
// readers the key has.
func TestAForgottenReaderIsToldAgain(t *testing.T) {
	for others := range 3 * few {
		tab := New(Options[int]{})
		for i := range others {
			tab.Add("k", 1+i, nil)
		}
		tab.Add("k", 100, nil)
		tab.Forget(100)
		tab.Add("k", 100, nil)
		k := tab.Take("k")
		if !slices.Equal(k.Tell[100], []string{"k"}) || len(k.Tell) != others+1 {
			t.Errorf("beside %d others, it is told %q, and %d readers are told", others, k.Tell[100], len(k.Tell))
		}
		k.Done()
	}
}

// The end of one subscription leaves other prefixes of the same length alone.
func TestPrefixesOfOneLength(t *testing.T) {
	x := New(Options[string]{})
	x.Subscribe("ann", []string{"a:", "b:", "a:"})
	x.Subscribe("bob", []string{"c:"})
	x.Subscribe("ann", []string{"b:"})
	want(t, x.Take("a:1", "b:1", "c:1"), "ann:b:1 bob:c:1")
	x.Subscribe("ann", nil)
	want(t, x.Take("a:1", "b:1", "c:1"), "bob:c:1")
}

// Who has read a key and also subscribed to a prefix of it hears of a write to it once.
func TestAReaderThatSubscribedIsToldOnce(t *testing.T) {
	x := New(Options[string]{})
	x.Subscribe("ann", []string{"a", "ab", "ab"})
	x.Add("abc", "ann", nil)
	x.Add("ad", "ann", nil)
	want(t, x.Take("abc", "ad", "ae"), "ann:abc,ad,ae")
	want(t, x.TakeBut("ann", "abc"), "ann:abc")
}

// A table of one key remembers one key.
func TestATableOfOneKey(t *testing.T) {
	x := New(Options[string]{Keys: 1})
	for i, key := range []string{"a", "b", "c"} {
		k := x.Add(key, "ann", nil)
		if (k != nil) != (i > 0) {
			t.Errorf("key %d: %v", i+1, told(k))
		}
		want(t, k, []string{"", "ann:a", "ann:b"}[i])
	}
	if keys, _, evicted := x.Counts(); keys != 1 || evicted != 2 {
		t.Errorf("%d keys are remembered, and %d had to go", keys, evicted)
	}
}

// Finding out which readers have gone costs a few looks for each reader that is added, not a look at
// all of them each time.
func TestManyReadersAreLookedAtRarely(t *testing.T) {
	looks := 0
	tab := New(Options[int]{Alive: func(int) bool { looks++; return true }})
	for i := range few {
		tab.Add("k", i, nil)
	}
	if looks != 0 {
		t.Errorf("of %d readers, %d were looked at", few, looks)
	}
	const many = 4096
	for i := range many {
		tab.Add("k", i, nil)
	}
	if looks > 2*many {
		t.Errorf("%d readers were added, with %d looks", many, looks)
	}
}

// A ticket that is done holds on to no earlier ticket. Otherwise the writers of a busy key would
// form a chain that is never freed.
func TestADoneTicketHoldsNoOther(t *testing.T) {
	x := New(Options[string]{})
	x.Add("k", "ann", nil)
	first := x.Take("k")
	second := x.Take("k")
	if len(second.wait) != 1 {
		t.Fatalf("the second writer waits for %d tickets", len(second.wait))
	}
	first.Done()
	second.Wait(t.Context())
	second.Done()
	if first.wait != nil || second.wait != nil {
		t.Error("a ticket that is done holds another one")
	}
}

// A writer stops waiting for those before it when its own deadline passes.
func TestWaitEndsWithItsContext(t *testing.T) {
	x := New(Options[string]{})
	x.Add("k", "ann", nil)
	x.Add("l", "ann", nil)
	first, second := x.Take("k"), x.Take("l")
	third := x.Take("k", "l")
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan struct{})
	go func() {
		third.Wait(ctx)
		close(waited)
	}()
	cancel()
	<-waited
	for _, k := range []*Ticket[string]{first, second, third} {
		k.Done()
	}
	if k := x.Take("k", "l"); k != nil {
		t.Errorf("%v is left to tell", told(k))
	}
}

// The end of a key's TTL may be set, moved and taken back in any order.
func TestEndsAreSetMovedAndTakenBack(t *testing.T) {
	x := New(Options[string]{})
	for _, key := range []string{"a", "b", "c"} {
		x.Add(key, "ann", nil)
		x.Ends(key, 0)
		x.Ends(key, 5)
		x.Ends(key, 5)
	}
	x.Ends("a", 0)
	x.Ends("a", 0)
	x.Ends("b", 9)
	x.Ends("c", 7)
	for now, keys := range []string{7: "ann:c", 8: "", 9: "ann:b", 10: ""} {
		if k, more := x.TakeEnded(int64(now)); told(k) != keys || more {
			t.Errorf("at %d the TTLs of %q have passed, more %v", now, told(k), more)
		}
	}
	x.Ends("a", 11)
	if k, _ := x.TakeEnded(11); told(k) != "ann:a" {
		t.Errorf("at 11 the TTLs of %q have passed", told(k))
	}
	if fmt.Sprint(x.Counts()) != "0 0 0" {
		t.Errorf("keys, prefixes and keys that had to go: %v", fmt.Sprint(x.Counts()))
	}
}
