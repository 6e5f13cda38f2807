package track

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
)

// plain is a Table as plain maps.
type plain struct {
	who   map[string]map[int]bool
	via   map[string]any
	end   map[string]int64
	going map[string]*Ticket[int]
}

// taken is what a ticket over keys must say: whom to tell of what, and whom to wait for. It
// takes the keys out.
func (p *plain) taken(alive func(int) bool, keys ...string) (tell map[int][]string, wait []*Ticket[int]) {
	tell = map[int][]string{}
	for _, k := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		if before := p.going[k]; before != nil {
			wait = append(wait, before)
		}
		for w := range p.who[k] {
			if alive(w) {
				tell[w] = append(tell[w], k)
			}
		}
		p.forget(k)
	}
	return tell, wait
}

func (p *plain) forget(key string) {
	delete(p.who, key)
	delete(p.via, key)
	delete(p.end, key)
}

// model is both, side by side.
type model struct {
	t    *testing.T
	r    *rand.Rand
	tab  *Table[int]
	p    plain
	busy atomic.Int64
	dead int // a reader that is not to be told
	open []*Ticket[int]
}

func (m *model) alive(w int) bool { return w != m.dead }

// issued compares a ticket with what it must say, and keeps it for some time.
func (m *model) issued(what string, k *Ticket[int], keys []string, tell map[int][]string, wait []*Ticket[int]) {
	m.t.Helper()
	if (k == nil) != (len(keys) == 0) {
		m.t.Fatalf("%s: %+v, for keys %q", what, k, keys)
	}
	if k == nil {
		return
	}
	for w := range k.Tell {
		slices.Sort(k.Tell[w])
	}
	same := func(a, b []*Ticket[int]) bool {
		return !slices.ContainsFunc(a, func(x *Ticket[int]) bool { return !slices.Contains(b, x) }) && !slices.ContainsFunc(b, func(x *Ticket[int]) bool { return !slices.Contains(a, x) })
	}
	if got := slices.Sorted(slices.Values(k.Keys)); !slices.Equal(got, keys) || !maps.EqualFunc(k.Tell, tell, slices.Equal) || !same(k.wait, wait) {
		m.t.Fatalf("%s: keys %q, tells %v, waits for %d; want %q, %v, %d", what, k.Keys, k.Tell, len(k.wait), keys, tell, len(wait))
	}
	for _, key := range keys {
		m.p.going[key] = k
	}
	m.open = append(m.open, k)
}

// concerned are those of the keys of which there is somebody to tell or to wait for.
func (m *model) concerned(keys ...string) (out []string) {
	for _, k := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		if m.p.who[k] != nil || m.p.going[k] != nil {
			out = append(out, k)
		}
	}
	return out
}

func (m *model) take(what string, keys []string, do func() *Ticket[int]) {
	m.t.Helper()
	some := m.concerned(keys...)
	tell, wait := m.p.taken(m.alive, some...)
	m.issued(what, do(), some, tell, wait)
}

