package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/journal"
)

// The calls of a Journal that a hook sees.
const (
	OpPersist  Op = "persist"
	OpFetch    Op = "fetch"
	OpTruncate Op = "truncate"
	OpMerge    Op = "merge"
)

// Journal is a store of causal rows in memory, with the promises of package journal. It is safe for
// concurrent use.
type Journal struct {
	opt Options

	mu           sync.Mutex
	rows         map[string]journal.Row
	siblings     map[string][]journal.Version // the rows, if the space keeps siblings
	kept         *bool
	largest      uint64
	incarnations map[uint32]*incarnationState
	collected    uint64
	claimed      claim
	closed       bool
}

// claim says which term merges into the rows of an asynchronous space, and what was merged last.
type claim struct {
	term, number uint64
	mark         []byte
}

// incarnationState is what the store knows of an incarnation.
type incarnationState struct {
	truncated uint64 // entries up to this number were dropped
	journal   map[uint64][]byte
	fenced    bool
	name      journal.Name // zero if the incarnation never began
}

// NewJournal returns an empty store. It does not use opt.Clock.
func NewJournal(opt Options) *Journal {
	hook := func(context.Context, Call) error { return nil }
	if opt.Before == nil {
		opt.Before = hook
	}
	if opt.After == nil {
		opt.After = hook
	}
	return &Journal{opt: opt, rows: map[string]journal.Row{}, incarnations: map[uint32]*incarnationState{}}
}

