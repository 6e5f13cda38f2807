package sim

import "slices"

// Shrink takes out of a failing plan what it can, as long as the plan still
// fails, in at most runs runs. It may end in another failure than it began with:
// any is worth looking at.
func Shrink(p Plan, runs int) (Plan, Result) {
	s := &shrinker{best: p, left: runs}
	s.res = Run(p, false)
	if s.res.Err == nil {
		return p, s.res
	}
	for size := -1; size != s.size() && s.left > 0; {
		size = s.size()
		s.truncate()
		s.best.Faults = reduce(s, s.best.Faults, func(p *Plan, f []Fault) { p.Faults = f })
		s.best.Calls = reduce(s, s.best.Calls, func(p *Plan, c []Call) { p.Calls = c })
		s.calm()
	}
	return s.best, Run(s.best, true)
}

type shrinker struct {
	best Plan
	res  Result
	left int
}

func (s *shrinker) size() int { return len(s.best.Calls) + len(s.best.Faults) }

// try adopts a plan that still fails.
func (s *shrinker) try(p Plan) bool {
	if s.left--; s.left < 0 {
		return false
	}
	res := Run(p, false)
	if res.Err == nil {
		return false
	}
	s.best, s.res = p, res
	return true
}

// truncate drops what was to happen after the failure.
func (s *shrinker) truncate() {
	p := s.best
	p.Calls = slices.DeleteFunc(slices.Clone(p.Calls), func(c Call) bool { return c.At > s.res.At })
	p.Faults = slices.DeleteFunc(slices.Clone(p.Faults), func(f Fault) bool { return f.At > s.res.At })
	s.try(p)
}

// calm turns off what a plan can do without.
func (s *shrinker) calm() {
	for _, change := range []func(c *Config){
		func(c *Config) { c.Lag = 0 },
		func(c *Config) { c.Tags = false },
		func(c *Config) { c.Queue = 0 },
		func(c *Config) { c.Drift = 0 },
		func(c *Config) { c.Assigners = 1 },
	} {
		p := s.best
		if change(&p.Config); p.Config != s.best.Config {
			s.try(p)
		}
	}
}

// reduce takes out ever smaller parts of a list (delta debugging).
func reduce[T any](s *shrinker, all []T, set func(p *Plan, part []T)) []T {
	for part := max(1, len(all)/2); len(all) > 0; part /= 2 {
		for at := 0; at < len(all); {
			p, rest := s.best, slices.Concat(all[:at], all[min(at+part, len(all)):])
			if set(&p, rest); s.try(p) {
				all = rest
			} else {
				at += part
			}
		}
		if part == 1 {
			break
		}
	}
	return all
}
