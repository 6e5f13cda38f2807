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
	"math/rand/v2"
	"runtime"
	"runtime/debug"
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

// choice is one thing that may happen.
type choice struct {
	name text
	do   func()
}

// text is written when somebody reads it: a replay passes thousands of choices by, and writing
// each of them took longer than the machines.
type text struct {
	format string
	args   []any
}

func says(format string, args ...any) text { return text{format, args} }

func (t text) String() string { return fmt.Sprintf(t.format, t.args...) }

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

// Run explores from the state that begin returns, at most limit states. It sees the
// same states and finds the same schedule in every run, however many processors work.
func Run(limit int, begin func() World) Result {
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // replays leave garbage at a rate that a small heap is collected for all the time
	e := &explorer{begin: begin, limit: limit, seen: map[uint64]bool{}}
	e.visit(sum(begin()))
	for frontier := [][]byte{nil}; len(frontier) > 0; frontier = e.next {
		e.res.Depth = len(frontier[0])
		e.next = nil
		if !e.level(frontier) {
			return e.res
		}
	}
	e.res.Complete = true
	return e.res
}

type explorer struct {
	begin func() World
	limit int
	seen  map[uint64]bool
	next  [][]byte
	res   Result
}

// batch is how many states are expanded before what was found is taken over in order.
const batch = 256

// level takes one more choice from each state of the frontier; false means that it is
// time to stop.
func (e *explorer) level(frontier [][]byte) bool {
	for ; len(frontier) > 0; frontier = frontier[min(batch, len(frontier)):] {
		paths := frontier[:min(batch, len(frontier))]
		found := make([][]step, len(paths))
		var wg sync.WaitGroup
		n := runtime.GOMAXPROCS(0)
		for w := range n {
			wg.Go(func() {
				for i := w; i < len(paths); i += n {
					found[i] = expand(e.begin, paths[i])
				}
			})
		}
		wg.Wait()
		for i, steps := range found {
			if !e.take(paths[i], steps) {
				return false
			}
		}
	}
	return true
}

// take notes where the choices after path led; false means that it is time to stop.
func (e *explorer) take(path []byte, steps []step) bool {
	for i, s := range steps {
		after := append(append(make([]byte, 0, len(path)+1), path...), byte(i))
		if s.err != nil {
			e.res.Violation, e.res.Trace = s.err, trace(e.begin, after)
			return false
		}
		if e.visit(s.sum) {
			e.next = append(e.next, after)
		}
	}
	return e.res.States < e.limit
}

// visit reports whether the state is new.
func (e *explorer) visit(sum uint64) bool {
	e.res.Steps++
	if e.seen[sum] {
		return false
	}
	e.seen[sum] = true
	e.res.States++
	return true
}

// step is where a choice leads: a state, or a promise that broke.
type step struct {
	sum uint64
	err error
}

// expand tries every choice after path, up to the first that breaks a promise.
func expand(begin func() World, path []byte) []step {
	w := replay(begin, path)
	steps := make([]step, len(w.Choices()))
	for i := range steps {
		if i > 0 {
			w = replay(begin, path)
		}
		if steps[i].err = choose(w, i); steps[i].err != nil {
			return steps[:i+1]
		}
		steps[i].sum = sum(w)
	}
	return steps
}

func sum(w World) uint64 {
	h := fnv.New64a()
	h.Write([]byte(w.Dump()))
	return h.Sum64()
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

// Walk takes random choices from the state that begin returns, at most so many, until a promise
// breaks or nothing is left to choose. The first choice is taken more often than the others. The same
// seed takes the same choices.
func Walk(seed uint64, most int, begin func() World) (res Result) {
	w, r := begin(), rand.New(rand.NewPCG(seed, 0x77616c6b))
	for res.Steps < most {
		choices := w.Choices()
		if len(choices) == 0 {
			res.Complete = true
			return res
		}
		i := 0
		if r.IntN(5) > 0 {
			i = r.IntN(len(choices))
		}
		res.Steps, res.Trace = res.Steps+1, append(res.Trace, choices[i])
		if res.Violation = choose(w, i); res.Violation != nil {
			return res
		}
	}
	return res
}
