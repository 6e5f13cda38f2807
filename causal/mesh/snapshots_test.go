package mesh

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// history is one key of a server that is alone in its ring, every write of it, and a transaction's branch that began
// behind each of them.
type history struct {
	t          *testing.T
	s          *Server
	concurrent bool
	op         Op
	writes     []*Write
	branches   []*Tx
}

func (h *history) step(in Input) []Output { return h.s.Step(1, in, nil) }

// next names an operation.
func (h *history) next() Op {
	h.op++
	return h.op
}

// newHistory begins with a key that nobody has written, and that is in memory if it was loaded.
func newHistory(t *testing.T, concurrent bool, versions int, loaded bool) *history {
	h := &history{t: t, concurrent: concurrent, s: New(Options{Incarnation: 1, View: View{Number: 1, Ring: []Incarnation{1}, Newest: 1}, Versions: versions, Concurrent: concurrent})}
	if loaded {
		h.read("k", Row{})
	}
	h.begin()
	return h
}

// read has a session that knows nothing read a key, and the store answer with a row if it is asked.
func (h *history) read(key string, row Row) Reply {
	h.t.Helper()
	var c Session
	out := h.step(c.Read(h.next(), key))
	for _, o := range out {
		if l, is := o.(Load); is {
			out = h.step(Loaded{Call: l.Call, Row: row})
		}
	}
	return done(h.t, out)
}

// begin fixes another snapshot.
func (h *history) begin() {
	var tx Tx
	if !tx.Began(done(h.t, h.step(tx.Begin(h.next())))) {
		h.t.Fatal("no transaction begins")
	}
	h.branches = append(h.branches, tx.Fork()) // its snapshot does not move
}

// write makes a write visible, and fixes a snapshot behind it.
func (h *history) write(w *Write) {
	if h.concurrent {
		var c Session
		for _, o := range h.step(c.Put(h.next(), w.Muts...)) {
			if p, is := o.(Persist); is {
				w = p.Write
				h.step(Persisted{Call: p.Call})
			}
		}
	} else {
		h.step(Polled{View: 1, Writes: []*Write{w}})
	}
	h.writes = append(h.writes, w)
	h.begin()
}

// at is what the key held behind so many writes, and how many versions of it have gone since the first.
func (h *history) at(n int) (it Item, gone int) {
	if !h.concurrent {
		for i, w := range h.writes[:n] {
			if it.Stamp.Less(w.Stamp) {
				it = Item{Exists: !w.Muts[0].Delete, Value: w.Muts[0].Value, Stamp: w.Stamp}
			}
			gone = i + 1
		}
		return it, gone
	}
	var set []*Write
	for i, w := range h.writes[:n] {
		replaced := func(v *Write) bool { return slices.Contains(w.Muts[0].Supersedes, v.Dot) }
		late := slices.ContainsFunc(h.writes[:i], func(o *Write) bool { return slices.Contains(o.Muts[0].Supersedes, w.Dot) })
		was := len(set)
		if set = slices.DeleteFunc(set, replaced); !late {
			set = append(set, w)
		}
		gone += was + 1 - len(set)
	}
	return siblings("k", set, Stamp{}), gone
}

// check looks at every snapshot: it has what it had when it was fixed, or is said to be gone; none is gone as long as no
// more versions of the key have gone than are kept.
func (h *history) check(what string, versions int) {
	h.t.Helper()
	_, gone := h.at(len(h.writes))
	for n, tx := range h.branches {
		r := done(h.t, h.step(tx.Look(h.next(), "k")))
		want, _ := h.at(n)
		if now := n == len(h.writes); r.Outcome != Done && (r.Outcome != Stale || now || gone < versions) {
			h.t.Fatalf("%s: behind %d of %d writes the key is not to be had (%d), and %d of %d versions have gone", what, n, len(h.writes), r.Outcome, gone, versions)
		}
		if r.Outcome != Done {
			continue
		}
		got := r.Items[0]
		if got.Exists != want.Exists || string(got.Value) != string(want.Value) || !slices.Equal(got.Dots(), want.Dots()) {
			h.t.Fatalf("%s: behind %d of %d writes the key is %q, %v, and was %q, %v", what, n, len(h.writes), got.Value, got.Dots(), want.Value, want.Dots())
		}
	}
}

