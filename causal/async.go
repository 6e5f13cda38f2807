package causal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
	"github.com/freshet-cache/freshet/internal/drive"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/journal"
)

// Log is the disk to which the servers of a process write first, in an asynchronous space. Package
// journal says what the methods promise. A Journal of store/pebble is one.
type Log interface {
	Begin(ctx context.Context, incarnation uint32, name journal.Name) error
	Persist(ctx context.Context, w journal.Write) error
	Entries(ctx context.Context, incarnation uint32, after uint64, limit int) ([]journal.Entry, uint64, error)
	Truncate(ctx context.Context, incarnation uint32, upto uint64) error
	Fence(ctx context.Context, incarnation uint32) error
	Incarnations(ctx context.Context) ([]uint32, error)
	Remove(ctx context.Context, incarnation uint32) error
}

// MergeStore is what an asynchronous space needs of its store, in addition to Store.
type MergeStore interface {
	Store
	Begin(ctx context.Context, incarnation uint32, name journal.Name) error
	Claim(ctx context.Context, term uint64) (mark []byte, err error)
	Merge(ctx context.Context, f journal.Flush) error
	Fits(muts []journal.Mutation) error
	Fenced(ctx context.Context, incarnations ...uint32) ([]uint32, error)
}

// GiveUp ends the wait for the log of a departed incarnation. Writes that only this log had are
// lost, and the ring may retire the incarnation. An operator calls it when a disk is gone.
func GiveUp(ctx context.Context, s Store, incarnation uint32) error { return s.Fence(ctx, incarnation) }

// Asynchronous reports whether writes are acknowledged before the store has them.
func (s *Server) Asynchronous() bool { return s.opt.Log != nil }

// Asynchronous reports whether writes are acknowledged before the store has them.
func (r *Ring) Asynchronous() bool { return r.opt.Log != nil }

// Owes returns how many writes this server took that are not known to be in the store.
func (s *Server) Owes() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.machine == nil {
		return 0
	}
	return s.machine.Owes()
}

// merges returns the store of an asynchronous space. check made sure of its type.
func (o *ServerOptions) merges() MergeStore { return o.Store.(MergeStore) }

// logged commits a write to the log, together with what its session carries.
func (s *Server) logged(ctx context.Context, out mesh.Persist) error {
	w := out.Write
	muts := make([]journal.Mutation, len(w.Muts))
	for i, m := range w.Muts {
		muts[i] = journal.Mutation{Key: m.Key, Value: m.Value, Delete: m.Delete}
	}
	if err := s.opt.merges().Fits(muts); errors.Is(err, store.ErrTooLarge) { // no batch could merge it
		return err
	}
	return s.opt.Log.Persist(ctx, journal.Write{
		Dot:   journal.Dot{Incarnation: uint32(w.Dot.Incarnation), N: w.Dot.N},
		Stamp: journal.Stamp{Time: w.Stamp.Time, Incarnation: uint32(w.Stamp.Incarnation)},
		Body:  wire.AppendWrites(nil, append(slices.Clone(out.With), w)),
	})
}

func (s *Server) claim(ctx context.Context, out mesh.Claim) (mesh.Input, error) {
	in := mesh.Claimed{Call: out.Call}
	mark, err := s.opt.merges().Claim(ctx, out.Term)
	if err == nil {
		in.Durable, err = wire.DecodeSet(mark)
	}
	in.Status = merged(err)
	return in, err
}

