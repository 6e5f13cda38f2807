package mesh_test

import "github.com/freshet-cache/freshet/causal/mesh"

// past reads rows and the journal, which answer at once.
func (s *story) past(who string, keys []string) {
	c := s.session(who)
	rows := make([]mesh.Row, len(keys))
	for i, k := range keys {
		rows[i] = s.store.Load(k)
	}
	p := c.Past(rows, keys, s.opt.Concurrent)
	for len(p.Wants()) > 0 {
		p.Fetched(s.store.Fetch(p.Wants()))
	}
	for i, it := range c.TookPast(p) {
		s.say("%s reads %s = %v", who, keys[i], it)
	}
	if len(c.Bare) > 0 {
		s.say("%s knows %v by name", who, c.Bare)
	}
}
