package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/dotted"
)

// The calls of a Dotted that a hook sees.
const (
	OpPersist Op = "persist"
	OpFetch   Op = "fetch"
	OpForget  Op = "forget"
	OpMerge   Op = "merge"
)

// Dotted is a store of causal rows in memory, as package dotted speaks of them. It is
// safe for concurrent use.
type Dotted struct {
	opt Options

	mu      sync.Mutex
	rows    map[string]dotted.Row
	beside  map[string][]dotted.Version // the rows, if concurrent writes are kept
	kept    *bool
	largest uint64
	lives   map[uint32]*life
	buried  uint64
	claimed claim
	closed  bool
}

// claim is how far the rows of an asynchronous space have come.
type claim struct {
	term, number uint64
	mark         []byte
}

// life is what is known of an origin.
type life struct {
	settled uint64 // let go up to here
	journal map[uint64][]byte
	fenced  bool
	name    dotted.Name // zero if it never began
}

// NewDotted returns an empty store. Of the options the clock does not matter.
func NewDotted(opt Options) *Dotted {
	hook := func(context.Context, Call) error { return nil }
	if opt.Before == nil {
		opt.Before = hook
	}
	if opt.After == nil {
		opt.After = hook
	}
	return &Dotted{opt: opt, rows: map[string]dotted.Row{}, lives: map[uint32]*life{}}
}

