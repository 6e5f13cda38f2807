package view

import (
	"maps"
	"math"
	"slices"

	"github.com/freshet-cache/freshet/shard/lease"
)

// Place is an incarnation of a server in a ring.
type Place struct {
	Incarnation uint32
	Name        string // unique for ever
	Addr        string // where the others reach it
	Host        string // the process that it runs in
}

// View is a ring.
type View struct {
	Number   uint64
	Ring     []Place
	Departed []uint32
	Newest   uint32 // the largest number of an incarnation so far
	Key      []byte // authenticates the tokens of the ring's sessions; drawn once (K9)
}

// Sum tells views apart that have the same number: it is 0 for the View before the first.
func (v View) Sum() uint64 {
	if v.Number == 0 {
		return 0
	}
	h := uint64(14695981039346656037) // FNV-1a
	for _, c := range AppendView(nil, v) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}

// Known is what the store of a ring says of the incarnations that have begun there.
type Known struct {
	Newest uint32   // the largest number
	Open   []uint32 // incarnations of which the store may have writes that have not been everywhere
	Number uint64   // the largest number of a view that has claimed the rows
}

// Renew is what a member asks the leader, at every beat.
type Renew struct {
	Name, Addr, Host string
	Incarnation      uint32 // 0: it has no number yet
	Seq              uint64 // grows with every Renew of the incarnation
	Knows            bool   // it has what a member must know (K5)
	Leaving          bool
	Retired          []uint32 // incarnations of which everything has been everywhere
	View, Sum        uint64   // the latest view it has heard of (K8)
	Store            Known    // as the store was when the incarnation began to ask (K8); only while it has no number
}

// Grant answers a Renew.
type Grant struct {
	Seq         uint64
	Incarnation uint32     // the member's number; 0: it has none yet, ask again
	Length      lease.Tick // of the lease, from when the Renew was sent, if the View has the member in its ring
	View        View
}

// Options of a Leader.
type Options struct {
	// Length of a lease. Default 10 s.
	Length lease.Tick
	// Silence after which a member is left out. Default Length.
	Silence lease.Tick
	// Key is the ring's if it has none yet: random bytes.
	Key []byte
}

// Leader decides on views. It is not safe for concurrent use.
type Leader struct {
	opt    Options
	term   uint64
	led    lease.Tick // leadership holds before this
	alone  lease.Tick // nobody is left out before this: the predecessor may grant leases (K6)
	since  lease.Tick // nor for silence before this
	view   View       // decided
	stored View       // and stored (K1)
	sum    uint64     // of stored
	fresh  uint64     // the number with which this leader began anew, for its state was older (K8)
	saving bool
	seen   map[uint32]heard
}

// heard is what a member has said of itself.
type heard struct {
	at    lease.Tick
	knows bool
}

// Save asks the coordinator to store a view if Term is still the newest. It is answered
// by exactly one Saved.
type Save struct {
	Term uint64
	View View
}

// NewLeader returns a leader that does not lead.
func NewLeader(opt Options) *Leader {
	if opt.Length <= 0 {
		opt.Length = 10e9
	}
	if opt.Silence <= 0 {
		opt.Silence = opt.Length
	}
	return &Leader{opt: opt, seen: map[uint32]heard{}}
}

// Elected makes the leader the leader of a term until led, with the view its predecessor
// stored, who may have granted leases for as long as slack since.
func (k *Leader) Elected(now lease.Tick, term uint64, led, slack lease.Tick, v View) {
	k.term, k.led, k.view, k.stored, k.saving = term, led, v, v, false
	k.alone = now + slack // K6
	k.since = k.alone + max(k.opt.Length, k.opt.Silence)
	k.seen, k.fresh, k.sum = map[uint32]heard{}, 0, v.Sum()
	if len(v.Key) == 0 && len(k.opt.Key) > 0 { // K9
		if k.view.Key = k.opt.Key; v.Number > 0 {
			k.view.Number++
		}
	}
}

// Led extends the leadership of term.
func (k *Leader) Led(term uint64, led lease.Tick) {
	if term == k.term {
		k.led = max(k.led, led)
	}
}

// Leads reports whether the leader may decide at now.
func (k *Leader) Leads(now lease.Tick) bool { return k.term != 0 && now < k.led }

// Saved answers Save. Not ok means that another term is newer.
func (k *Leader) Saved(term, number uint64, ok bool) (again []Save) {
	if term != k.term || !k.saving {
		return nil
	}
	if k.saving = false; !ok {
		k.term, k.led = 0, 0
		return nil
	}
	if number == k.view.Number {
		k.stored, k.sum = k.view, k.view.Sum()
		return nil
	}
	return k.save()
}

