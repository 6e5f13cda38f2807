package sim

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/freshet-cache/freshet/causal/mesh"
)

// MeshStore is a store as package mesh needs it: rows that keep the largest stamp, and a journal.
// For the judges it remembers every write that was ever committed.
type MeshStore struct {
	rows      map[string]mesh.Row
	journal   map[mesh.Dot]*mesh.Write
	truncated map[mesh.Incarnation]uint64
	fenced    map[mesh.Incarnation]bool
	truth     map[mesh.Dot]*mesh.Write
	byKey     map[string][]*mesh.Write
	external  map[string]mesh.Item
	horizon   uint64
	siblings  map[string][]*mesh.Write // the rows of a space that keeps siblings
	strange   mesh.Dot                 // the last external write that left a dot
	drawn     uint64                   // its time
	merging
}

// NewMeshStore returns a store without rows.
func NewMeshStore() *MeshStore {
	return &MeshStore{rows: map[string]mesh.Row{}, journal: map[mesh.Dot]*mesh.Write{}, truncated: map[mesh.Incarnation]uint64{},
		fenced: map[mesh.Incarnation]bool{}, truth: map[mesh.Dot]*mesh.Write{}, byKey: map[string][]*mesh.Write{}, external: map[string]mesh.Item{}, merging: newMerging()}
}

// Concurrent makes the rows keep siblings.
func (s *MeshStore) Concurrent() *MeshStore {
	s.siblings = map[string][]*mesh.Write{}
	return s
}

// Persist commits a write, once. It refuses values that begin with "!".
func (s *MeshStore) Persist(w *mesh.Write) mesh.Status {
	switch {
	case s.fenced[w.Dot.Incarnation]:
		return mesh.Fenced
	case w.Dot.N <= s.truncated[w.Dot.Incarnation] || s.journal[w.Dot] != nil:
		return mesh.OK
	case impossible(w):
		return mesh.Refused
	}
	s.journal[w.Dot] = w
	s.know(w)
	s.compete(w)
	return mesh.OK
}

func impossible(w *mesh.Write) bool {
	return slices.ContainsFunc(w.Muts, func(m mesh.Mut) bool { return bytes.HasPrefix(m.Value, []byte("!")) })
}

// know remembers a write for the judges.
func (s *MeshStore) know(w *mesh.Write) {
	s.truth[w.Dot] = w
	for _, m := range w.Muts {
		s.byKey[m.Key] = append(s.byKey[m.Key], w)
	}
}

// compete gives a write the rows that it wins.
func (s *MeshStore) compete(w *mesh.Write) {
	for _, m := range w.Muts {
		if s.siblings != nil {
			s.keep(m.Key, w)
		}
		if s.rows[m.Key].Stamp.Less(w.Stamp) {
			s.rows[m.Key] = mesh.Row{Item: mesh.Item{Exists: !m.Delete, Value: m.Value, Stamp: w.Stamp}, Dot: w.Dot}
		}
	}
}

// WriteExternally writes a row externally, and leaves no dot.
func (s *MeshStore) WriteExternally(key, value string, time uint64) {
	s.external[key] = mesh.Item{Exists: true, Value: []byte(value), Stamp: mesh.Stamp{Time: time}}
	s.rows[key] = mesh.Row{Item: s.external[key]}
}

// Trigger writes a row externally and leaves a dot, as a database's trigger does.
func (s *MeshStore) Trigger(key, value string, now uint64) {
	s.strange = mesh.Dot{Incarnation: mesh.External, N: s.strange.N + 1}
	s.drawn = max(now, s.drawn, s.rows[key].Stamp.Time, s.horizon) + 1
	w := &mesh.Write{Dot: s.strange, Stamp: mesh.Stamp{Time: s.drawn, Incarnation: mesh.External}, Muts: []mesh.Mut{{Key: key, Value: []byte(value), Delete: value == ""}}}
	s.Persist(w)
}

// Poll returns some of the external writes that the journal has after a number, in order.
func (s *MeshStore) Poll(after uint64) (out []*mesh.Write) {
	for n := after + 1; n <= s.strange.N && len(out) < 3; n++ {
		if w := s.journal[mesh.Dot{Incarnation: mesh.External, N: n}]; w != nil {
			out = append(out, w)
		}
	}
	return out
}

// Load returns the row of a key.
func (s *MeshStore) Load(key string) mesh.Row {
	if s.siblings != nil {
		return s.rowOf(key)
	}
	if r, ok := s.rows[key]; ok {
		return r
	}
	return mesh.Row{Item: mesh.Item{Stamp: mesh.Stamp{Time: s.horizon}}}
}

