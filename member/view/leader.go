package view

import (
	"maps"
	"math"
	"slices"

	"github.com/freshet-cache/freshet/ticks"
)

// Place is an incarnation of a server in a ring.
type Place struct {
	Incarnation uint32
	Name        string // unique for ever
	Addr        string // where other servers reach it
	Host        string // the process in which it runs
}

// View is a numbered ring of servers.
type View struct {
	Number   uint64
	Ring     []Place
	Departed []uint32
	Newest   uint32 // the largest number of an incarnation so far
	Key      []byte // authenticates the tokens of the ring's sessions; drawn once (K9)
}

// Sum distinguishes views that have the same number. It is 0 for the view before the first.
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

// Known is what the store of a ring says about the incarnations that have begun there.
type Known struct {
	Newest uint32   // the largest number
	Open   []uint32 // incarnations of which the store may have writes that some server has not received
	Number uint64   // the largest number of a view that has claimed to merge into the rows
}

// Renew is a member's request to the leader, sent at every beat.
type Renew struct {
	Name, Addr, Host string
	Incarnation      uint32 // 0: the member has no number yet
	Seq              uint64 // grows with every Renew of the incarnation
	Knows            bool   // the server has what a member must know (K5)
	Leaving          bool
	Retired          []uint32 // incarnations whose writes are all visible everywhere (K4)
	View, Sum        uint64   // the latest view that the member has heard of (K8)
	Store            Known    // as read when the incarnation began to ask (K8); only while it has no number
}

// Grant answers a Renew.
type Grant struct {
	Seq         uint64
	Incarnation uint32     // the member's number; 0: it has none yet and must ask again
	Length      ticks.Tick // of the lease, from when the Renew was sent, if View has the member in its ring
	View        View
}

// Options configures a Leader.
type Options struct {
	// Length is the length of a lease. Default 10 s.
	Length ticks.Tick
	// Silence is the time without a Renew after which a member is removed. Default Length.
	Silence ticks.Tick
	// Key is random bytes. It becomes the ring's token key if the ring has none yet (K9).
	Key []byte
}

// Leader decides on views. It is not safe for concurrent use.
type Leader struct {
	opt    Options
	term   uint64
	led    ticks.Tick // leadership holds before this time
	alone  ticks.Tick // no member is removed before this time: the predecessor may still grant leases (K6)
	since  ticks.Tick // no member is removed for silence before this time (K6)
	view   View       // the latest that was decided
	stored View       // the latest that was stored (K1)
	sum    uint64     // of stored
	fresh  uint64     // the number of the view with which this leader began anew, because its state was older (K8)
	saving bool
	seen   map[uint32]heard
}

// heard is what a member's Renews have said.
type heard struct {
	at    ticks.Tick
	knows bool
}

// Save asks the coordinator to store a view if no newer term exists. Exactly one Saved or Unsaved answers it.
type Save struct {
	Term uint64
	View View
}

// NewLeader returns a leader that does not lead yet.
func NewLeader(opt Options) *Leader {
	if opt.Length <= 0 {
		opt.Length = 10e9
	}
	if opt.Silence <= 0 {
		opt.Silence = opt.Length
	}
	return &Leader{opt: opt, seen: map[uint32]heard{}}
}

