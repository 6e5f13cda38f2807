package mesh_test

import (
	"fmt"

	"github.com/freshet-cache/freshet/causal/mesh"
)

func (s *story) replied(r mesh.Reply) {
	c := s.calls[r.Op]
	delete(s.calls, r.Op)
	if r.Outcome != mesh.Done {
		s.say("%s is told: %s", c.session, outcomeNames[r.Outcome])
		return
	}
	if c.tx != "" {
		s.committed(c, r)
		return
	}
	items := s.session(c.session).Took(r, c.keys...)
	for i, it := range items {
		s.saw[c.session+c.keys[i]] = it.Dots()
	}
	for i, k := range c.keys {
		s.say("%s reads %s = %v", c.session, k, items[i])
	}
	if r.Write != nil {
		s.say("%s wrote %v", c.session, r.Write)
	}
	for _, w := range r.Carried {
		s.say("%s is to carry %v", c.session, w)
	}
}

var outcomeNames = []string{"done", "busy", "behind", "failed", "stale", "rejected", "over"}

var eventNames = [mesh.EventKinds]string{mesh.CarriedMiss: "a row newer than what is visible", mesh.Injected: "a write sent round for another",
	mesh.FellBehind: "a session it cannot serve", mesh.Retried: "a persist asked for again", mesh.Voided: "a void", mesh.StaleMessage: "a message of another view", mesh.Resent: "a write sent again", mesh.Extended: "a snapshot that moves", mesh.GaveBack: "a write given back"}

func messageText(m mesh.Message) string {
	switch m := m.(type) {
	case mesh.Chain:
		return fmt.Sprintf("%v of head %d", m.Write, m.Head)
	case mesh.StabilityRound:
		return fmt.Sprintf("a stability round: %v by the first, %v by all, low %d", m.Seen, m.Stable, m.Low)
	}
	return fmt.Sprint(m)
}