// Renewed takes what a member asks, and answers it; not ok means that the leader does not
// lead, and says nothing.
func (k *Leader) Renewed(now lease.Tick, in Renew) (g Grant, saves []Save, ok bool) {
	if !k.Leads(now) {
		return g, nil, false
	}
	if k.older(in) && now >= k.alone {
		k.begin(in)
	}
	i := slices.IndexFunc(k.view.Ring, func(m Place) bool { return m.Name == in.Name })
	switch {
	case k.older(in): // it is asked again when leases of a predecessor are over
	case i < 0 && in.Incarnation == 0 && !in.Leaving:
		k.join(now, in)
	case i >= 0 && in.Leaving && now >= k.alone:
		k.out(func(m Place) bool { return m.Name == in.Name })
	case i >= 0 && (in.Incarnation == 0 || in.Incarnation == k.view.Ring[i].Incarnation):
		o := k.view.Ring[i].Incarnation
		k.seen[o] = heard{now, in.Knows || in.Incarnation == 0 && k.seen[o].knows} // it may not have heard of its place
		if now >= k.alone {
			k.out(func(Place) bool { return false }) // K5: who knew may have gone while another leader led
		}
	}
	for _, o := range in.Retired { // K4
		if at := slices.Index(k.view.Departed, o); at >= 0 {
			k.view.Departed = slices.Delete(slices.Clone(k.view.Departed), at, at+1)
			k.view.Number++
		}
	}
	saves = k.save()
	g = Grant{Seq: in.Seq, Length: k.opt.Length, View: k.stored} // K1
	if i := slices.IndexFunc(k.stored.Ring, func(m Place) bool { return m.Name == in.Name }); i >= 0 {
		g.Incarnation = k.stored.Ring[i].Incarnation
	}
	return g, saves, true
}

// maxIncarnation is the largest number that an incarnation may have: the one above is for external writes.
const maxIncarnation = math.MaxUint32 - 1

// older reports whether somebody knows of what this leader, or a predecessor whose state it has, never decided: the
// state of the coordinator was lost, or an old one was restored (K8).
func (k *Leader) older(in Renew) bool {
	switch {
	case max(in.Incarnation, in.Store.Newest) > k.view.Newest, in.Store.Number > k.view.Number:
		return true
	case in.View < k.fresh: // the views from there on are above it
		return false
	}
	return in.View > k.stored.Number || in.View == k.stored.Number && in.Sum != k.sum
}

// begin leaves everybody out, and goes on with numbers that nobody has used (K8).
func (k *Leader) begin(in Renew) {
	if max(in.Incarnation, in.Store.Newest) > maxIncarnation || max(in.View, in.Store.Number) >= math.MaxUint64/2 {
		return // no leader and no store says so
	}
	k.out(func(Place) bool { return true })
	k.view.Newest = max(k.view.Newest, in.Incarnation, in.Store.Newest)
	k.view.Number = max(k.view.Number, in.View, in.Store.Number) + 1
	k.fresh = k.view.Number
}

// join puts a new incarnation at the end of the ring.
func (k *Leader) join(now lease.Tick, in Renew) {
	if k.view.Newest >= maxIncarnation {
		return // the numbers are used up
	}
	k.view.Number++
	k.view.Newest++ // K2
	o := k.view.Newest
	if len(k.view.Ring) == 0 { // K8: a state that is older may have forgotten them
		k.view.Departed = slices.Compact(slices.Sorted(slices.Values(slices.Concat(k.view.Departed, in.Store.Open))))
		k.view.Departed = slices.DeleteFunc(k.view.Departed, func(l uint32) bool { return l == 0 || l >= o })
	}
	k.seen[o] = heard{at: now, knows: len(k.view.Ring) == 0} // K5: who is alone asks the store
	k.view.Ring = append(slices.Clip(k.view.Ring), Place{o, in.Name, in.Addr, in.Host})
}

// out leaves members out; if none is left that knows what a member must, all of them (K5).
func (k *Leader) out(which func(Place) bool) {
	left := slices.DeleteFunc(slices.Clone(k.view.Ring), which)
	knows := func(m Place) bool {
		h, heard := k.seen[m.Incarnation]
		return h.knows || !heard // it may have told a predecessor, and will tell us
	}
	if !slices.ContainsFunc(left, knows) {
		left = nil
	}
	if len(left) == len(k.view.Ring) {
		return
	}
	for _, m := range k.view.Ring {
		if !slices.Contains(left, m) {
			k.view.Departed = append(slices.Clip(k.view.Departed), m.Incarnation) // K4
			delete(k.seen, m.Incarnation)
		}
	}
	k.view.Ring = left
	k.view.Number++
}

// Beat leaves out who was silent for too long.
func (k *Leader) Beat(now lease.Tick) []Save {
	if !k.Leads(now) || now < k.since {
		return nil
	}
	k.out(func(m Place) bool { return now-k.seen[m.Incarnation].at > k.opt.Silence })
	return k.save()
}

// Gone leaves out who lived in a process that was seen to end.
func (k *Leader) Gone(now lease.Tick, host string) []Save {
	if !k.Leads(now) || now < k.alone { // else its silence tells
		return nil
	}
	k.out(func(m Place) bool { return m.Host == host })
	return k.save()
}

// save writes the view down, one at a time.
func (k *Leader) save() []Save {
	if k.saving || k.stored.Number == k.view.Number {
		return nil
	}
	k.saving = true
	return []Save{{k.term, k.view}}
}

// View is the latest view that was stored.
func (k *Leader) View() View { return k.stored }

// Check panics if the leader's state is impossible. It is for tests.
func (k *Leader) Check() {
	names := map[string]bool{}
	for _, v := range []View{k.view, k.stored} {
		clear(names)
		last := map[uint32]bool{}
		for _, m := range v.Ring {
			if names[m.Name] || last[m.Incarnation] || m.Incarnation > v.Newest || m.Incarnation == 0 || slices.Contains(v.Departed, m.Incarnation) {
				panic("view: a ring that cannot be")
			}
			names[m.Name], last[m.Incarnation] = true, true
		}
	}
	if k.stored.Number > k.view.Number || k.stored.Newest > k.view.Newest {
		panic("view: a view was stored before it was decided")
	}
	for _, o := range slices.Sorted(maps.Keys(k.seen)) {
		if o > k.view.Newest {
			panic("view: an incarnation was heard of that there is not")
		}
	}
}
