package explore

import (
	"slices"

	"github.com/freshet-cache/freshet/causal/mesh"
)

// changes are what may happen to the ring.
func (w *meshWorld) changes() (out []choice) {
	add := func(name text, do func()) { out = append(out, choice{name, do}) }
	healthy := 0
	for _, o := range w.view.Ring {
		if w.servers[o-1] != nil && !w.down[o-1] {
			healthy++
		}
	}
	for i, m := range w.servers {
		o := mesh.Incarnation(i + 1)
		member := slices.Contains(w.view.Ring, o)
		switch {
		case m == nil && member:
			if back := w.before(i); w.servers[back] != nil && !w.down[back] && w.servers[back].View().Number == w.view.Number {
				add(says("%d begins with a snapshot of %d", o, back+1), func() { w.step(back, mesh.Asked{From: o, View: w.view.Number}) })
			}
		case m == nil || w.down[i] || !member:
		default:
			if m.View().Number < w.view.Number {
				add(says("%d hears of view %d", o, w.view.Number), func() { w.tell(i) })
			}
			if w.left.Crashes > 0 && healthy > 1 {
				add(says("%d crashes", o), func() { w.left.Crashes--; w.stop(i); w.exclude(o) })
			}
			if w.left.Suspects > 0 && healthy > 1 {
				add(says("%d is suspected", o), func() { w.left.Suspects--; w.exclude(o) })
			}
		}
	}
	if w.left.Joins > 0 {
		add(says("a server joins"), func() {
			w.left.Joins--
			v := w.decide()
			v.Newest++
			v.Ring = slices.Insert(v.Ring, 1, v.Newest)
			w.view = v
			w.add(nil)
		})
	}
	return out
}

func (w *meshWorld) add(m *mesh.Server) {
	w.servers, w.down = append(w.servers, m), append(w.down, false)
	w.links, w.linked, w.broken = append(w.links, nil), append(w.linked, 0), append(w.broken, false)
}

// stop ends an incarnation; who waits for it asks again, and does not know what became of a Put.
func (w *meshWorld) stop(i int) {
	w.down[i], w.links[i], w.broken[i] = true, nil, false
	for _, c := range w.sessions {
		c.busy = c.busy && c.at != i
	}
	w.reqs = slices.DeleteFunc(slices.Clone(w.reqs), func(r *meshRequest) bool {
		_, persist := r.out.(mesh.Persist) // one that is on its way may arrive
		_, flush := r.out.(mesh.Flush)
		return r.server == i && (!persist && !flush || r.answer != nil)
	})
}

// decide is the current view with the next number.
func (w *meshWorld) decide() mesh.View {
	v := w.view
	v.Number++
	v.Ring, v.Departed = slices.Clone(v.Ring), slices.Clone(v.Departed)
	return v
}

func (w *meshWorld) exclude(o mesh.Incarnation) {
	v := w.decide()
	v.Ring = slices.DeleteFunc(v.Ring, func(r mesh.Incarnation) bool { return r == o })
	v.Departed = append(v.Departed, o)
	w.view = v
}

func (w *meshWorld) retire(o mesh.Incarnation) {
	if v := w.decide(); slices.Contains(v.Departed, o) {
		v.Departed = slices.DeleteFunc(v.Departed, func(l mesh.Incarnation) bool { return l == o })
		w.view = v
	}
}

// tell lets a server hear of the current view; neighbours that are in one connect.
func (w *meshWorld) tell(i int) {
	w.step(i, mesh.Viewed{View: w.view})
	w.relink()
}

func (w *meshWorld) relink() {
	for i, m := range w.servers {
		if m == nil || w.down[i] {
			continue
		}
		j, v := w.after(i), m.View().Number
		if n := w.servers[j]; n != nil && n.View().Number == v && w.linked[i] < v {
			w.connect(i)
		}
	}
}

func (w *meshWorld) connect(i int) {
	w.links[i], w.broken[i], w.linked[i] = nil, false, w.servers[i].View().Number
	w.step(w.after(i), mesh.Opened{View: w.linked[i]})
}

// after and before are the neighbours of a server.
func (w *meshWorld) after(i int) int {
	ring := w.servers[i].View().Ring
	return int(ring[(slices.Index(ring, mesh.Incarnation(i+1))+1)%len(ring)]) - 1
}

func (w *meshWorld) before(i int) int {
	ring := w.view.Ring
	return int(ring[(slices.Index(ring, mesh.Incarnation(i+1))+len(ring)-1)%len(ring)]) - 1
}

func (w *meshWorld) checkRing() {
	var members, others []*mesh.Server
	for i, m := range w.servers {
		switch {
		case m == nil || w.down[i]:
		case slices.Contains(w.view.Ring, mesh.Incarnation(i+1)):
			members = append(members, m)
		default:
			others = append(others, m)
		}
	}
	mesh.CheckRing(members, others...)
}