func (m *model) step() {
	key, other, who := fmt.Sprint("k", m.r.IntN(9)), fmt.Sprint("k", m.r.IntN(9)), 1+m.r.IntN(20)
	all := slices.Concat(slices.Collect(maps.Keys(m.p.who)), slices.Collect(maps.Keys(m.p.going)))
	switch m.r.IntN(14) {
	case 0:
		m.take("take", []string{key, other, key}, func() *Ticket[int] { return m.tab.Take(key, other, key) })
	case 1: // whoever has written and read is remembered
		had, via := m.p.who[key][who], m.p.via[key]
		m.take("take but", []string{key}, func() *Ticket[int] { return m.tab.TakeBut(who, key) })
		if had {
			m.p.who[key], m.p.via[key] = map[int]bool{who: true}, via
		}
	case 2:
		fits := func(k string, _ any) bool { return k <= key }
		m.take("take if", slices.DeleteFunc(all, func(k string) bool { return !fits(k, nil) }), func() *Ticket[int] { return m.tab.TakeIf(fits) })
	case 3:
		now := int64(m.r.IntN(50))
		some := slices.DeleteFunc(slices.Collect(maps.Keys(m.p.end)), func(k string) bool { return m.p.end[k] > now })
		more := false
		m.take("take ended", some, func() (k *Ticket[int]) { k, more = m.tab.TakeEnded(now); return k })
		if more {
			m.t.Fatal("there are more than are said")
		}
	case 4:
		at := int64(m.r.IntN(3) * (1 + m.r.IntN(50)))
		if m.tab.Ends(key, at); m.p.who[key] != nil {
			if m.p.end[key] = at; at == 0 {
				delete(m.p.end, key)
			}
		}
	case 5:
		m.tab.Forget(who)
		for k := range m.p.who {
			if delete(m.p.who[k], who); len(m.p.who[k]) == 0 {
				m.p.forget(k)
			}
		}
	case 6:
		if m.r.IntN(20) == 0 {
			m.tab.Clear()
			m.p.who, m.p.via, m.p.end = map[string]map[int]bool{}, map[string]any{}, map[string]int64{}
		}
	case 7, 8:
		if len(m.open) > 0 {
			i := m.r.IntN(len(m.open))
			k := m.open[i]
			k.Done()
			m.open = slices.Delete(m.open, i, i+1)
			maps.DeleteFunc(m.p.going, func(_ string, g *Ticket[int]) bool { return g == k })
		}
	default:
		var via any
		if m.r.IntN(2) == 0 {
			via = m.r.IntN(2)
		}
		var some []string
		if was := m.p.via[key]; was != nil && via != nil && was != via { // it was read through another
			some = []string{key}
		}
		m.take("add", some, func() *Ticket[int] { return m.tab.Add(key, who, via) })
		if m.p.who[key] == nil {
			m.p.who[key] = map[int]bool{}
		}
		if m.p.who[key][who] = true; via != nil {
			m.p.via[key] = via
		}
	}
}

// check compares all that can be counted.
func (m *model) check() {
	m.t.Helper()
	keys, prefixes, evicted := m.tab.Counts()
	readers := 0
	for k, who := range m.p.who {
		e := m.tab.keys[k]
		if e == nil || (e.heap >= 0) != (m.p.end[k] != 0) || e.end != m.p.end[k] && e.heap >= 0 || e.via != m.p.via[k] {
			m.t.Fatalf("%s is remembered as %+v, via %v, until %d", k, e, m.p.via[k], m.p.end[k])
		}
		for w := range who {
			if !e.has(w) {
				m.t.Fatalf("%s has forgotten %d without a word", k, w)
			}
		}
		if readers += len(who); len(e.who) != len(who) || e.set != nil && len(e.set) != len(who) {
			m.t.Fatalf("%s has %v, want %v", k, e.who, who)
		}
	}
	if busy := m.busy.Load(); keys != len(m.p.who) || m.tab.readers != readers || len(m.tab.ends) != len(m.p.end) || len(m.tab.going) != len(m.p.going) ||
		busy != int64(len(m.p.who)+len(m.p.going)+prefixes) || evicted != 0 {
		m.t.Fatalf("%d keys, %d readers, %d lives, %d going, busy %d; want %d, %d, %d, %d", keys, m.tab.readers, len(m.tab.ends), len(m.tab.going), busy,
			len(m.p.who), readers, len(m.p.end), len(m.p.going))
	}
}

// Whatever is added, taken, ended and forgotten, a table says whom to tell of what, and whom
// to wait for, as plain maps say it; and it counts what there is.
func TestAgainstPlainMaps(t *testing.T) {
	for seed := range uint64(200) {
		m := &model{t: t, r: rand.New(rand.NewPCG(seed, 3)), p: plain{who: map[string]map[int]bool{}, via: map[string]any{}, end: map[string]int64{}, going: map[string]*Ticket[int]{}}}
		m.tab = New(Options[int]{Busy: &m.busy, Alive: func(w int) bool { return m.alive(w) }})
		for range 200 {
			m.step()
			m.check()
		}
	}
}

