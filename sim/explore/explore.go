// Package explore runs machines through every schedule of a small scope, breadth
// first, and finds the shortest one that breaks a promise. The machines are the
// ones that ship; only the world around them is small.
//
// A state is known again by its text, so the machines need nothing but a Dump;
// and it is reached again by replaying its choices, so they need no copying.
package explore

import (
	"fmt"
	"hash/fnv"
	"runtime"
	"sync"
)

// World is one run of a scope. A new World is in the first state.
type World interface {
	// Choices describes what may happen next, in a fixed order.
	Choices() []string
	// Choose lets the i-th of them happen; an error says which promise broke.
	Choose(i int) error
	// Dump is the state as text: two worlds with the same Dump have the same future.
	Dump() string
}

// Result says how far an exploration came.
type Result struct {
	States    int      // different states seen
	Steps     int      // transitions tried
	Depth     int      // the longest schedule
	Complete  bool     // every state of the scope was seen
	Trace     []string // the shortest schedule that broke a promise; nil if none did
	Violation error
}

// String is a line for a report.
func (r Result) String() string {
	all := "all"
	if !r.Complete {
		all = "the first"
	}
	return fmt.Sprintf("%s %d states, %d transitions, %d deep", all, r.States, r.Steps, r.Depth)
}

// Run explores from the state that begin returns, at most limit states.
func Run(limit int, begin func() World) Result {
	e := &explorer{begin: begin, limit: limit, seen: map[uint64]bool{}}
	frontier := [][]byte{nil}
	e.visit(begin())
	for len(frontier) > 0 && e.res.Violation == nil && e.res.States < limit {
		e.next = nil
		var wg sync.WaitGroup
		n := runtime.GOMAXPROCS(0)
		for w := range n {
			wg.Go(func() {
				for i := w; i < len(frontier); i += n {
					if !e.expand(frontier[i]) {
						return
					}
				}
			})
		}
		wg.Wait()
		if frontier = e.next; len(frontier) > 0 {
			e.res.Depth = len(frontier[0])
		}
	}
	e.res.Complete = len(frontier) == 0 && e.res.Violation == nil
	if e.res.Violation != nil {
		e.res.Trace = trace(begin, e.broken)
	}
	return e.res
}

type explorer struct {
	begin func() World
	limit int

	mu     sync.Mutex
	seen   map[uint64]bool
	next   [][]byte
	res    Result
	broken []byte
}

// visit reports whether the state is new.
func (e *explorer) visit(w World) bool {
	h := fnv.New64a()
	h.Write([]byte(w.Dump()))
	sum := h.Sum64()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.res.Steps++
	if e.seen[sum] {
		return false
	}
	e.seen[sum] = true
	e.res.States++
	return true
}

// expand tries every choice after path; false means that it is time to stop.
func (e *explorer) expand(path []byte) bool {
	w := replay(e.begin, path)
	n := len(w.Choices())
	for i := range n {
		if i > 0 {
			w = replay(e.begin, path)
		}
		err := choose(w, i)
		step := append(append(make([]byte, 0, len(path)+1), path...), byte(i))
		if err != nil {
			e.mu.Lock()
			if e.res.Violation == nil || len(step) < len(e.broken) {
				e.res.Violation, e.broken = err, step
			}
			e.mu.Unlock()
			return false
		}
		if e.visit(w) {
			e.mu.Lock()
			e.next = append(e.next, step)
			e.mu.Unlock()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.res.States < e.limit
}

// choose turns the panic of an invariant into an error.
func choose(w World, i int) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return w.Choose(i)
}

func replay(begin func() World, path []byte) World {
	w := begin()
	for _, i := range path {
		if err := w.Choose(int(i)); err != nil {
			panic(fmt.Sprintf("explore: a schedule that was fine before broke: %v", err))
		}
	}
	return w
}

func trace(begin func() World, path []byte) (out []string) {
	w := begin()
	for _, i := range path {
		out = append(out, w.Choices()[i])
		if choose(w, int(i)) != nil {
			break
		}
	}
	return out
}
