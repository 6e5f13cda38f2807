package track

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Options configure a Table. The zero value works.
type Options[C comparable] struct {
	// Keys bounds the remembered keys. Default 1 000 000.
	Keys int
	// Busy is the sum of keys, prefixes and unfinished tickets. While it is 0, a writer need not
	// call Take. Default: a counter of the table.
	Busy *atomic.Int64
	// Alive reports whether a reader must still be notified. Default: every reader.
	Alive func(C) bool
}

// Table remembers readers of type C. All methods are safe for concurrent use.
type Table[C comparable] struct {
	opt Options[C]

	mu       sync.Mutex
	keys     map[string]*entry[C]
	readers  int                   // readers of all keys, summed up
	going    map[string]*Ticket[C] // the last ticket of a key, until it is done
	prefixes map[string][]C
	lengths  map[int]int // number of prefixes by length
	ends     ends[C]
	counted  int64
	evicted  uint64
}

// entry is what the table knows of a key.
type entry[C comparable] struct {
	key  string
	who  []C
	set  map[C]struct{} // the same as who, for more than few readers
	via  any            // where the key was read; nil if that does not matter
	end  int64          // when the TTL of the key ends; 0 if it has none
	heap int            // its index in the heap by end
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

// count publishes the number of entries, tickets and prefixes as Options.Busy.
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

// Ticket has the readers to notify of keys. Its holder calls Wait, notifies the readers, and calls
// Done.
type Ticket[C comparable] struct {
	// Tell has the keys to announce, by reader.
	Tell map[C][]string
	// Keys has all keys of the ticket, including those that only wait for another ticket.
	Keys []string

	t    *Table[C]
	wait []*Ticket[C]
	done chan struct{}
}

// ends is a heap of entries by the ends of their TTLs.
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
	pairsPerKey = 16 // bounds the average number of readers per key: all readers are at most pairsPerKey * Keys
	few         = 8  // up to so many readers of a key are a list, more are a set
)
