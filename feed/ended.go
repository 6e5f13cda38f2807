package feed

// MostEnded is how many incarnations an Ended remembers.
const MostEnded = 4096

// Ended remembers the incarnations that have ended last, so that no feed of one is begun again when a
// message of it arrives late. The zero value remembers none. It is not safe for concurrent use.
type Ended[K comparable] struct {
	has   map[K]bool
	order []K
}

// Add notes that an incarnation has ended, which it does once.
func (e *Ended[K]) Add(k K) {
	if e.has == nil {
		e.has = map[K]bool{}
	}
	e.has[k] = true
	if e.order = append(e.order, k); len(e.order) > MostEnded {
		delete(e.has, e.order[0])
		e.order = e.order[1:]
	}
}

// Has reports whether an incarnation has ended.
func (e *Ended[K]) Has(k K) bool { return e.has[k] }
