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

// step runs the machine under the server's lock. It carries out in order what can be done at once,
// and returns the requests to the store.
func (s *Server) step(in mesh.Input) (asked []mesh.Output) {
	asked, _, _ = s.stepFor(in, 0)
	return asked
}

// stepFor is step for a caller that takes the reply to its own operation, if there is one already.
func (s *Server) stepFor(in mesh.Input, own mesh.Op) (asked []mesh.Output, got mesh.Reply, done bool) {
	s.outs = s.machine.Step(uint64(time.Now().UnixMicro()), in, s.outs[:0])
	for _, out := range s.outs {
		switch out := out.(type) {
		case mesh.Send:
			s.ring.send(out)
		case mesh.Reply:
			if own != 0 && out.Op == own {
				got, done = out, true
				continue
			}
			s.reply(out)
		case mesh.Event:
			s.opt.Recorder.Event(out.Kind)
		case mesh.Truncate:
			s.settle.upto[out.Incarnation] = max(s.settle.upto[out.Incarnation], out.Upto)
		case mesh.Retire:
			s.opt.Retired(uint32(out.Incarnation))
		case mesh.Release:
			if !s.settle.released[out.Incarnation] {
				s.settle.released[out.Incarnation] = false
			}
		case mesh.CollectTombstones:
			s.settle.before = max(s.settle.before, out.Before)
		default:
			asked = append(asked, out)
		}
	}
	s.ring.flush()
	clear(s.outs)
	return asked, got, done
}

// reply answers a caller that waits.
func (s *Server) reply(r mesh.Reply) {
	ch := s.waiting[r.Op]
	if ch == nil { // the caller has given up
		return
	}
	delete(s.waiting, r.Op)
	a := answer{Reply: r}
	if r.Outcome == mesh.Rejected || r.Outcome == mesh.Failed {
		a.err = s.cause
	}
	ch <- a
}

// spawn has each request to the store carried out in a goroutine of its own.
func (s *Server) spawn(asked []mesh.Output) {
	for _, out := range asked {
		s.pool.Do(out)
	}
}

// perform sends a request to the store, and steps the machine with the answer.
func (s *Server) perform(out mesh.Output) {
	var in mesh.Input
	var err error
	began, kind := time.Now(), CallLoad
	switch out := out.(type) {
	case mesh.Recover:
		kind = CallRecover
		in, err = s.recover(out)
	case mesh.Poll:
		if !s.pause() {
			return
		}
		began, kind = time.Now(), CallPoll
		in, err = s.poll(out)
	case mesh.Load:
		in, err = s.load(s.soon(), out)
	case mesh.Fetch:
		kind = CallFetch
		in, err = s.fetch(s.soon(), out)
	case mesh.Persist:
		kind = CallPersist
		if !drive.Retry(s.ctx, out.Try) {
			return
		}
		began = time.Now()
		if s.opt.Log != nil {
			kind = CallLog
		}
		in, err = s.persist(s.soon(), out)
	case mesh.Claim:
		kind = CallClaim
		if !drive.Retry(s.ctx, out.Try) {
			return
		}
		in, err = s.claim(s.soon(), out)
	case mesh.Flush:
		kind = CallMerge
		if !drive.Retry(s.ctx, out.Try) {
			return
		}
		began = time.Now()
		in, err = s.flush(s.soon(), out)
	}
	s.opt.Recorder.StoreCall(kind, time.Since(began), err)
	if s.ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	s.cause = err
	// The caller of a refused write gets the store's error when the write's number went to an empty
	// write (M2).
	if p, ok := in.(mesh.Persisted); ok {
		dot := out.(mesh.Persist).Write.Dot
		switch p.Status {
		case mesh.Refused:
			s.refused[dot] = err
		case mesh.OK, mesh.Fenced:
			s.cause = s.refused[dot]
			delete(s.refused, dot)
		}
	}
	asked := s.step(in)
	s.cause = nil
	s.mu.Unlock()
	s.spawn(asked)
}

// deadline is a context that ends, and that several requests share.
type deadline struct {
	context.Context
	began  time.Time
	cancel context.CancelFunc
}

