package sim

import (
	"fmt"
	"slices"

	"github.com/freshet-cache/freshet/ticks"
)

// Plan is all that is decided before a run. The same plan always runs the same way; what
// remains of it when parts are taken out runs nearly so.
type Plan interface {
	// String is the plan for people.
	fmt.Stringer
	// Run runs the plan to its end, and on until nothing is under way. With log, the result
	// says what happened.
	Run(log bool) Result

	until(at ticks.Tick) Plan // without what begins after an instant
	lists() []list            // what parts can be taken out of
	calmer() []Plan           // with one thing turned off in each
}

// Simulation is one of the simulated worlds.
type Simulation struct {
	Name string
	Of   string                 // what runs in it
	New  func(seed uint64) Plan // draws a plan
}

// Simulations are all there are.
var Simulations = []Simulation{
	{"linear", "the machines of linear and of its leases", func(seed uint64) Plan { return NewLinearPlan(seed) }},
	{"causal", "the machines of causal", func(seed uint64) Plan { return NewCausalPlan(seed) }},
	{"eventual", "the machines of eventual", func(seed uint64) Plan { return NewEventualPlan(seed) }},
}

// list is a part of a plan that is a list.
type list struct {
	n       int
	without func(from, to int) Plan
}

func parts[T any](all []T, with func([]T) Plan) list {
	return list{len(all), func(from, to int) Plan { return with(slices.Concat(all[:from], all[to:])) }}
}

// calmer are the plans that changes of a configuration make, but for those that change nothing.
func calmer[C comparable](now C, with func(C) Plan, changes ...func(*C)) (out []Plan) {
	for _, change := range changes {
		c := now
		if change(&c); c != now {
			out = append(out, with(c))
		}
	}
	return out
}

// Shrink takes out of a failing plan what it can, as long as the plan still
// fails, in at most runs runs. It may end in another failure than it began with:
// any is worth looking at.
func Shrink(p Plan, runs int) (Plan, Result) {
	s := &shrinker{best: p, left: runs}
	s.res = p.Run(false)
	if s.res.Err == nil {
		return p, s.res
	}
	for smaller := true; smaller && s.left > 0; {
		smaller = false
		s.try(s.best.until(s.res.At))
		for i := range s.best.lists() {
			smaller = s.reduce(i) || smaller
		}
		for i := 0; i < len(s.best.calmer()); {
			if s.try(s.best.calmer()[i]) {
				smaller = true
			} else {
				i++
			}
		}
	}
	return s.best, s.best.Run(true)
}

type shrinker struct {
	best Plan
	res  Result
	left int
}

// try adopts a plan that still fails.
func (s *shrinker) try(p Plan) bool {
	if s.left--; s.left < 0 {
		return false
	}
	res := p.Run(false)
	if res.Err == nil {
		return false
	}
	s.best, s.res = p, res
	return true
}

// reduce takes ever smaller parts out of the plan's i-th list (delta debugging), and reports
// whether the plan is smaller now.
func (s *shrinker) reduce(i int) (smaller bool) {
	for part := max(1, s.best.lists()[i].n/2); ; part /= 2 {
		for at := 0; ; {
			all := s.best.lists()[i]
			if at >= all.n {
				break
			}
			if s.try(all.without(at, min(at+part, all.n))) {
				smaller = true
			} else {
				at += part
			}
		}
		if part == 1 {
			return smaller
		}
	}
}
