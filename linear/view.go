package linear

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/freshet-cache/freshet/internal/drive"
	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/linear/crossowner"
	"github.com/freshet-cache/freshet/store"
)

// Tables is what a View needs of a database with the user's own tables. T is the type of its
// transactions. Package store/postgres has two implementations.
type Tables[T any] interface {
	// Snapshot calls read, if it is not nil, in one read-only snapshot. It returns the version of
	// key, its writer and the guard that covers it, as of the same snapshot.
	Snapshot(ctx context.Context, key string, read func(ctx context.Context, tx T) error) (store.Row, error)
	// Transact calls write in a transaction and marks keys in it as written by id. It commits only
	// if each key's guard is then the one in guards. Its errors are those of Store.Commit.
	Transact(ctx context.Context, id store.ID, keys []string, guards []store.Token, write func(ctx context.Context, tx T) error) error
	SetGuard(ctx context.Context, low, high string, token store.Token) error
	Splits(ctx context.Context, low, high string) ([]string, error)
}

// View caches values that queries build from the user's own tables. A read returns what its queries
// would return now; most reads run no query. All methods are safe for concurrent use.
//
// Every row belongs to one key, which is the unit of caching. Rows are changed only through Update,
// which names the keys of all rows that it changes. The queries of a key must read only rows of
// that key. A value that also shows rows of another key would not be dropped when those change.
type View[V, T any] struct {
	cache  *Cache[V]
	tables Tables[T]
}

// NewView returns a view of tables. The view calls load when a value is not in memory; load builds
// the value of a key with any queries, and returns false if the key does not exist. All queries of
// a call see one snapshot, so the value is consistent. opt.Store must be nil.
func NewView[V, T any](tables Tables[T], load func(ctx context.Context, tx T, key string) (V, bool, error), opt Options[V]) (*View[V, T], error) {
	if tables == nil || load == nil || opt.Store != nil {
		return nil, errors.New("linear: a view needs tables and a load function, and no Options.Store")
	}
	opt.Store = &built[V, T]{tables, load, opt.Codec}
	c, err := New(opt)
	if err != nil {
		return nil, err
	}
	return &View[V, T]{c, tables}, nil
}

// Get returns the value of key, and whether the key exists. See Cache.Get.
func (v *View[V, T]) Get(ctx context.Context, key string) (V, bool, error) {
	return v.cache.Get(ctx, key)
}

// GetEntry is Get, and returns everything that the view knows of the key. Version is that of the
// last Update of key.
func (v *View[V, T]) GetEntry(ctx context.Context, key string) (Entry[V], error) {
	return v.cache.GetEntry(ctx, key)
}

// Peek returns the entry of key if memory can serve it now.
func (v *View[V, T]) Peek(key string) (Entry[V], bool) { return v.cache.Peek(key) }

// Len returns about how many values are in memory.
func (v *View[V, T]) Len() int { return v.cache.Len() }

// Bytes returns about how many bytes of memory the values take.
func (v *View[V, T]) Bytes() int64 { return v.cache.Bytes() }

// Close waits until no request is under way, or until ctx ends. See Cache.Close.
func (v *View[V, T]) Close(ctx context.Context) error { return v.cache.Close(ctx) }

// tries is how many attempts an update makes at least when keys change owners or a guard was lost.
// It makes more until Options.Timeout has passed.
const tries = 10

// Update calls write in a transaction and commits it. keys are the keys of all rows that write
// changes. While write runs, nobody else changes these rows through freshet, whichever nodes own
// the keys. What write reads of these rows is therefore still true when it commits.
//
// Update may call write several times, each time in a new transaction; write must do nothing but
// use tx. Options.Timeout bounds each transaction. A nil error means that a transaction was
// committed, once. ErrOutcomeUnknown means that one may have been. With any other error nothing was
// committed: the error is that of write, or the reason why the database refused.
func (v *View[V, T]) Update(ctx context.Context, keys []string, write func(ctx context.Context, tx T) error) error {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	if len(keys) == 0 {
		return errors.New("linear: an update names no key")
	}
	var err error
	began, try := time.Now(), 0
	for ; try < tries || time.Since(began) < v.cache.opt.Timeout; try++ { // a key without an owner gets one in time
		drive.Retry(v.cache.ctx, try)
		u := &update[V, T]{v: v, write: write, found: make(chan crossowner.Found, len(keys))}
		_, _ = rand.Read(u.id[:]) // rand.Read never fails
		switch outcome := u.run(ctx, keys); {
		case outcome == crossowner.Done:
			return nil
		case outcome == crossowner.Unknown:
			return fmt.Errorf("%w (%w)", ErrOutcomeUnknown, u.err)
		case outcome == crossowner.Failed:
			return u.err
		case ctx.Err() != nil:
			return fmt.Errorf("linear: nothing was written: %w", context.Cause(ctx))
		case errors.Is(u.err, ErrClosed):
			return u.err
		}
		err = u.err
	}
	return fmt.Errorf("linear: nothing was written, after %d attempts: %w", try, err)
}