// Fetch returns what the journal has of the dots.
func (s *MeshStore) Fetch(dots []mesh.Dot) (out []*mesh.Write) {
	for _, d := range dots {
		if w := s.journal[d]; w != nil {
			out = append(out, w)
		}
	}
	return out
}

// Truncate drops an incarnation's journal entries up to a number.
func (s *MeshStore) Truncate(o mesh.Incarnation, upto uint64) {
	s.truncated[o] = max(s.truncated[o], upto)
	maps.DeleteFunc(s.journal, func(d mesh.Dot, _ *mesh.Write) bool { return d.Incarnation == o && d.N <= upto })
}

// Left returns what a ring begins with that finds only the store: the writes that were truncated or
// merged, and the largest stamp.
func (s *MeshStore) Left() (settled mesh.Frontier, floor mesh.Stamp) {
	for o, n := range s.truncated {
		for i := range n {
			settled.Add(mesh.Dot{Incarnation: o, N: i + 1})
		}
	}
	for _, r := range s.rows {
		if floor.Less(r.Stamp) {
			floor = r.Stamp
		}
	}
	floor.Time = max(floor.Time, s.horizon)
	settled = settled.Union(s.mark)
	return settled, floor
}

// CollectTombstones drops tombstones with a smaller time.
func (s *MeshStore) CollectTombstones(before uint64) {
	s.horizon = max(s.horizon, before)
	maps.DeleteFunc(s.rows, func(_ string, r mesh.Row) bool {
		news := r.Dot.Incarnation == mesh.External && r.Dot.N > s.truncated[mesh.External] // M19
		return !r.Exists && r.Stamp.Time < before && !news
	})
	for key, row := range s.siblings { // in any order, because keys are independent
		s.siblings[key] = slices.DeleteFunc(row, func(w *mesh.Write) bool { return w.Muts[0].Delete && w.Stamp.Time < before })
	}
}

// Recover fences incarnations, and returns what their journals have.
func (s *MeshStore) Recover(incarnations []mesh.Incarnation) (out []*mesh.Write) {
	for _, o := range incarnations {
		s.fenced[o] = true
	}
	for _, d := range slices.SortedFunc(maps.Keys(s.journal), mesh.Dot.Compare) {
		if slices.Contains(incarnations, d.Incarnation) {
			out = append(out, s.journal[d])
		}
	}
	slices.Reverse(out) // a store may return them in any order
	return out
}

// Judge compares a server with the truth. The visible writes must include the causes of each, and
// memory must have the newest visible value.
func (s *MeshStore) Judge(m *mesh.Server) error {
	visible := m.Visible()
	for d, w := range s.truth { // the order decides only which violation is reported
		if !m.Shows(d) {
			continue
		}
		for _, c := range w.Deps.Missing(visible, nil) {
			if !m.Shows(c) {
				return fmt.Errorf("%v is visible without its cause %v", w, c)
			}
		}
		for _, c := range w.After {
			if !m.Shows(c) {
				return fmt.Errorf("%v is visible without its cause %v", w, c)
			}
		}
	}
	for key, writes := range s.byKey {
		got, ok := m.Peek(key)
		if !ok {
			continue
		}
		if s.siblings != nil {
			if err := s.Same(key, got, m.Shows); err != nil {
				return fmt.Errorf("in memory, %w", err)
			}
			continue
		}
		want := s.newest(key, writes, m)
		if got.Exists != want.Exists || got.Exists && !bytes.Equal(got.Value, want.Value) {
			return fmt.Errorf("%s is %v in memory, and %v is the newest of what is visible: %v", key, got, want, visible)
		}
		if err := s.versions(key, m); err != nil {
			return err
		}
	}
	return s.reachable(m)
}

// versions judges the former values of a key: above their base they must be all that are visible.
func (s *MeshStore) versions(key string, m *mesh.Server) error {
	stamps, base := m.Kept(key)
	if len(stamps) == 1 {
		return nil
	}
	for _, w := range s.byKey[key] {
		if m.Shows(w.Dot) && !w.Stamp.Less(base) && !slices.Contains(stamps, w.Stamp) {
			return fmt.Errorf("%v is visible, and the versions of %s are %v above %v", w, key, stamps, base)
		}
	}
	for i := range stamps {
		if i > 0 && !stamps[i].Less(stamps[i-1]) || stamps[i].Less(base) {
			return fmt.Errorf("the versions of %s are %v above %v", key, stamps, base)
		}
	}
	return nil
}

func (s *MeshStore) newest(key string, writes []*mesh.Write, m *mesh.Server) (it mesh.Item) {
	it = s.external[key]
	for _, w := range writes {
		if it.Stamp.Less(w.Stamp) && m.Shows(w.Dot) && !s.lost(w.Dot, m) {
			for _, mut := range w.Muts {
				if mut.Key == key {
					it = mesh.Item{Exists: !mut.Delete, Value: mut.Value, Stamp: w.Stamp}
				}
			}
		}
	}
	return it
}