// flush merges what a batch leaves in the rows: of each key, the write with the largest stamp.
func (s *Server) flush(ctx context.Context, out mesh.Flush) (mesh.Input, error) {
	f := journal.Flush{Term: out.Term, Number: out.Number, Mark: wire.AppendSet(nil, out.Durable)}
	at := map[string]int{}
	for _, w := range out.Writes {
		row := journal.Row{Stamp: journal.Stamp{Time: w.Stamp.Time, Incarnation: uint32(w.Stamp.Incarnation)}, Dot: journal.Dot{Incarnation: uint32(w.Dot.Incarnation), N: w.Dot.N}}
		for _, m := range w.Muts {
			row.Exists, row.Value = !m.Delete, m.Value
			i, ok := at[m.Key]
			if !ok {
				i = len(f.Rows)
				at[m.Key] = i
				f.Rows = append(f.Rows, journal.Keyed{Key: m.Key})
			}
			if f.Rows[i].Row.Stamp.Less(row.Stamp) {
				f.Rows[i].Row = row
			}
		}
	}
	err := s.opt.merges().Merge(ctx, f)
	if err != nil && !errors.Is(err, journal.ErrFenced) {
		s.opt.Logger.Warn("writes are not in the store yet, and stay in memory and in the logs; it is tried again", "writes", len(out.Writes), "try", out.Try, "err", err)
	}
	return mesh.Flushed{Call: out.Call, Status: merged(err)}, err
}

func merged(err error) mesh.Status {
	switch {
	case err == nil:
		return mesh.OK
	case errors.Is(err, journal.ErrFenced):
		return mesh.Fenced
	}
	return mesh.StatusUnknown
}

// backs waits until departed incarnations answer no caller, and finds out whose logs were given
// back.
func (s *Server) backs(out mesh.Recover) (mesh.Input, error) {
	var incarnations []uint32
	for _, o := range out.Incarnations {
		if err := s.opt.Ended(s.ctx, uint32(o)); err != nil {
			return mesh.Recovered{View: out.View, Status: mesh.StatusUnknown}, err
		}
		incarnations = append(incarnations, uint32(o))
	}
	in := mesh.Recovered{View: out.View}
	err := s.bounded(func(ctx context.Context) error {
		for _, o := range incarnations {
			if err := s.unborn(ctx, o); err != nil {
				return err
			}
		}
		back, err := s.opt.merges().Fenced(ctx, incarnations...)
		for _, o := range back {
			left, _, e := s.opt.Store.Entries(ctx, o, 0, 1)
			switch {
			case e != nil && !errors.Is(e, journal.ErrFenced):
				err = errors.Join(err, e)
			case len(left) > 0:
				s.opt.Logger.Error("an incarnation that was not asynchronous has left a journal in the store; let the servers run without a log until it is empty", "incarnation", o)
			default:
				in.Back = append(in.Back, mesh.Incarnation(o))
			}
		}
		return err
	})
	if err != nil {
		in = mesh.Recovered{View: out.View, Status: mesh.StatusUnknown}
	}
	return in, err
}

// unbornName is the name under which servers begin, and so end, an incarnation that never began.
// All servers use this name, so each continues where another one, or itself, got no answer. No
// incarnation has it.
var unbornName = journal.Name([]byte("never was begun!"))

// unborn ends an incarnation that was given a number and never began. An incarnation takes writes
// after it has begun in its log and then in the store. If the store does not know it, it has
// acknowledged nothing.
func (s *Server) unborn(ctx context.Context, o uint32) error {
	s.mu.Lock()
	known := s.seeking.begun[o]
	s.mu.Unlock()
	if known {
		return nil
	}
	err := s.opt.merges().Begin(ctx, o, unbornName)
	switch {
	case err == nil:
		err = s.opt.Store.Fence(ctx, o)
	case errors.Is(err, journal.ErrBegun):
		err = nil
	}
	if err == nil {
		s.mu.Lock()
		s.seeking.begun[o] = true
		s.mu.Unlock()
	}
	return err
}

// seeking is the state of the search for logs of departed incarnations.
type seeking struct {
	view  uint64          // the view in which the search is complete
	busy  bool            // a search is under way
	given map[uint32]bool // incarnations whose logs the machine has
	begun map[uint32]bool // incarnations that have begun, or were ended because they had not
}

// seek searches the log of this process for departed incarnations, once in every view.
func (s *Server) seek() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opt.Log == nil || s.machine == nil || s.closed || s.seeking.busy || s.seeking.view == s.view.Number {
		return
	}
	s.seeking.busy = true
	v := s.view
	s.work.Go(func() {
		err := s.found(v)
		if err != nil && s.ctx.Err() == nil {
			s.opt.Logger.Warn("the log of a former incarnation cannot be read; it is tried again", "err", err)
			s.second()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.seeking.busy = false; err == nil {
			s.seeking.view = v.Number
		}
	})
}

