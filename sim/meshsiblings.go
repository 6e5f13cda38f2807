package sim

import (
	"fmt"
	"slices"

	"github.com/freshet-cache/freshet/causal/mesh"
)

// replaces is S1 as the judges see it, from the writes alone.
func replaces(key string, w, o *mesh.Write) bool {
	return slices.ContainsFunc(w.Muts, func(m mesh.Mut) bool { return m.Key == key && slices.Contains(m.Supersedes, o.Dot) })
}

// keep adds a write to the siblings of a key, and removes those that it replaces. No write that
// replaces it was persisted before.
func (s *MeshStore) keep(key string, w *mesh.Write) {
	row := slices.DeleteFunc(slices.Clone(s.siblings[key]), func(o *mesh.Write) bool { return replaces(key, w, o) })
	own := *w
	own.Muts = slices.DeleteFunc(slices.Clone(w.Muts), func(m mesh.Mut) bool { return m.Key != key })
	s.siblings[key] = append(row, &own)
}

// remain returns the dots of a key's writes that are in a set and that no write in the set
// replaces, without deletions.
func (s *MeshStore) remain(key string, in func(mesh.Dot) bool) (out []mesh.Dot) {
	var set []*mesh.Write
	for _, w := range s.byKey[key] {
		if in(w.Dot) {
			set = append(set, w)
		}
	}
	for _, w := range set {
		if !slices.ContainsFunc(set, func(o *mesh.Write) bool { return replaces(key, o, w) }) {
			out = append(out, w.Dot)
		}
	}
	return alive(key, s.truth, out)
}

// alive leaves out the dots of writes that delete the key.
func alive(key string, truth map[mesh.Dot]*mesh.Write, dots []mesh.Dot) (out []mesh.Dot) {
	for _, d := range dots {
		if slices.ContainsFunc(truth[d].Muts, func(m mesh.Mut) bool { return m.Key == key && !m.Delete }) {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, mesh.Dot.Compare)
	return out
}

// Same compares an answer for a key with what remains of its writes among those that in accepts.
func (s *MeshStore) Same(key string, got mesh.Item, in func(mesh.Dot) bool) error {
	var told []mesh.Dot
	for _, w := range got.Siblings {
		if s.truth[w.Dot] == nil {
			return fmt.Errorf("%s is %v, and nobody wrote %v", key, got, w)
		}
		told = append(told, w.Dot)
	}
	told = alive(key, s.truth, told)
	if want := s.remain(key, in); !slices.Equal(told, want) {
		return fmt.Errorf("%s is %v, but %v remain of what is known", key, got, want)
	}
	if got.Exists != (len(told) > 0) {
		return fmt.Errorf("%s is %v, of %v", key, got, told)
	}
	return nil
}

// rowOf returns the row of a key in a space that keeps siblings.
func (s *MeshStore) rowOf(key string) mesh.Row {
	return mesh.Row{Item: mesh.Item{Stamp: mesh.Stamp{Time: s.horizon}, Siblings: slices.Clone(s.siblings[key])}}
}