// call runs do between the two hooks, under the lock.
func (s *Journal) call(ctx context.Context, c Call, do func() error) error {
	if err := s.opt.Before(ctx, c); err != nil {
		return err
	}
	s.mu.Lock()
	err := error(nil)
	if s.closed {
		err = store.ErrClosed
	} else {
		err = do()
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.opt.After(ctx, c)
}

// Load returns the rows of keys, all as of one instant.
func (s *Journal) Load(ctx context.Context, keys ...string) (rows []journal.Row, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	err = s.call(ctx, Call{OpLoad, keys[0]}, func() error {
		for _, k := range keys {
			r, ok := s.rows[k]
			if s.siblings != nil {
				r.Siblings = slices.Clone(s.siblings[k])
			}
			if !ok {
				r.Stamp.Time = s.collected
			}
			rows = append(rows, r)
		}
		return nil
	})
	return rows, err
}

// KeepSiblings says whether the space keeps siblings. Call it before the first use of the space. It
// returns journal.ErrSiblings if the space was begun with the other setting.
func (s *Journal) KeepSiblings(ctx context.Context, concurrent bool) error {
	return s.call(ctx, Call{OpPersist, ""}, func() error {
		if s.kept == nil {
			began := concurrent && len(s.incarnations) == 0
			s.kept = &began
		}
		switch {
		case *s.kept != concurrent:
			return journal.ErrSiblings
		case concurrent && s.siblings == nil:
			s.siblings = map[string][]journal.Version{}
		}
		return nil
	})
}

// Begin makes an incarnation, which may then persist. It returns journal.ErrBegun if the number
// belongs to another incarnation, or was fenced.
func (s *Journal) Begin(ctx context.Context, incarnation uint32, name journal.Name) error {
	return s.call(ctx, Call{OpPersist, ""}, func() error {
		if l := s.incarnations[incarnation]; l != nil {
			if l.fenced || l.name != name {
				return journal.ErrBegun
			}
			return nil
		}
		s.incarnations[incarnation] = &incarnationState{journal: map[uint64][]byte{}, name: name}
		return nil
	})
}

// Known returns what the store knows of the incarnations of the space.
func (s *Journal) Known(ctx context.Context) (k journal.Known, err error) {
	err = s.call(ctx, Call{OpFetch, ""}, func() error {
		k.Term = s.claimed.term
		for _, o := range slices.Sorted(maps.Keys(s.incarnations)) {
			if o == journal.External {
				continue
			}
			if k.Newest = o; !s.incarnations[o].fenced || len(s.incarnations[o].journal) > 0 {
				k.Open = append(k.Open, o)
			}
		}
		return nil
	})
	return k, err
}

// Persist commits a write. It returns journal.ErrFenced if the incarnation is fenced or never
// began.
func (s *Journal) Persist(ctx context.Context, w journal.Write) error {
	if err := s.Fits(w.Muts); err != nil {
		return err
	}
	key := ""
	for _, m := range w.Muts {
		key = m.Key
	}
	return s.call(ctx, Call{OpPersist, key}, func() error {
		l := s.incarnations[w.Dot.Incarnation]
		switch {
		case l == nil || l.fenced:
			return journal.ErrFenced
		case w.Dot.N <= l.truncated || l.journal[w.Dot.N] != nil:
			return nil
		}
		l.journal[w.Dot.N] = append([]byte{}, w.Body...)
		s.largest = max(s.largest, w.Stamp.Time)
		for i, m := range w.Muts {
			if s.siblings != nil {
				stay := slices.DeleteFunc(slices.Clone(s.siblings[m.Key]), func(v journal.Version) bool { return w.Supersedes(&w.Muts[i], v) })
				s.siblings[m.Key] = append(stay, w.Version(&w.Muts[i]))
				continue
			}
			if !s.rows[m.Key].Stamp.Less(w.Stamp) {
				continue
			}
			row := journal.Row{Exists: !m.Delete, Stamp: w.Stamp, Dot: w.Dot}
			if row.Exists {
				row.Value = append([]byte{}, m.Value...)
			}
			s.rows[m.Key] = row
		}
		return nil
	})
}

// Fetch returns the journal's entries of the dots, in the order of dots. It leaves out those that
// the journal does not have.
func (s *Journal) Fetch(ctx context.Context, dots []journal.Dot) (bodies [][]byte, err error) {
	err = s.call(ctx, Call{OpFetch, ""}, func() error {
		for _, d := range dots {
			if l := s.incarnations[d.Incarnation]; l != nil && l.journal[d.N] != nil {
				bodies = append(bodies, l.journal[d.N])
			}
		}
		return nil
	})
	return bodies, err
}

// Entries returns up to limit entries of an incarnation with numbers above after, in order.
// truncated is the number up to which the journal of the incarnation was truncated. Entries returns
// journal.ErrFenced if the incarnation never began.
func (s *Journal) Entries(ctx context.Context, incarnation uint32, after uint64, limit int) (entries []journal.Entry, truncated uint64, err error) {
	err = s.call(ctx, Call{OpFetch, ""}, func() error {
		l := s.incarnations[incarnation]
		if l == nil {
			return journal.ErrFenced
		}
		truncated = l.truncated
		for n, b := range l.journal {
			if n > after {
				entries = append(entries, journal.Entry{N: n, Body: b})
			}
		}
		slices.SortFunc(entries, func(a, b journal.Entry) int { return cmp.Compare(a.N, b.N) })
		entries = entries[:min(limit, len(entries))]
		return nil
	})
	return entries, truncated, err
}

// Truncate lets the journal drop an incarnation's writes up to a number. It returns
// journal.ErrFenced if the incarnation is fenced.
func (s *Journal) Truncate(ctx context.Context, incarnation uint32, upto uint64) error {
	return s.truncate(ctx, incarnation, upto, false)
}

// TruncateFenced is Truncate for an incarnation that is fenced.
func (s *Journal) TruncateFenced(ctx context.Context, incarnation uint32, upto uint64) error {
	return s.truncate(ctx, incarnation, upto, true)
}

func (s *Journal) truncate(ctx context.Context, incarnation uint32, upto uint64, fenced bool) error {
	return s.call(ctx, Call{OpTruncate, ""}, func() error {
		l := s.incarnations[incarnation]
		if l == nil || l.fenced != fenced {
			return journal.ErrFenced
		}
		if upto <= l.truncated {
			return nil
		}
		if upto-l.truncated > uint64(len(l.journal)) {
			maps.DeleteFunc(l.journal, func(n uint64, _ []byte) bool { return n <= upto })
		} else {
			for n := l.truncated + 1; n <= upto; n++ {
				delete(l.journal, n)
			}
		}
		l.truncated = upto
		return nil
	})
}

// CollectTombstones removes the tombstones whose stamps have a smaller time.
func (s *Journal) CollectTombstones(ctx context.Context, before uint64) error {
	return s.call(ctx, Call{OpTruncate, ""}, func() error {
		s.collected = max(s.collected, before)
		maps.DeleteFunc(s.rows, func(_ string, r journal.Row) bool { return !r.Exists && r.Stamp.Time < before })
		for k, versions := range s.siblings {
			s.siblings[k] = slices.DeleteFunc(slices.Clone(versions), func(v journal.Version) bool { return !v.Exists && v.Stamp.Time < before })
		}
		return nil
	})
}

// Largest returns the largest time of a stamp that was ever persisted.
func (s *Journal) Largest(ctx context.Context) (time uint64, err error) {
	err = s.call(ctx, Call{OpFetch, ""}, func() error {
		time = s.largest
		return nil
	})
	return time, err
}

// Fence ends an incarnation, even one that has not begun: none of its writes takes effect any more.
func (s *Journal) Fence(ctx context.Context, incarnation uint32) error {
	return s.call(ctx, Call{OpTruncate, ""}, func() error {
		if s.incarnations[incarnation] == nil {
			s.incarnations[incarnation] = &incarnationState{journal: map[uint64][]byte{}}
		}
		s.incarnations[incarnation].fenced = true
		return nil
	})
}

// Fenced returns those of the given incarnations that are fenced.
func (s *Journal) Fenced(ctx context.Context, incarnations ...uint32) (out []uint32, err error) {
	err = s.call(ctx, Call{OpFetch, ""}, func() error {
		for _, o := range incarnations {
			if l := s.incarnations[o]; l != nil && l.fenced {
				out = append(out, o)
			}
		}
		return nil
	})
	return out, err
}

// Claim refuses every later Merge of a smaller term, and returns the mark of the last Merge. It
// returns journal.ErrFenced if a larger term has claimed.
func (s *Journal) Claim(ctx context.Context, term uint64) (mark []byte, err error) {
	err = s.call(ctx, Call{OpFetch, ""}, func() error {
		if term < s.claimed.term {
			return journal.ErrFenced
		}
		if term > s.claimed.term {
			s.claimed.term, s.claimed.number = term, 0
		}
		mark = s.claimed.mark
		return nil
	})
	return mark, err
}

// Merge stores those rows of f that win by their stamps. It returns journal.ErrFenced if another
// term has claimed.
func (s *Journal) Merge(ctx context.Context, f journal.Flush) error {
	return s.call(ctx, Call{OpMerge, ""}, func() error {
		switch {
		case f.Term != s.claimed.term:
			return journal.ErrFenced
		case f.Number <= s.claimed.number:
			return nil
		}
		s.claimed.number, s.claimed.mark = f.Number, append([]byte{}, f.Mark...)
		for _, k := range f.Rows {
			s.largest = max(s.largest, k.Row.Stamp.Time)
			if s.rows[k.Key].Stamp.Less(k.Row.Stamp) {
				k.Row.Value = slices.Clone(k.Row.Value)
				s.rows[k.Key] = k.Row
			}
		}
		return nil
	})
}

// Fits returns why mutations can never be persisted or merged, or nil if they can.
func (s *Journal) Fits(muts []journal.Mutation) error {
	if slices.ContainsFunc(muts, func(m journal.Mutation) bool { return m.Key == "" }) {
		return fmt.Errorf("%w: a key of 0 bytes", store.ErrTooLarge)
	}
	return nil
}

// Incarnations returns the incarnations that have begun and were not removed.
func (s *Journal) Incarnations(ctx context.Context) (out []uint32, err error) {
	err = s.call(ctx, Call{OpFetch, ""}, func() error {
		out = slices.Sorted(maps.Keys(s.incarnations))
		return nil
	})
	return out, err
}

// Remove removes an incarnation and its journal.
func (s *Journal) Remove(ctx context.Context, incarnation uint32) error {
	return s.call(ctx, Call{OpTruncate, ""}, func() error {
		delete(s.incarnations, incarnation)
		return nil
	})
}

// WriteExternally makes an external write, without a dot.
func (s *Journal) WriteExternally(key string, value []byte, time uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.siblings != nil {
		s.siblings[key] = []journal.Version{{Exists: true, Value: value, Stamp: journal.Stamp{Time: time}}}
		return
	}
	s.rows[key] = journal.Row{Exists: true, Value: value, Stamp: journal.Stamp{Time: time}}
}

// Close closes the store. Later calls return store.ErrClosed.
func (s *Journal) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
