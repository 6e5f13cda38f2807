package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/ticks"
)

// merging is the state of a MeshStore for an asynchronous space: the log of every incarnation on
// its own disk, and which writes are in the rows.
type merging struct {
	logs   map[mesh.Dot][]*mesh.Write // the writes in a log entry, by the dot of the entry
	shut   map[mesh.Incarnation]bool  // the log was found, and takes no more writes
	back   map[mesh.Incarnation]bool  // the log was given back
	mark   mesh.Frontier              // every write that was merged, according to the server that merges
	term   uint64
	number uint64
	given  map[mesh.Incarnation]bool // given up: writes that are not in the rows may be lost
}

func newMerging() merging {
	return merging{logs: map[mesh.Dot][]*mesh.Write{}, shut: map[mesh.Incarnation]bool{}, back: map[mesh.Incarnation]bool{}, given: map[mesh.Incarnation]bool{}}
}

// Log commits a write to the log of its incarnation, with the writes that its session carries.
func (s *MeshStore) Log(w *mesh.Write, with []*mesh.Write) mesh.Status {
	switch {
	case s.shut[w.Dot.Incarnation]:
		return mesh.Fenced
	case w.Dot.N <= s.truncated[w.Dot.Incarnation] || s.logs[w.Dot] != nil:
		return mesh.OK
	case impossible(w):
		return mesh.Refused
	}
	s.logs[w.Dot] = append(slices.Clone(with), w)
	s.know(w)
	return mesh.OK
}

// Trim truncates the log of an incarnation up to a number.
func (s *MeshStore) Trim(o mesh.Incarnation, upto uint64) {
	s.truncated[o] = max(s.truncated[o], upto)
	maps.DeleteFunc(s.logs, func(d mesh.Dot, _ []*mesh.Write) bool { return d.Incarnation == o && d.N <= upto })
}

// Found returns the log of an incarnation. Nothing is added to that log any more.
func (s *MeshStore) Found(o mesh.Incarnation) (out []*mesh.Write) {
	s.shut[o] = true
	for _, d := range slices.SortedFunc(maps.Keys(s.logs), mesh.Dot.Compare) {
		if d.Incarnation == o {
			out = append(out, s.logs[d]...)
		}
	}
	return out
}

// Release removes the log of an incarnation, which was given back.
func (s *MeshStore) Release(o mesh.Incarnation) {
	s.back[o], s.shut[o] = true, true
	maps.DeleteFunc(s.logs, func(d mesh.Dot, _ []*mesh.Write) bool { return d.Incarnation == o })
}

// GiveUp ends the wait for an incarnation's log. Once the incarnation is retired, judges do not
// expect the writes that only this log had.
func (s *MeshStore) GiveUp(o mesh.Incarnation) {
	s.given[o] = true
	s.Release(o)
}

// lost reports whether a write may be gone, as far as a server can tell.
func (s *MeshStore) lost(d mesh.Dot, m *mesh.Server) bool {
	return s.given[d.Incarnation] && !m.Visible().Covers(d)
}

// Back returns which of some incarnations have given back their logs.
func (s *MeshStore) Back(incarnations []mesh.Incarnation) []mesh.Incarnation {
	return slices.DeleteFunc(slices.Clone(incarnations), func(o mesh.Incarnation) bool { return !s.back[o] })
}

// Claim ends the merging of earlier views, and returns what was merged.
func (s *MeshStore) Claim(term uint64) (mesh.Frontier, mesh.Status) {
	if term < s.term {
		return mesh.Frontier{}, mesh.Fenced
	}
	if term > s.term {
		s.term, s.number = term, 0
	}
	return s.mark.Clone(), mesh.OK
}

// Merge lets writes compete for their rows. The error says that the rows are no causal cut any
// more. retired reports whether an incarnation is retired.
func (s *MeshStore) Merge(f mesh.Flush, retired func(mesh.Incarnation) bool) (mesh.Status, error) {
	switch {
	case f.Term != s.term:
		return mesh.Fenced, nil
	case f.Number <= s.number:
		return mesh.OK, nil
	}
	missing := s.mark.Without(retired).Missing(f.Durable, nil)
	for _, w := range f.Writes {
		missing = append(missing, w.Deps.Without(retired).Missing(f.Durable, nil)...)
		for _, d := range append(slices.Clone(w.After), w.Dot) {
			if !f.Durable.Covers(d) && !retired(d.Incarnation) {
				missing = append(missing, d)
			}
		}
		s.compete(w)
	}
	s.mark, s.number = f.Durable.Clone(), f.Number
	if len(missing) > 0 {
		return mesh.OK, fmt.Errorf("the rows are said to have %v, and %v is missing there", f.Durable, missing)
	}
	return mesh.OK, nil
}

// Mark returns the set of writes that were merged.
func (s *MeshStore) Mark() mesh.Frontier { return s.mark }

// Committed reports whether an acknowledged write was ever committed.
func (s *MeshStore) Committed(d mesh.Dot) bool { return s.truth[d] != nil }