// Agree compares a server at rest with the store.
func (s *MeshStore) Agree(m *mesh.Server) error {
	for key := range s.siblings {
		if got, ok := m.Peek(key); ok {
			in := func(d mesh.Dot) bool {
				return slices.ContainsFunc(s.siblings[key], func(w *mesh.Write) bool { return w.Dot == d })
			}
			if err := s.Same(key, got, in); err != nil {
				return fmt.Errorf("all is at rest: %w", err)
			}
		}
	}
	if s.siblings != nil {
		return nil
	}
	for key, r := range s.rows {
		if got, ok := m.Peek(key); ok && (got.Exists != r.Exists || got.Exists && !bytes.Equal(got.Value, r.Value)) {
			return fmt.Errorf("all is at rest, and %s is %v in memory and %v in the store", key, got, r.Item)
		}
	}
	return nil
}

// Journal returns how many entries the journal and the logs have.
func (s *MeshStore) Journal() int { return len(s.journal) + len(s.logs) }

// Dump returns the store as text.
func (s *MeshStore) Dump() string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(s.rows)) {
		if s.siblings == nil {
			fmt.Fprintf(&b, "row %s = %v %v\n", k, s.rows[k].Item, s.rows[k].Dot)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.siblings)) {
		for _, w := range s.siblings[k] {
			fmt.Fprintf(&b, "row %s has %v\n", k, w)
		}
	}
	var lines []string
	for _, w := range s.journal {
		lines = append(lines, fmt.Sprintf("journal %v\n", w))
	}
	for d, writes := range s.logs {
		lines = append(lines, fmt.Sprintf("log of %d: %v\n", d.Incarnation, writes))
	}
	slices.Sort(lines)
	if s.term > 0 {
		lines = append(lines, fmt.Sprintf("merged %v in view %d\n", s.mark, s.term))
	}
	for _, o := range slices.Sorted(maps.Keys(s.shut)) {
		lines = append(lines, fmt.Sprintf("the log of %d takes no more\n", o))
	}
	for _, o := range slices.Sorted(maps.Keys(s.back)) {
		lines = append(lines, fmt.Sprintf("the log of %d is back\n", o))
	}
	return fmt.Sprintln(b.String(), "collected before", s.horizon, strings.Join(lines, ""))
}

// Horizon returns the time below which tombstones were dropped. All older writes were visible
// everywhere by then.
func (s *MeshStore) Horizon() uint64 { return s.horizon }

// Older reports whether a write has a smaller time.
func (s *MeshStore) Older(d mesh.Dot, time uint64) bool {
	w := s.truth[d]
	return w != nil && w.Stamp.Time < time
}

// Causes reports whether a write is a cause of another.
func (s *MeshStore) Causes(d, cause mesh.Dot) bool {
	w := s.truth[d]
	return w != nil && (w.Deps.Covers(cause) || slices.ContainsFunc(w.After, func(c mesh.Dot) bool { return c == cause || s.Causes(c, cause) }))
}

// Find returns the write that left a stamp at a key.
func (s *MeshStore) Find(key string, stamp mesh.Stamp) (mesh.Dot, bool) {
	for _, w := range s.byKey[key] {
		if w.Stamp == stamp {
			return w.Dot, true
		}
	}
	return mesh.Dot{}, false
}

// Wrote reports whether a write was to a key.
func (s *MeshStore) Wrote(d mesh.Dot, key string) bool {
	w := s.truth[d]
	return w != nil && slices.ContainsFunc(w.Muts, func(m mesh.Mut) bool { return m.Key == key })
}

// Snapshot judges a transaction: of every key, it must have read the newest write of its snapshot.
func (s *MeshStore) Snapshot(tx *mesh.Tx) error {
	if s.siblings != nil {
		return nil
	}
	carried := map[mesh.Dot]bool{}
	for _, w := range tx.Carried {
		carried[w.Dot] = true
	}
	for _, seen := range tx.Seen {
		newest := s.external[seen.Key].Stamp
		for _, w := range s.byKey[seen.Key] {
			if newest.Less(w.Stamp) && (tx.At.Has(w.Dot) || carried[w.Dot]) {
				newest = w.Stamp
			}
		}
		if seen.Stamp != newest && seen.Stamp.Incarnation != 0 || seen.Stamp.Less(newest) {
			return fmt.Errorf("%s was read as of %v, and %v is the newest in the snapshot %v", seen.Key, seen.Stamp, newest, tx.At.Set)
		}
	}
	return nil
}
