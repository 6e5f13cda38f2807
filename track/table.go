package track

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Options configure a Table. The zero value works.
type Options[C comparable] struct {
	// Keys bounds the keys that are remembered. Default 1 000 000.
	Keys int
	// Busy grows with all there is to tell, so that who writes need only look at
	// it. Default: one of the table's own.
	Busy *atomic.Int64
	// Alive reports whether a reader is still to be told. Default: all are.
	Alive func(C) bool
}

// Table remembers readers of type C. All methods are safe for concurrent use.
type Table[C comparable] struct {
	opt Options[C]

	mu       sync.Mutex
	keys     map[string]*entry[C]
	readers  int                   // of all keys together
	going    map[string]*Ticket[C] // the last to be told of a key, until it is done
	prefixes map[string][]C
	lengths  map[int]int // how many prefixes have a length
	ends     ends[C]
	counted  int64
	evicted  uint64
}

// entry is what is known of a key.
type entry[C comparable] struct {
	key  string
	who  []C
	set  map[C]struct{} // the same, once there are more than few
	via  any            // through what the key was read; nil if it matters not
	end  int64          // when the key's TTL has passed; 0 if it does not end
	heap int            // its place among those whose TTLs pass
}

// New returns an empty table.
func New[C comparable](opt Options[C]) *Table[C] {
	if opt.Keys <= 0 {
		opt.Keys = defaultKeys
	}
	if opt.Busy == nil {
		opt.Busy = &atomic.Int64{}
	}
	if opt.Alive == nil {
		opt.Alive = func(C) bool { return true }
	}
	return &Table[C]{opt: opt, keys: map[string]*entry[C]{}, going: map[string]*Ticket[C]{}, prefixes: map[string][]C{}, lengths: map[int]int{}}
}

// count publishes how much there is to tell.
func (t *Table[C]) count() {
	n := int64(len(t.keys) + len(t.going) + len(t.prefixes))
	t.opt.Busy.Add(n - t.counted)
	t.counted = n
}

func (e *entry[C]) has(who C) bool {
	if e.set != nil {
		_, ok := e.set[who]
		return ok
	}
	return slices.Contains(e.who, who)
}

func (e *entry[C]) add(who C) {
	e.who = append(e.who, who)
	if e.set == nil && len(e.who) > few {
		e.set = map[C]struct{}{}
		for _, w := range e.who {
			e.set[w] = struct{}{}
		}
	}
	if e.set != nil {
		e.set[who] = struct{}{}
	}
}

// Ticket says who is to be told of which keys. Whoever has one waits, tells, and
// is done.
type Ticket[C comparable] struct {
	// Tell are the keys by who has read them.
	Tell map[C][]string
	// Keys are those that were taken, or wait for another ticket.
	Keys []string

	t    *Table[C]
	wait []*Ticket[C]
	done chan struct{}
}

// ends orders keys by when their TTLs have passed.
type ends[C comparable] []*entry[C]

func (h ends[C]) Len() int { return len(h) }

func (h ends[C]) Less(i, j int) bool { return h[i].end < h[j].end }

func (h ends[C]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heap, h[j].heap = i, j
}

// Push implements heap.Interface.
func (h *ends[C]) Push(x any) {
	e := x.(*entry[C])
	e.heap = len(*h)
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *ends[C]) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.heap = -1
	return e
}

const (
	defaultKeys = 1_000_000
	pairsPerKey = 16 // readers of all keys together are bounded by so many for each key of the bound
	few         = 8  // readers of a key that are looked through one by one
)