// Readers that have gone make room when those of a key have doubled, whoever is left is told,
// and only the living are told at all.
func TestTheGoneMakeRoom(t *testing.T) {
	for dead := range 12 {
		for living := range 24 {
			tab := New(Options[int]{Alive: func(w int) bool { return w >= 0 }})
			for i := range dead {
				tab.Add("k", -1-i, nil)
			}
			for i := range living {
				tab.Add("k", i, nil)
				tab.Add("k", i, nil) // again
			}
			e := tab.keys["k"]
			if dead+living == 0 {
				continue
			}
			most := dead + living
			if most > few && living > 0 { // it has doubled since they had gone
				most = max(few, dead, living)
			}
			if len(e.who) > most || len(e.who) < living || tab.readers != len(e.who) || (e.set != nil) != (len(e.who) > few) || e.set != nil && len(e.set) != len(e.who) {
				t.Fatalf("%d gone and %d living: %d are remembered, %d counted, set of %d", dead, living, len(e.who), tab.readers, len(e.set))
			}
			k := tab.Take("k")
			if len(k.Tell) != living || tab.readers != 0 {
				t.Fatalf("%d gone and %d living: %d are told, %d readers are left", dead, living, len(k.Tell), tab.readers)
			}
			k.Done()
			if tab.opt.Busy.Load() != 0 {
				t.Fatal("busy when all is told")
			}
		}
	}
}

// Of keys whose TTLs have passed a thousand are taken at once, the first to end first, and it
// is said whether there are more.
func TestManyLivesEnd(t *testing.T) {
	for _, count := range []int{999, 1000, 1001, 2000, 2001} {
		tab := New(Options[int]{})
		for i := range count {
			tab.Add(fmt.Sprint(i), 1, nil)
			tab.Ends(fmt.Sprint(i), int64(count-i))
		}
		last := int64(0)
		for left := count; left > 0; {
			k, more := tab.TakeEnded(int64(count))
			if left -= min(left, 1000); len(k.Keys) == 0 || more != (left > 0) || len(tab.keys) != left {
				t.Fatalf("of %d: %d keys, more %v, %d left, want %d", count, len(k.Keys), more, len(tab.keys), left)
			}
			for _, key := range k.Keys {
				i := 0
				if fmt.Sscan(key, &i); int64(count-i) < last {
					t.Fatalf("of %d: %s comes behind what ends at %d", count, key, last)
				}
				last = int64(count - i)
			}
			k.Done()
		}
		if k, more := tab.TakeEnded(1 << 60); k != nil || more {
			t.Fatal("there is more")
		}
	}
}

// Counts, and what is busy, follow prefixes too.
func TestCountsFollow(t *testing.T) {
	var busy atomic.Int64
	tab := New(Options[int]{Busy: &busy, Keys: 2})
	want := func(keys, prefixes int, evicted uint64, all int64) {
		t.Helper()
		if k, p, e := tab.Counts(); k != keys || p != prefixes || e != evicted || busy.Load() != all {
			t.Errorf("%d keys, %d prefixes, %d evicted, busy %d; want %d, %d, %d, %d", k, p, e, busy.Load(), keys, prefixes, evicted, all)
		}
	}
	tab.Add("a", 1, nil)
	want(1, 0, 0, 1)
	tab.Subscribe(2, []string{"a", "b", "a"})
	want(1, 2, 0, 3)
	tab.Add("b", 1, nil)
	gone := tab.Add("c", 1, nil)
	want(2, 2, 1, 5)
	gone.Done()
	want(2, 2, 1, 4)
	tab.Forget(1)
	want(0, 2, 1, 2)
	k := tab.Take("ab", "ab")
	if len(k.Tell[2]) != 1 || len(k.Keys) != 0 {
		t.Errorf("%+v", k)
	}
	k.Done()
	tab.Forget(2)
	want(0, 0, 1, 0)
}

// Readers of all keys together are bounded too: a key makes room for another when there are
// sixteen for each key that may be remembered.
func TestReadersAreBounded(t *testing.T) {
	for readers, evicts := range map[int]bool{2*pairsPerKey - 1: false, 2 * pairsPerKey: true} {
		tab := New(Options[int]{Keys: 2})
		for i := range readers {
			if k := tab.Add("a", i, nil); k != nil {
				t.Fatalf("reader %d of one key: %+v", i, k)
			}
		}
		if k := tab.Add("b", 1, nil); (k != nil) != evicts || evicts && len(k.Tell) != readers {
			t.Errorf("another key, beside %d readers: %+v", readers, k)
		}
	}
}