// A snapshot shows what a key held when it was fixed, whatever is written since, in whichever order stamps come, or says
// that it is gone. As many versions as are kept are not gone.
func TestSnapshotsStayWhatTheyAre(t *testing.T) {
	for seed := range 150 {
		r := rand.New(rand.NewPCG(uint64(seed), 5))
		versions := 2 + r.IntN(4)
		plain, mixed := newHistory(t, false, versions, true), newHistory(t, true, versions, true)
		for n := range uint64(9) {
			m := Mut{Key: "k", Delete: r.IntN(4) == 0}
			if !m.Delete {
				m.Value = fmt.Append(nil, n)
			}
			plain.write(&Write{Dot: Dot{Incarnation: External, N: n + 1}, Stamp: Stamp{Time: 1 + r.Uint64N(20), Incarnation: Incarnation(n + 1)}, Muts: []Mut{m}})
			plain.check(fmt.Sprintf("seed %d", seed), versions)
			it, _ := mixed.at(len(mixed.writes) - r.IntN(min(2, len(mixed.writes)+1)))
			if m.Supersedes = it.Dots(); len(m.Supersedes) > 0 && r.IntN(3) == 0 {
				m.Supersedes = m.Supersedes[1:]
			}
			mixed.write(&Write{Muts: []Mut{m}})
			mixed.check(fmt.Sprintf("seed %d, concurrent", seed), versions)
		}
	}
}

// A key that was loaded after a snapshot was fixed is what it is now in that snapshot, if no write of it was missed: unless
// the store has collected tombstones, for one of those may have stood in the snapshot.
func TestSnapshotsOfKeysThatAreLoadedLater(t *testing.T) {
	for _, concurrent := range []bool{false, true} {
		for collected, want := range map[uint64]Outcome{0: Done, 1: Stale, 7: Stale} {
			h := newHistory(t, concurrent, 4, false)
			h.step(Polled{View: 1, Writes: []*Write{{Dot: Dot{Incarnation: External, N: 1}, Stamp: Stamp{Time: 9, Incarnation: External}, Muts: []Mut{{Key: "other"}}}}})
			h.read("k", Row{Item: Item{Stamp: Stamp{Time: collected}}})
			h.begin()
			for i, want := range []Outcome{want, Done} {
				if r := done(t, h.step(h.branches[i].Look(h.next(), "k"))); r.Outcome != want {
					t.Errorf("concurrent %v, collected before %d: snapshot %d has outcome %d, want %d", concurrent, collected, i, r.Outcome, want)
				}
			}
		}
	}
}

// A transaction moves to another snapshot unless something that it has read has changed: also when of several values one
// was deleted, or one has come.
func TestWhatMovesASnapshot(t *testing.T) {
	for what, c := range map[string]struct {
		change func(dots []Dot) []Mut
		want   Outcome
	}{
		"nothing":             {func([]Dot) []Mut { return nil }, Done},
		"another value":       {func([]Dot) []Mut { return []Mut{{Key: "k", Value: []byte("c")}} }, Stale},
		"one deleted":         {func(d []Dot) []Mut { return []Mut{{Key: "k", Delete: true, Supersedes: d[:1]}} }, Stale},
		"all deleted":         {func(d []Dot) []Mut { return []Mut{{Key: "k", Delete: true, Supersedes: d}} }, Stale},
		"another key's value": {func([]Dot) []Mut { return []Mut{{Key: "m", Value: []byte("c")}} }, Done},
	} {
		h := newHistory(t, true, 2, true)
		h.read("l", Row{})
		h.read("m", Row{})
		h.write(&Write{Muts: []Mut{{Key: "k", Value: []byte("a")}}})
		h.write(&Write{Muts: []Mut{{Key: "k", Value: []byte("b")}}})
		var tx Tx
		tx.Began(done(t, h.step(tx.Begin(h.next()))))
		items, why := tx.Looked(done(t, h.step(tx.Look(h.next(), "k"))), "k")
		if why != Done || len(items[0].Siblings) != 2 {
			t.Fatalf("%+v, %d", items, why)
		}
		if muts := c.change(items[0].Dots()); muts != nil {
			h.write(&Write{Muts: muts})
		}
		for _, v := range []string{"1", "2", "3", "4"} { // what the snapshot has of l is gone
			var over []Dot
			if len(h.writes) > 2 && h.writes[len(h.writes)-1].Muts[0].Key == "l" {
				over = []Dot{h.writes[len(h.writes)-1].Dot}
			}
			h.write(&Write{Muts: []Mut{{Key: "l", Value: []byte(v), Supersedes: over}}})
		}
		if r := done(t, h.step(tx.Look(h.next(), "l"))); r.Outcome != c.want {
			t.Errorf("%s: the outcome is %d, want %d", what, r.Outcome, c.want)
		} else if r.Outcome == Done && string(r.Items[0].Value) != "4" {
			t.Errorf("%s: l is %q", what, r.Items[0].Value)
		}
	}
}