// soon returns a context that ends when a request to the store has had its time. Making one costs
// more than sharing one, so requests that begin within an eighth of that time end together.
func (s *Server) soon() context.Context {
	for {
		d, now := s.deadline.Load(), time.Now()
		if d != nil && now.Sub(d.began) < s.opt.Timeout/8 {
			return d
		}
		next := &deadline{began: now}
		next.Context, next.cancel = context.WithTimeout(s.ctx, s.opt.Timeout)
		if s.deadline.CompareAndSwap(d, next) {
			return next // never cancelled: it ends by itself, for all requests that share it
		}
		next.cancel()
	}
}

func (s *Server) load(ctx context.Context, out mesh.Load) (mesh.Input, error) {
	rows, err := s.opt.Store.Load(ctx, out.Key)
	if err != nil {
		return mesh.Loaded{Call: out.Call, Status: mesh.StatusUnknown}, err
	}
	return mesh.Loaded{Call: out.Call, Row: fromRow(out.Key, rows[0])}, nil
}

func (s *Server) fetch(ctx context.Context, out mesh.Fetch) (mesh.Input, error) {
	writes, err := s.journal(ctx, out.Dots)
	if err != nil {
		return mesh.Fetched{Call: out.Call, Status: mesh.StatusUnknown}, err
	}
	return mesh.Fetched{Call: out.Call, Writes: writes}, nil
}

func (s *Server) persist(ctx context.Context, out mesh.Persist) (mesh.Input, error) {
	if s.opt.Log != nil {
		return s.persisted(out, s.logged(ctx, out))
	}
	w := out.Write
	muts := make([]journal.Mutation, len(w.Muts))
	for i, m := range w.Muts {
		muts[i] = journal.Mutation{Key: m.Key, Value: m.Value, Delete: m.Delete}
		for _, d := range m.Supersedes {
			muts[i].Supersedes = append(muts[i].Supersedes, journal.Dot{Incarnation: uint32(d.Incarnation), N: d.N})
		}
	}
	return s.persisted(out, s.opt.Store.Persist(ctx, journal.Write{
		Dot:   journal.Dot{Incarnation: uint32(w.Dot.Incarnation), N: w.Dot.N},
		Stamp: journal.Stamp{Time: w.Stamp.Time, Incarnation: uint32(w.Stamp.Incarnation)}, Muts: muts, Body: wire.AppendWrite(nil, w),
	}))
}

// persisted turns the store's answer into the machine's input.
func (s *Server) persisted(out mesh.Persist, err error) (mesh.Input, error) {
	in := mesh.Persisted{Call: out.Call}
	switch {
	case err == nil:
	case errors.Is(err, journal.ErrFenced):
		in.Status = mesh.Fenced
	case errors.Is(err, store.ErrTooLarge):
		// The same write will always be too large. Any other error may pass.
		in.Status = mesh.Refused
	default:
		in.Status = mesh.StatusUnknown
		s.opt.Logger.Debug("a write is persisted again, for the store did not say that it has it", "try", out.Try, "err", err)
	}
	return in, err
}

// journalPage is how many entries are read at a time.
const journalPage = 1000

// recover reads the journals of departed incarnations, after it has fenced them.
func (s *Server) recover(out mesh.Recover) (mesh.Input, error) {
	if s.opt.Log != nil {
		return s.backs(out)
	}
	in := mesh.Recovered{View: out.View}
	for _, o := range out.Incarnations {
		err := s.opt.Ended(s.ctx, uint32(o))
		if err == nil {
			err = s.bounded(func(ctx context.Context) error { return s.opt.Store.Fence(ctx, uint32(o)) })
		}
		for after, more := uint64(0), true; more && err == nil; {
			var page []journal.Entry
			err = s.bounded(func(ctx context.Context) (e error) {
				page, _, e = s.opt.Store.Entries(ctx, uint32(o), after, journalPage)
				return e
			})
			for _, entry := range page {
				w, e := wire.DecodeWrite(entry.Body)
				if err = errors.Join(err, e); e == nil {
					in.Writes = append(in.Writes, w)
				}
				after = entry.N
			}
			more = len(page) == journalPage
		}
		if err != nil {
			return mesh.Recovered{View: out.View, Status: mesh.StatusUnknown}, fmt.Errorf("causal: the journal of incarnation %d: %w", o, err)
		}
	}
	return in, nil
}