// update is one attempt: the runtime of a crossowner.Coordinator.
type update[V, T any] struct {
	v     *View[V, T]
	id    clink.ID
	write func(ctx context.Context, tx T) error
	keys  []string
	found chan crossowner.Found // has room for every owner
	err   error                 // why the last step did not succeed
}

func (u *update[V, T]) run(ctx context.Context, keys []string) crossowner.Outcome {
	u.keys = keys
	owners, peers := map[string][]string{}, u.v.cache.opt.Peers
	for _, k := range keys {
		o := peers.Owner(k)
		if o == "" { // lock then reports whether this node owns the key
			o = peers.Self()
		}
		owners[o] = append(owners[o], k)
	}
	b, outs := crossowner.New(owners)
	for {
		for len(outs) > 0 {
			out := outs[0]
			outs = outs[1:]
			switch out := out.(type) {
			case crossowner.Lock:
				outs = b.Step(u.ask(ctx, out), outs)
			case crossowner.Run:
				outs = b.Step(crossowner.Ran{Status: u.transact(ctx, out.Guards)}, outs)
			case crossowner.Settle:
				u.settle(out)
			case crossowner.Reply:
				return out.Outcome
			}
		}
		select { // the coordinator waits only for owners that find out the outcome
		case f := <-u.found:
			outs = b.Step(f, nil)
		case <-ctx.Done():
			outs = b.Step(crossowner.GivenUp{}, nil)
		}
	}
}

// ask asks one owner to lock its keys.
func (u *update[V, T]) ask(ctx context.Context, out crossowner.Lock) crossowner.Input {
	c := u.v.cache
	ctx, cancel := context.WithTimeout(ctx, c.opt.Timeout)
	defer cancel()
	var guards []clink.Token
	self := out.Owner == c.opt.Peers.Self()
	if self {
		guards, u.err = c.lock(ctx, u.id, out.Keys)
	} else {
		guards, u.err = c.askToLock(ctx, out.Owner, u.id, out.Keys)
	}
	if u.err != nil {
		return crossowner.Denied{Owner: out.Owner, Sure: self || sure(u.err)}
	}
	in := crossowner.Locked{Owner: out.Owner}
	for _, g := range guards {
		in.Guards = append(in.Guards, crossowner.Token(g))
	}
	return in
}

// settle tells an owner how the transaction ended. No caller waits for it.
func (u *update[V, T]) settle(out crossowner.Settle) {
	c := u.v.cache
	self := out.Owner == c.opt.Peers.Self()
	if self && out.Status != crossowner.StatusUnknown {
		c.settle(c.ctx, u.id, out.Status)
		return
	}
	c.work.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, 4*c.opt.Timeout)
		defer cancel()
		f := crossowner.Found{Owner: out.Owner}
		if self {
			f.Outcome = c.settle(ctx, u.id, out.Status)
		} else {
			f.Outcome = c.askToSettle(ctx, out.Owner, u.id, out.Status)
		}
		u.found <- f
	})
}

// transact runs the caller's function in a transaction.
func (u *update[V, T]) transact(ctx context.Context, under map[string]crossowner.Token) crossowner.Status {
	c := u.v.cache
	guards := make([]store.Token, len(u.keys))
	for i, k := range u.keys {
		guards[i] = store.Token(under[k])
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.opt.Timeout)
	defer cancel()
	var failed error
	u.err = u.v.tables.Transact(ctx, store.ID(u.id), u.keys, guards, func(ctx context.Context, tx T) (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("linear: the update's function panicked, nothing was written: %v", r)
			}
			failed = err
		}()
		return u.write(ctx, tx)
	})
	c.opt.Recorder.StoreCall(CallCommit, time.Since(began), u.err)
	switch {
	case u.err == nil:
		return crossowner.OK
	case errors.Is(u.err, store.ErrGuardMismatch):
		return crossowner.Mismatch
	case failed != nil:
		u.err = failed
		return crossowner.Refused
	case store.Definite(u.err):
		return crossowner.Refused
	}
	return crossowner.StatusUnknown
}

// built is the store of a View's cache. Its values are those that the user's queries build.
type built[V, T any] struct {
	Tables[T]
	load  func(ctx context.Context, tx T, key string) (V, bool, error)
	codec Codec[V]
}

func (b *built[V, T]) Load(ctx context.Context, key string) (store.Row, error) {
	var value []byte
	exists := false
	row, err := b.Snapshot(ctx, key, func(ctx context.Context, tx T) error {
		v, ok, err := b.load(ctx, tx, key)
		if err != nil || !ok {
			return err
		}
		exists = true
		value, err = b.codec.Append(nil, v)
		return err
	})
	row.Exists, row.Value = exists, value
	return row, err
}

// Look is Load without the value.
func (b *built[V, T]) Look(ctx context.Context, key string) (store.Row, error) {
	return b.Snapshot(ctx, key, nil)
}

func (b *built[V, T]) Commit(context.Context, store.ID, []store.Mutation) ([]store.Stamp, error) {
	return nil, fmt.Errorf("%w: a view is written by Update", store.ErrRefused)
}