// Elected makes the leader lead in a term until led. v is the view that its predecessor stored. The
// predecessor may go on granting leases for slack from now.
func (k *Leader) Elected(now ticks.Tick, term uint64, led, slack ticks.Tick, v View) {
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

// Led extends the leadership of a term.
func (k *Leader) Led(term uint64, led ticks.Tick) {
	if term == k.term {
		k.led = max(k.led, led)
	}
}

// Leads reports whether the leader may decide at now.
func (k *Leader) Leads(now ticks.Tick) bool { return k.term != 0 && now < k.led }

// Saved takes the answer to a Save. If ok is false, another term is newer, and the leader stops
// leading.
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

// Unsaved takes the answer to a Save of which nobody knows whether the view was stored. The latest
// view is saved in its place, because nobody has heard of either (K1).
func (k *Leader) Unsaved(term uint64) (again []Save) {
	if term != k.term || !k.saving {
		return nil
	}
	k.saving = false
	return k.save()
}

// Renewed takes a member's Renew and answers it. If ok is false, the leader does not lead and must
// not answer.
func (k *Leader) Renewed(now ticks.Tick, in Renew) (g Grant, saves []Save, ok bool) {
	if !k.Leads(now) {
		return g, nil, false
	}
	if k.older(in) && now >= k.alone {
		k.begin(in)
	}
	i := slices.IndexFunc(k.view.Ring, func(m Place) bool { return m.Name == in.Name })
	switch {
	case k.older(in): // the member asks again when leases of a predecessor are over
	case i < 0 && in.Incarnation == 0 && !in.Leaving:
		k.join(now, in)
	case i >= 0 && in.Leaving && now >= k.alone:
		k.out(func(m Place) bool { return m.Name == in.Name })
	case i >= 0 && (in.Incarnation == 0 || in.Incarnation == k.view.Ring[i].Incarnation):
		o := k.view.Ring[i].Incarnation
		// A Renew that was sent before the member heard of its place does not say what it knows.
		k.seen[o] = heard{now, in.Knows || in.Incarnation == 0 && k.seen[o].knows}
		if now >= k.alone {
			// K5: members that know may have left while another leader led.
			k.out(func(Place) bool { return false })
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

// maxIncarnation is the largest number of an incarnation. The number above it is for external
// writes.
const maxIncarnation = math.MaxUint32 - 1

// older reports whether a member knows of something that neither this leader nor a predecessor
// whose state it has decided. Then the state of the coordinator was lost, or an old one was
// restored (K8).
func (k *Leader) older(in Renew) bool {
	switch {
	case max(in.Incarnation, in.Store.Newest) > k.view.Newest, in.Store.Number > k.view.Number:
		return true
	case in.View < k.fresh: // this leader began anew above that view
		return false
	}
	return in.View > k.stored.Number || in.View == k.stored.Number && in.Sum != k.sum
}

// begin removes all members, and continues with numbers above every number that is known to be used
// (K8).
func (k *Leader) begin(in Renew) {
	if max(in.Incarnation, in.Store.Newest) > maxIncarnation || max(in.View, in.Store.Number) >= math.MaxUint64/2 {
		return // no leader and no store has such numbers
	}
	k.out(func(Place) bool { return true })
	k.view.Newest = max(k.view.Newest, in.Incarnation, in.Store.Newest)
	k.view.Number = max(k.view.Number, in.View, in.Store.Number) + 1
	k.fresh = k.view.Number
}

// join adds a new incarnation at the end of the ring.
func (k *Leader) join(now ticks.Tick, in Renew) {
	if k.view.Newest >= maxIncarnation {
		return // the numbers are used up
	}
	k.view.Number++
	k.view.Newest++ // K2
	o := k.view.Newest
	if len(k.view.Ring) == 0 { // K8: an older state may lack departed incarnations
		k.view.Departed = slices.Compact(slices.Sorted(slices.Values(slices.Concat(k.view.Departed, in.Store.Open))))
		k.view.Departed = slices.DeleteFunc(k.view.Departed, func(l uint32) bool { return l == 0 || l >= o })
	}
	k.seen[o] = heard{at: now, knows: len(k.view.Ring) == 0} // K5: a member that is alone asks the store
	k.view.Ring = append(slices.Clip(k.view.Ring), Place{o, in.Name, in.Addr, in.Host})
}

// out removes members. If no remaining member knows what a member must, it removes all of them
// (K5).
func (k *Leader) out(which func(Place) bool) {
	left := slices.DeleteFunc(slices.Clone(k.view.Ring), which)
	knows := func(m Place) bool {
		h, heard := k.seen[m.Incarnation]
		return h.knows || !heard // it may have told a predecessor that it knows, and will tell this leader
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

// Beat removes members that were silent for too long.
func (k *Leader) Beat(now ticks.Tick) []Save {
	if !k.Leads(now) || now < k.since {
		return nil
	}
	k.out(func(m Place) bool { return now-k.seen[m.Incarnation].at > k.opt.Silence })
	return k.save()
}

// Gone removes the members of a process that was seen to end.
func (k *Leader) Gone(now ticks.Tick, host string) []Save {
	if !k.Leads(now) || now < k.alone { // Beat removes them later, for their silence
		return nil
	}
	k.out(func(m Place) bool { return m.Host == host })
	return k.save()
}

// save stores the latest view, one view at a time.
func (k *Leader) save() []Save {
	if k.saving || k.stored.Number == k.view.Number {
		return nil
	}
	k.saving = true
	return []Save{{k.term, k.view}}
}

// View returns the latest view that was stored.
func (k *Leader) View() View { return k.stored }

// Check panics if the leader's state breaks an invariant. It is for tests.
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