// call runs what a call does between its hooks.
func (s *Dotted) call(ctx context.Context, c Call, do func() error) error {
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
func (s *Dotted) Load(ctx context.Context, keys ...string) (rows []dotted.Row, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	err = s.call(ctx, Call{OpLoad, keys[0]}, func() error {
		for _, k := range keys {
			r, ok := s.rows[k]
			if s.beside != nil {
				r.Among = slices.Clone(s.beside[k])
			}
			if !ok {
				r.Stamp.Time = s.buried
			}
			rows = append(rows, r)
		}
		return nil
	})
	return rows, err
}

// Keep says whether the space keeps concurrent writes, before it is used.
func (s *Dotted) Keep(ctx context.Context, concurrent bool) error {
	return s.call(ctx, Call{OpPersist, ""}, func() error {
		if s.kept == nil {
			began := concurrent && len(s.lives) == 0
			s.kept = &began
		}
		switch {
		case *s.kept != concurrent:
			return dotted.ErrKept
		case concurrent && s.beside == nil:
			s.beside = map[string][]dotted.Version{}
		}
		return nil
	})
}

// Begin makes an origin that may persist.
func (s *Dotted) Begin(ctx context.Context, origin uint32, name dotted.Name) error {
	return s.call(ctx, Call{OpPersist, ""}, func() error {
		if l := s.lives[origin]; l != nil {
			if l.fenced || l.name != name {
				return dotted.ErrBegun
			}
			return nil
		}
		s.lives[origin] = &life{journal: map[uint64][]byte{}, name: name}
		return nil
	})
}

// Known is what the store knows of the lives of the space.
func (s *Dotted) Known(ctx context.Context) (k dotted.Known, err error) {
	err = s.call(ctx, Call{OpFetch, ""}, func() error {
		k.Term = s.claimed.term
		for _, o := range slices.Sorted(maps.Keys(s.lives)) {
			if o == dotted.Outside {
				continue
			}
			if k.Newest = o; !s.lives[o].fenced || len(s.lives[o].journal) > 0 {
				k.Open = append(k.Open, o)
			}
		}
		return nil
	})
	return k, err
}

// Persist commits a write.
func (s *Dotted) Persist(ctx context.Context, w dotted.Write) error {
	if err := s.Fits(w.Muts); err != nil {
		return err
	}
	key := ""
	for _, m := range w.Muts {
		key = m.Key
	}
	return s.call(ctx, Call{OpPersist, key}, func() error {
		l := s.lives[w.Dot.Origin]
		switch {
		case l == nil || l.fenced:
			return dotted.ErrFenced
		case w.Dot.N <= l.settled || l.journal[w.Dot.N] != nil:
			return nil
		}
		l.journal[w.Dot.N] = append([]byte{}, w.Body...)
		s.largest = max(s.largest, w.Stamp.Time)
		for i, m := range w.Muts {
			if s.beside != nil {
				stay := slices.DeleteFunc(slices.Clone(s.beside[m.Key]), func(v dotted.Version) bool { return w.Replaced(&w.Muts[i], v) })
				s.beside[m.Key] = append(stay, w.Version(&w.Muts[i]))
				continue
			}
			if !s.rows[m.Key].Stamp.Less(w.Stamp) {
				continue
			}
			row := dotted.Row{Exists: !m.Delete, Stamp: w.Stamp, Dot: w.Dot}
			if row.Exists {
				row.Value = append([]byte{}, m.Value...)
			}
			s.rows[m.Key] = row
		}
		return nil
	})
}

// Fetch returns what the journal has of the dots, in their order.
func (s *Dotted) Fetch(ctx context.Context, dots []dotted.Dot) (bodies [][]byte, err error) {
	err = s.call(ctx, Call{OpFetch, ""}, func() error {
		for _, d := range dots {
			if l := s.lives[d.Origin]; l != nil && l.journal[d.N] != nil {
				bodies = append(bodies, l.journal[d.N])
			}
		}
		return nil
	})
	return bodies, err
}

// Journal returns up to limit entries of an origin behind the number after, in order,
// and up to which number the origin has let go. It is ErrFenced if it never began.
func (s *Dotted) Journal(ctx context.Context, origin uint32, after uint64, limit int) (entries []dotted.Entry, settled uint64, err error) {
	err = s.call(ctx, Call{OpFetch, ""}, func() error {
		l := s.lives[origin]
		if l == nil {
			return dotted.ErrFenced
		}
		settled = l.settled
		for n, b := range l.journal {
			if n > after {
				entries = append(entries, dotted.Entry{N: n, Body: b})
			}
		}
		slices.SortFunc(entries, func(a, b dotted.Entry) int { return cmp.Compare(a.N, b.N) })
		entries = entries[:min(limit, len(entries))]
		return nil
	})
	return entries, settled, err
}

// Forget lets the journal drop an origin's writes up to a number. It is ErrFenced if the
// origin is.
func (s *Dotted) Forget(ctx context.Context, origin uint32, upto uint64) error {
	return s.letGo(ctx, origin, upto, false)
}

// Drop is Forget for an origin that is fenced.
func (s *Dotted) Drop(ctx context.Context, origin uint32, upto uint64) error {
	return s.letGo(ctx, origin, upto, true)
}

func (s *Dotted) letGo(ctx context.Context, origin uint32, upto uint64, fenced bool) error {
	return s.call(ctx, Call{OpForget, ""}, func() error {
		l := s.lives[origin]
		if l == nil || l.fenced != fenced {
			return dotted.ErrFenced
		}
		if upto <= l.settled {
			return nil
		}
		if upto-l.settled > uint64(len(l.journal)) {
			maps.DeleteFunc(l.journal, func(n uint64, _ []byte) bool { return n <= upto })
		} else {
			for n := l.settled + 1; n <= upto; n++ {
				delete(l.journal, n)
			}
		}
		l.settled = upto
		return nil
	})
}

// Bury forgets deleted keys whose stamps have a smaller time.
func (s *Dotted) Bury(ctx context.Context, before uint64) error {
	return s.call(ctx, Call{OpForget, ""}, func() error {
		s.buried = max(s.buried, before)
		maps.DeleteFunc(s.rows, func(_ string, r dotted.Row) bool { return !r.Exists && r.Stamp.Time < before })
		for k, versions := range s.beside {
			s.beside[k] = slices.DeleteFunc(slices.Clone(versions), func(v dotted.Version) bool { return !v.Exists && v.Stamp.Time < before })
		}
		return nil
	})
}

// Largest returns the largest time of a stamp that was ever persisted.
func (s *Dotted) Largest(ctx context.Context) (time uint64, err error) {
	err = s.call(ctx, Call{OpFetch, ""}, func() error {
		time = s.largest
		return nil
	})
	return time, err
}

// Fence ends an origin, also one that has not begun.
func (s *Dotted) Fence(ctx context.Context, origin uint32) error {
	return s.call(ctx, Call{OpForget, ""}, func() error {
		if s.lives[origin] == nil {
			s.lives[origin] = &life{journal: map[uint64][]byte{}}
		}
		s.lives[origin].fenced = true
		return nil
	})
}

// Fenced returns those of some origins that were fenced.
func (s *Dotted) Fenced(ctx context.Context, origins ...uint32) (out []uint32, err error) {
	err = s.call(ctx, Call{OpFetch, ""}, func() error {
		for _, o := range origins {
			if l := s.lives[o]; l != nil && l.fenced {
				out = append(out, o)
			}
		}
		return nil
	})
	return out, err
}

// Claim lets nobody merge any more in a smaller term.
func (s *Dotted) Claim(ctx context.Context, term uint64) (mark []byte, err error) {
	err = s.call(ctx, Call{OpFetch, ""}, func() error {
		if term < s.claimed.term {
			return dotted.ErrFenced
		}
		if term > s.claimed.term {
			s.claimed.term, s.claimed.number = term, 0
		}
		mark = s.claimed.mark
		return nil
	})
	return mark, err
}

// Merge lets rows compete with those that are there.
func (s *Dotted) Merge(ctx context.Context, f dotted.Flush) error {
	return s.call(ctx, Call{OpMerge, ""}, func() error {
		switch {
		case f.Term != s.claimed.term:
			return dotted.ErrFenced
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

// Fits says what is wrong with mutations that can never be persisted, or merged.
func (s *Dotted) Fits(muts []dotted.Mutation) error {
	if slices.ContainsFunc(muts, func(m dotted.Mutation) bool { return m.Key == "" }) {
		return fmt.Errorf("%w: a key of 0 bytes", store.ErrTooLarge)
	}
	return nil
}

// Lives returns the origins that have begun and were not removed.
func (s *Dotted) Lives(ctx context.Context) (out []uint32, err error) {
	err = s.call(ctx, Call{OpFetch, ""}, func() error {
		out = slices.Sorted(maps.Keys(s.lives))
		return nil
	})
	return out, err
}

// Remove forgets an origin, and its journal.
func (s *Dotted) Remove(ctx context.Context, origin uint32) error {
	return s.call(ctx, Call{OpForget, ""}, func() error {
		delete(s.lives, origin)
		return nil
	})
}

// Outside writes a row as who knows nothing of caches does, without a dot.
func (s *Dotted) Outside(key string, value []byte, time uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beside != nil {
		s.beside[key] = []dotted.Version{{Exists: true, Value: value, Stamp: dotted.Stamp{Time: time}}}
		return
	}
	s.rows[key] = dotted.Row{Exists: true, Value: value, Stamp: dotted.Stamp{Time: time}}
}

// Close ends the store; later calls fail.
func (s *Dotted) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
