package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// Store is a store as the design demands it, in memory and in steps, so that a
// world can put anything between two of them. A commit is admitted, which
// checks its guards, and then applied; a SetGuard waits for what was admitted.
type Store struct {
	rows    map[string]row
	version uint64
	tablets []tablet
	waits   map[int][]string // their keys
	next    int
}

// row is what is stored; a tombstone has no value and Exists false.
type row struct {
	clink.Row
	expires ticks.Tick // by the store's clock; 0 never
}

// tablet is one of the store's own ranges with its guards, which are soft state.
type tablet struct {
	lease.Range
	guards []guard // sorted, not overlapping; elsewhere there is none
}

type guard struct {
	lease.Range
	token clink.Token
}

// NewStore returns an empty store of one tablet.
func NewStore() *Store {
	return &Store{rows: map[string]row{}, tablets: []tablet{{}}, waits: map[int][]string{}}
}

// Load is the row of key by the store's clock.
func (s *Store) Load(now ticks.Tick, key string) clink.Row {
	r := s.rows[key]
	r.Guard = s.tablet(key).at(key)
	switch {
	case r.expires == 0:
	case now < r.expires:
		r.TTL = r.expires - now
	default: // absence after expiry has a version of its own
		r.Exists, r.Value, r.Version = false, nil, r.Version+1
	}
	return r.Row
}

// Admit takes a commit if its guards stand; the status is OK or Mismatch. What
// was admitted is in flight until Apply.
func (s *Store) Admit(muts []clink.Mut) (int, clink.Status) {
	var keys []string
	for _, m := range muts {
		if s.tablet(m.Key).at(m.Key) != m.Guard {
			return 0, clink.Mismatch
		}
		keys = append(keys, m.Key)
	}
	s.next++
	s.waits[s.next] = keys
	return s.next, clink.OK
}

// Apply commits what was admitted, all or none.
func (s *Store) Apply(now ticks.Tick, admitted int, id clink.ID, muts []clink.Mut) (clink.Status, []clink.Stamp) {
	delete(s.waits, admitted)
	for _, m := range muts {
		if m.Check && s.Load(now, m.Key).Version != m.Expect {
			return clink.Conflict, nil
		}
	}
	var stamps []clink.Stamp
	for _, m := range muts {
		was := s.rows[m.Key]
		s.version += 2
		r := row{Row: clink.Row{Exists: !m.Delete, Version: s.version, Writer: id}}
		if !m.Delete {
			r.Value = m.Value
			switch {
			case m.TTL == clink.KeepTTL:
				r.expires = was.expires
			case m.TTL > 0:
				r.expires = now + m.TTL
			}
		}
		s.rows[m.Key] = r
		stamp := clink.Stamp{Version: r.Version}
		if r.expires > 0 {
			stamp.TTL = r.expires - now
		}
		stamps = append(stamps, stamp)
	}
	return clink.OK, stamps
}

// Sweep forgets who deleted a row, or that it expired: what absence keeps is a
// version.
func (s *Store) Sweep(now ticks.Tick, key string) {
	if r := s.Load(now, key); !r.Exists {
		s.rows[key] = row{Row: clink.Row{Version: r.Version}}
	}
}

// Blocked reports whether a SetGuard over r has to wait for a commit in flight.
func (s *Store) Blocked(r lease.Range) bool {
	for _, keys := range s.waits {
		if slices.ContainsFunc(keys, r.Contains) {
			return true
		}
	}
	return false
}

// SetGuard installs a token over r if r lies inside one tablet. The caller has
// seen that it is not Blocked.
func (s *Store) SetGuard(r lease.Range, token clink.Token) clink.Status {
	for i := range s.tablets {
		if t := &s.tablets[i]; t.Covers(r) {
			t.guards = append(cutOut(t.guards, r), guard{r, token})
			slices.SortFunc(t.guards, func(a, b guard) int { return strings.Compare(a.Low, b.Low) })
			return clink.OK
		}
	}
	return clink.Layout
}

// cutOut is the guards without what lies in r.
func cutOut(guards []guard, r lease.Range) (out []guard) {
	for _, g := range guards {
		in, ok := g.Intersect(r)
		if !ok {
			out = append(out, g)
			continue
		}
		if g.Low < in.Low {
			out = append(out, guard{lease.Range{Low: g.Low, High: in.Low}, g.token})
		}
		if in.High != "" && (g.High == "" || in.High < g.High) {
			out = append(out, guard{lease.Range{Low: in.High, High: g.High}, g.token})
		}
	}
	return out
}

func (s *Store) tablet(key string) *tablet {
	for i := range s.tablets {
		if s.tablets[i].Contains(key) {
			return &s.tablets[i]
		}
	}
	panic("sim: tablets leave a gap")
}

func (t *tablet) at(key string) clink.Token {
	for _, g := range t.guards {
		if g.Contains(key) {
			return g.token
		}
	}
	return clink.Token{}
}

// Points are the tablet boundaries.
func (s *Store) Points() (out []string) {
	for _, t := range s.tablets[1:] {
		out = append(out, t.Low)
	}
	return out
}

// Split cuts a tablet; both halves keep the guards.
func (s *Store) Split(at string) {
	for i, t := range s.tablets {
		if t.Contains(at) && t.Low != at {
			left, right := tablet{Range: lease.Range{Low: t.Low, High: at}}, tablet{Range: lease.Range{Low: at, High: t.High}}
			left.guards, right.guards = t.part(left.Range), t.part(right.Range)
			s.tablets = slices.Replace(s.tablets, i, i+1, left, right)
			return
		}
	}
}

func (t *tablet) part(r lease.Range) (out []guard) {
	for _, g := range t.guards {
		if in, ok := g.Intersect(r); ok {
			out = append(out, guard{in, g.token})
		}
	}
	return out
}

// Merge removes the i-th boundary; the guards of both parts stay.
func (s *Store) Merge(i int) {
	if i+1 >= len(s.tablets) {
		return
	}
	l, r := s.tablets[i], s.tablets[i+1]
	m := tablet{lease.Range{Low: l.Low, High: r.High}, append(slices.Clone(l.guards), r.guards...)}
	s.tablets = slices.Replace(s.tablets, i, i+2, m)
}

// Forget loses the guards of the tablet that holds key, as a restart does.
func (s *Store) Forget(key string) { s.tablet(key).guards = nil }

// Dump is the state as text.
func (s *Store) Dump() string {
	var b strings.Builder
	for _, k := range sorted(s.rows) {
		r := s.rows[k]
		fmt.Fprintf(&b, "%s=%q %v by %v\n", k, r.Value, r.Exists, r.Writer)
	}
	for _, t := range s.tablets {
		fmt.Fprintf(&b, "tablet %v", t.Range)
		for _, g := range t.guards {
			fmt.Fprintf(&b, " %v:%v", g.Range, g.token)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
