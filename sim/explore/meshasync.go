package explore

import (
	"fmt"
	"slices"

	"github.com/freshet-cache/freshet/causal/mesh"
)

// options of an incarnation that begins now.
func (w *meshWorld) options(o mesh.Incarnation) mesh.Options {
	s := w.scope
	return mesh.Options{Incarnation: o, View: w.view, Keys: s.Capacity, Window: s.Window, Versions: s.Versions, Concurrent: s.Concurrent, Async: s.Async, Batch: s.Batch}
}

// found are the logs that may be found, and where.
func (w *meshWorld) found() (out []choice) {
	if !w.scope.Async {
		return nil
	}
	for _, o := range w.view.Departed {
		if len(w.store.Back([]mesh.Incarnation{o})) > 0 {
			continue
		}
		for i, m := range w.servers {
			if m != nil && !w.down[i] && slices.Contains(m.View().Departed, o) {
				out = append(out, choice{says("the log of %d is found at %d", o, i+1), func() { w.bring(o, i) }})
			}
		}
	}
	return out
}

// bring gives a log to a server.
func (w *meshWorld) bring(o mesh.Incarnation, i int) {
	w.step(i, mesh.Returned{Incarnation: o, Writes: w.store.Found(o)})
}

// merge is what the store does for whoever merges.
func (w *meshWorld) merge(out mesh.Output) mesh.Input {
	switch out := out.(type) {
	case mesh.Claim:
		mark, status := w.store.Claim(out.Term)
		return mesh.Claimed{Call: out.Call, Durable: mark, Status: status}
	case mesh.Flush:
		status, err := w.store.Merge(out, w.retired)
		w.fail(err)
		return mesh.Flushed{Call: out.Call, Status: status}
	}
	panic("nobody knows this request")
}

// stable wants of what is to be merged that every member has received it.
func (w *meshWorld) stable(out mesh.Flush) {
	for _, o := range w.view.Ring {
		for _, f := range out.Writes {
			if m := w.servers[o-1]; m != nil && !w.down[o-1] && !m.Received().Covers(f.Dot) && !w.retired(f.Dot.Incarnation) {
				w.fail(fmt.Errorf("%v is to be merged, and server %d has not received it", f, o))
			}
		}
	}
}

func (w *meshWorld) retired(o mesh.Incarnation) bool {
	return o <= w.view.Newest && !slices.Contains(w.view.Ring, o) && !slices.Contains(w.view.Departed, o)
}

// unanswered is what a server hears of a request whose answer is lost; nil if that does not happen.
func unanswered(out mesh.Output) mesh.Input {
	switch out := out.(type) {
	case mesh.Persist:
		return mesh.Persisted{Call: out.Call, Status: mesh.StatusUnknown}
	case mesh.Flush:
		return mesh.Flushed{Call: out.Call, Status: mesh.StatusUnknown}
	}
	return nil
}

// persist commits a write where this scope has it first.
func (w *meshWorld) persist(out mesh.Persist) mesh.Status {
	if w.scope.Async {
		return w.store.Log(out.Write, out.With)
	}
	return w.store.Persist(out.Write)
}