// reachable demands that memory or the rows have the newest visible write of every key, because a
// miss finds nothing else.
func (s *MeshStore) reachable(m *mesh.Server) error {
	if s.siblings != nil { // a key has several newest writes
		return nil
	}
	for key, writes := range s.byKey {
		want := s.newest(key, writes, m).Stamp
		got, _, _ := m.Holds(key)
		if row := s.Load(key).Stamp; got.Less(row) {
			got = row
		}
		if got.Less(want) {
			return fmt.Errorf("%v of %s is visible, and there is no more than %v of it, in memory or in the rows", want, key, got)
		}
	}
	return nil
}

// drain carries out what a server asks of the rows and of the logs.
func (s *meshStorm) drain(n *meshNode, out mesh.Output) {
	switch out := out.(type) {
	case mesh.Claim:
		s.ask(n, func() mesh.Input {
			mark, status := s.store.Claim(out.Term)
			if status != mesh.OK {
				s.sometimes("a claim is too late")
			}
			return mesh.Claimed{Call: out.Call, Durable: mark, Status: status}
		}, mesh.Claimed{Call: out.Call, Status: mesh.StatusUnknown})
	case mesh.Flush:
		s.flushed(out)
		s.ask(n, func() mesh.Input {
			if out.Term == s.store.term && out.Number <= s.store.number {
				s.sometimes("a batch arrives again")
			}
			status, err := s.store.Merge(out, s.retired)
			s.fail(err)
			return mesh.Flushed{Call: out.Call, Status: status}
		}, mesh.Flushed{Call: out.Call, Status: mesh.StatusUnknown})
	case mesh.Release:
		s.after(s.disk(), func() {
			if !s.store.back[out.Incarnation] {
				s.sometimes("a log is released")
			}
			s.store.Release(out.Incarnation)
		})
	}
}

// flushed demands that every member has received a write before it is merged.
func (s *meshStorm) flushed(out mesh.Flush) {
	for _, w := range out.Writes {
		for _, o := range s.view.Ring {
			if n := s.nodes[o-1]; n.m != nil && !n.down && !n.m.Received().Covers(w.Dot) && !s.retired(w.Dot.Incarnation) {
				s.fail(fmt.Errorf("%v is on its way into the rows, and server %d has not received it", w, o))
			}
		}
	}
}

// retired reports whether an incarnation is retired in the current view.
func (s *meshStorm) retired(o mesh.Incarnation) bool {
	return s.view.Retired(o)
}

// bring lets a server find the log of a departed incarnation. It repeats that until the whole log
// was given back, because the server may end before.
func (s *meshStorm) bring(o mesh.Incarnation) {
	r := s.rng("disks")
	late := 1
	if !s.calm {
		late = s.cfg.Late
	}
	s.after(s.cfg.Delay+s.disk()+spread(r, 30*s.cfg.Delay*ticks.Tick(late)), func() {
		if s.store.back[o] {
			return
		}
		defer s.bring(o)
		n := s.nodes[s.view.Ring[r.IntN(len(s.view.Ring))]-1]
		if s.frozen || n.down || n.m == nil || !slices.Contains(n.m.View().Departed, o) {
			return
		}
		s.sometimes("a log is found")
		s.step(n, mesh.Returned{Incarnation: o, Writes: s.store.Found(o)})
	})
}

// partial records that a server keeps a write of a key of which it does not know the rest.
func (s *meshStorm) partial(n *meshNode) {
	for i := range s.cfg.Keys {
		if _, partial, ok := n.m.Holds(string(rune('a' + i))); ok && partial {
			s.sometimes("a partial entry")
		}
	}
}

// outage ends all servers at once. A ring begins with a new incarnation that finds the store, and
// others join it. Writes that are not in the rows are in the logs.
func (s *meshStorm) outage() {
	if s.calm {
		return
	}
	s.sometimes("all servers crash")
	s.log("all servers crash")
	v := s.following()
	gone := slices.Clone(v.Ring)
	v.Newest++
	v.Ring, v.Departed = []mesh.Incarnation{v.Newest}, append(v.Departed, gone...)
	for _, n := range s.nodes {
		n.down = true // before a client acts again
	}
	mark, _ := s.store.Claim(v.Number)
	settled, floor := s.store.Left()
	mark = mark.Union(settled.Only(mesh.External))
	n := &meshNode{incarnation: v.Newest}
	s.nodes = append(s.nodes, n)
	s.announce(v)
	opt := s.options(n.incarnation)
	opt.Truncated, opt.Floor = mark, floor
	n.m = mesh.New(opt)
	s.enter(n)
	for _, dead := range s.nodes[:len(s.nodes)-1] {
		dead.down = false
		s.stop(dead)
	}
	for _, o := range gone {
		s.bring(o)
	}
	for range s.rng("coordinator").IntN(3) {
		s.after(spread(s.rng("coordinator"), 30*s.cfg.Delay), s.join)
	}
}

// owed reports whether incarnations from before an outage are not retired yet. Until then, the ring
// may lack writes that a session has seen.
func (s *meshStorm) owed() bool { return s.cfg.Outages && len(s.view.Departed) > 0 }
