package explore

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/sim"
)

// printed is the write of WriteGuards as its algorithm 2 prints it, lines 19 to
// 24: after a time-out it installs a fresh guard and writes again, without
// looking whether the first attempt had been committed. One node owns the key
// all the time, so leases play no part.
type printed struct {
	store  *sim.Store
	seen   []string // what readers of the store see, one after the other
	token  byte
	writes []*attempt
	begun  int
	losses int
	err    error
}

// attempt is where a write is: its guard is to be sent, or its value is.
type attempt struct {
	id      int
	token   clink.Token
	guarded bool
	done    bool
}

func newPrinted() World {
	w := &printed{store: sim.NewStore(), losses: 1}
	return w
}

func (w *printed) choices() (out []choice) {
	if w.begun < 2 {
		out = append(out, choice{says("write %d begins", w.begun), func() {
			w.writes = append(w.writes, &attempt{id: w.begun})
			w.begun++
		}})
	}
	for _, a := range w.writes {
		switch {
		case a.done:
		case !a.guarded:
			out = append(out, choice{says("write %d installs a fresh guard", a.id), func() { w.guard(a) }})
		default:
			out = append(out, choice{says("write %d is committed and acknowledged", a.id), func() { w.commit(a, true) }})
			if w.losses > 0 {
				out = append(out, choice{says("write %d is committed, the answer is lost, and it is tried again", a.id), func() { w.commit(a, false) }})
			}
		}
	}
	return out
}

func (w *printed) guard(a *attempt) {
	w.token++
	a.token = clink.Token{w.token}
	a.guarded = true
	for _, b := range w.writes { // the handle they all use
		b.token = a.token
	}
	w.store.SetGuard(lease.Range{}, a.token)
}

func (w *printed) commit(a *attempt, heard bool) {
	muts := []clink.Mut{{Key: theKey, Value: []byte(fmt.Sprintf("v%d", a.id)), Guard: a.token}}
	admitted, status := w.store.Admit(muts)
	if status != clink.OK {
		a.guarded = false // line 24: restart with a fresh guard
		return
	}
	w.store.Apply(0, admitted, clink.ID{byte(a.id + 1)}, muts)
	value := string(muts[0].Value)
	if i := slices.Index(w.seen, value); i >= 0 && w.seen[len(w.seen)-1] != value {
		w.err = fmt.Errorf("readers see %s and then %s again", strings.Join(w.seen[i:], ", then "), value)
	}
	w.seen = append(w.seen, value)
	if a.done = heard; !heard {
		w.losses--
		a.guarded = false
	}
}

func (w *printed) Choices() (out []string) {
	for _, c := range w.choices() {
		out = append(out, c.name.String())
	}
	return out
}

func (w *printed) Choose(i int) error {
	w.choices()[i].do()
	return w.err
}

func (w *printed) Dump() string {
	var b strings.Builder
	fmt.Fprintln(&b, w.begun, w.losses, w.token)
	for _, a := range w.writes {
		fmt.Fprintln(&b, *a)
	}
	return b.String() + w.store.Dump() + strings.Join(w.seen, " ")
}

// The counterexample of docs/papers.md: the write whose answer was lost is applied
// again, over another write that was acknowledged meanwhile. No order of the two
// writes explains what readers see. The machine that ships goes through the same
// scope unharmed, see "two-writes-one-lost".
func TestBlindRetryAsPrinted(t *testing.T) {
	r := Run(10_000, newPrinted)
	if r.Violation == nil {
		t.Fatalf("the printed retry is said to apply a write twice, but it does not in %v", r)
	}
	t.Logf("%v\nafter\n  %s", r.Violation, strings.Join(r.Trace, "\n  "))
}