// How often external writes are read, if the store watches the space, and if it does not.
const (
	pollOften = 100 * time.Millisecond
	pollRare  = 2 * time.Second
)

// pause waits until external writes should be read again, and reports whether the server is still
// open.
func (s *Server) pause() bool {
	drive.Pause(s.ctx, time.Duration(s.pace.Load()))
	return s.ctx.Err() == nil
}

// poll reads the next external writes from the journal, if the store watches the space for them.
func (s *Server) poll(out mesh.Poll) (mesh.Input, error) {
	in := mesh.Polled{View: out.View}
	var page []journal.Entry
	err := s.bounded(func(ctx context.Context) (e error) {
		page, _, e = s.opt.Store.Entries(ctx, uint32(mesh.External), out.After, journalPage)
		return e
	})
	s.pace.Store(int64(pollRare))
	switch {
	case errors.Is(err, journal.ErrFenced): // the store does not watch the space
		return in, nil
	case err != nil:
		return in, err
	}
	for _, e := range page {
		w, bad := wire.DecodeWrite(e.Body)
		if bad != nil { // nothing after a missing number would become stable, so the writes that follow wait
			s.opt.Logger.Error("an external write cannot be read; later external writes wait until it is mended in the journal", "number", e.N, "err", bad)
			return in, bad
		}
		in.Writes = append(in.Writes, w)
	}
	s.pace.Store(int64(pollOften))
	return in, nil
}

// bounded runs a request to the store with the time that a request may take.
func (s *Server) bounded(do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(s.ctx, s.opt.Timeout)
	defer cancel()
	return do(ctx)
}

// settling is what the store need not keep any more, and has not been told yet.
type settling struct {
	upto, said        map[mesh.Incarnation]uint64 // up to which number, and up to which the store confirmed it
	before, collected uint64                      // the same for tombstones, as times
	busy              bool
	released          map[mesh.Incarnation]bool // incarnations whose logs are not needed; true: the log is removed
	beats             int                       // since the last request
}

// truncate sends requests this many beats after the last ones, or when it has this many writes of
// an incarnation for the store to drop. Each request costs the store as much as a write.
const (
	settleBeats  = 10
	settleWrites = 1024
)

// truncate tells the store what it need not keep any more, in one batch of requests at a time. It
// repeats what the store has not confirmed.
func (s *Server) truncate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := &s.settle
	g.beats++
	todo, much := map[mesh.Incarnation]uint64{}, false
	for o, n := range g.upto {
		if n > g.said[o] {
			todo[o] = n
			much = much || n-g.said[o] >= settleWrites
		}
	}
	if g.beats < settleBeats && !much {
		return
	}
	before := g.before
	var released []mesh.Incarnation
	for o, done := range g.released {
		if !done {
			released = append(released, o)
		}
	}
	if g.busy || s.closed || len(todo)+len(released) == 0 && before <= g.collected {
		return
	}
	g.busy, g.beats = true, 0
	s.work.Go(func() {
		for o, n := range todo {
			began := time.Now()
			forget := s.opt.Store.Truncate
			if s.opt.Log != nil && o == mesh.Incarnation(s.opt.Incarnation) {
				forget = s.opt.Log.Truncate
			} else if o != mesh.Incarnation(s.opt.Incarnation) { // a departed incarnation, or External
				forget = s.opt.Store.TruncateFenced
			}
			err := s.bounded(func(ctx context.Context) error { return forget(ctx, uint32(o), n) })
			s.opt.Recorder.StoreCall(CallTruncate, time.Since(began), err)
			if err != nil {
				delete(todo, o)
			}
		}
		released = slices.DeleteFunc(released, func(o mesh.Incarnation) bool { return s.release(uint32(o)) != nil })
		var err error
		if before > g.collected {
			began := time.Now()
			err = s.bounded(func(ctx context.Context) error { return s.opt.Store.CollectTombstones(ctx, before) })
			s.opt.Recorder.StoreCall(CallCollect, time.Since(began), err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		g.busy = false
		for _, o := range released {
			g.released[o] = true
		}
		for o, n := range todo {
			g.said[o] = max(g.said[o], n)
		}
		if err == nil {
			g.collected = max(g.collected, before)
		}
	})
}
