package mesh_test

import (
	"slices"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/freshet-cache/freshet/causal/mesh"
)

// persist commits a write where this space has it first.
func (s *story) persist(p mesh.Persist) mesh.Status {
	if s.opt.Async {
		return s.store.Log(p.Write, p.With)
	}
	return s.store.Persist(p.Write)
}

// merge is what the store does for whoever merges.
func (s *story) merge(r *request) mesh.Input {
	switch out := r.out.(type) {
	case mesh.Claim:
		mark, status := s.store.Claim(out.Term)
		return mesh.Claimed{Call: out.Call, Durable: mark, Status: status}
	case mesh.Flush:
		status, err := s.store.Merge(out, func(o mesh.Incarnation) bool {
			return o <= s.view.Newest && !slices.Contains(s.view.Ring, o) && !slices.Contains(s.view.Departed, o)
		})
		if err != nil {
			s.say("BROKEN in the store: %v", err)
		}
		return mesh.Flushed{Call: out.Call, Status: status}
	}
	panic("nobody knows this request")
}

// release lets a log go, as it is said when all of it is in the rows.
func (s *story) release(incarnation mesh.Incarnation) {
	if len(s.store.Back([]mesh.Incarnation{incarnation})) == 0 {
		s.say("the log of %d is released", incarnation)
	}
	s.store.Release(incarnation)
}

// found gives the log of an incarnation, of=, to a server; or nobody finds it, and it is given up.
func (s *story) found(t *testing.T, d *datadriven.TestData, at int) {
	incarnation := 0
	d.ScanArgs(t, "of", &incarnation)
	if d.HasArg("never") {
		s.say("the log of %d is given up", incarnation)
		s.store.GiveUp(mesh.Incarnation(incarnation))
		return
	}
	s.step(at, mesh.Returned{Incarnation: mesh.Incarnation(incarnation), Writes: s.store.Found(mesh.Incarnation(incarnation))})
}