// second waits for a second, or until the server closes.
func (s *Server) second() {
	drive.Pause(s.ctx, time.Second)
}

// found gives the logs of a view's departed incarnations to the machine.
func (s *Server) found(v View) error {
	var incarnations []uint32
	err := s.bounded(func(ctx context.Context) (e error) {
		incarnations, e = s.opt.Log.Incarnations(ctx)
		return e
	})
	for _, o := range incarnations {
		member := slices.ContainsFunc(v.Ring, func(m RingServer) bool { return m.Incarnation == o })
		switch {
		case s.seeking.given[o] || member || o > v.Newest:
		case slices.Contains(v.Departed, o):
			err = errors.Join(err, s.give(o))
		default:
			err = errors.Join(err, s.outlived(o))
		}
	}
	return err
}

// give gives the log of a departed incarnation to the machine. It fences the log first, so that
// every acknowledged write is in what it reads.
func (s *Server) give(o uint32) error {
	err := s.bounded(func(ctx context.Context) error { return s.opt.Log.Fence(ctx, o) })
	if err != nil {
		return err
	}
	in := mesh.Returned{Incarnation: mesh.Incarnation(o)}
	for after, more := uint64(0), true; more; {
		var page []journal.Entry
		err := s.bounded(func(ctx context.Context) (e error) {
			page, _, e = s.opt.Log.Entries(ctx, o, after, journalPage)
			return e
		})
		for _, entry := range page {
			writes, e := wire.DecodeWrites(entry.Body)
			err = errors.Join(err, e)
			in.Writes = append(in.Writes, writes...)
			after = entry.N
		}
		if err != nil {
			return fmt.Errorf("causal: the log of incarnation %d: %w", o, err)
		}
		more = len(page) == journalPage
	}
	s.opt.Logger.Info("the log of a former incarnation was found, and what is not in the store is written again", "incarnation", o, "writes", len(in.Writes))
	s.mu.Lock()
	s.seeking.given[o] = true
	asked := s.step(in)
	s.mu.Unlock()
	s.spawn(asked)
	return nil
}

// outlived removes the log of a retired incarnation. A log that is not empty stays: the incarnation
// was given up, and an operator may want to look at the log.
func (s *Server) outlived(o uint32) error {
	return s.bounded(func(ctx context.Context) error {
		left, _, err := s.opt.Log.Entries(ctx, o, 0, 1)
		if err == nil && len(left) > 0 {
			s.opt.Logger.Warn("the log of a former incarnation is not asked for any more, and is not empty; if it was given up, this is what was lost", "incarnation", o)
			return nil
		}
		if err == nil {
			err = s.opt.Log.Remove(ctx, o)
		}
		return err
	})
}

// release records in the store that an incarnation's log is not needed any more, and removes the
// log.
func (s *Server) release(incarnation uint32) error {
	err := s.bounded(func(ctx context.Context) error { return s.opt.Store.Fence(ctx, incarnation) })
	if err == nil {
		err = s.bounded(func(ctx context.Context) error { return s.opt.Log.Remove(ctx, incarnation) })
	}
	return err
}

// Drain stops taking writes, and waits until the store has all writes that were taken. The log of
// this incarnation is then not needed any more. Drain returns at once if the space is not
// asynchronous.
func (s *Server) Drain(ctx context.Context) error {
	if s.opt.Log == nil {
		return nil
	}
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	for {
		s.mu.Lock()
		over := s.machine != nil && s.machine.Expelled()
		s.mu.Unlock()
		if over {
			return ErrExpelled
		}
		if s.Owes() == 0 {
			return s.release(s.opt.Incarnation)
		}
		select {
		case <-time.After(s.opt.Round):
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.ctx.Done():
			return ErrClosed
		}
	}
}
