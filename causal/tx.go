package causal

import (
	"context"
	"errors"
	"fmt"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
)

// Tx is a workflow that reads from one causal cut and writes everything at once, at whichever
// servers its steps run. It is not safe for concurrent use: fork it for steps that run at the same
// time.
type Tx[V any] struct {
	sp *Space[V]
	m  *mesh.Tx
}

// maxTries bounds how often Transact begins a transaction.
const maxTries = 16

// Transact runs fn as a transaction of a session that has seen nothing, and repeats it while its
// snapshot is lost. It returns a session that has seen what was read and written. fn must tolerate
// repetition. An error of fn ends Transact, and nothing is written.
func (sp *Space[V]) Transact(ctx context.Context, fn func(tx *Tx[V]) error) (*Session[V], error) {
	return sp.Begin().Transact(ctx, fn)
}

// Transact is Space.Transact in this session, which then has seen what was read and written.
func (s *Session[V]) Transact(ctx context.Context, fn func(tx *Tx[V]) error) (*Session[V], error) {
	for try := 1; ; try++ {
		tx, err := s.BeginTx(ctx)
		if err == nil {
			err = fn(tx)
		}
		var done *Session[V]
		if err == nil {
			done, err = tx.Commit(ctx)
		}
		switch {
		case err == nil:
			s.Join(done)
			return s, nil
		case !errors.Is(err, ErrStale):
			return nil, err
		case try == maxTries:
			return nil, fmt.Errorf("causal: given up after %d tries: %w", maxTries, err)
		}
	}
}

// BeginTx fixes the snapshot of a transaction: what is visible at the server, and what the session
// carries.
func (s *Session[V]) BeginTx(ctx context.Context) (*Tx[V], error) {
	server, err := s.recall(ctx)
	if err != nil {
		return nil, err
	}
	tx := &Tx[V]{s.sp, &mesh.Tx{Session: *s.m}}
	r, err := server.do(ctx, func(op mesh.Op) mesh.Input { return tx.m.Begin(op) })
	if err != nil {
		return nil, err
	}
	tx.m.Began(r)
	return tx, nil
}

// ResumeTx returns the transaction that a token encodes. See Resume for its errors.
func (sp *Space[V]) ResumeTx(token string) (*Tx[V], error) {
	b, err := opened(sp.txs, token)
	if err != nil {
		return nil, err
	}
	with, err := sp.sealers()
	if err != nil {
		return nil, err
	}
	if b, err = with.txs.open(b); err != nil {
		return nil, err
	}
	m, err := wire.ResumeTx(b)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrToken, err)
	}
	return &Tx[V]{sp, m}, nil
}

// Token returns the transaction as text for its next step, with all buffered writes. See
// Session.Token.
func (t *Tx[V]) Token() (string, error) {
	b := wire.TxToken(t.m)
	if len(b) > wire.MaxToken {
		return "", fmt.Errorf("%w: %d bytes", ErrCarriesTooMuch, len(b))
	}
	with, err := t.sp.sealers()
	if err != nil {
		return "", err
	}
	return with.txs.seal(b), nil
}

// Fork returns a branch that reads from the same snapshot, for a step that runs at the same time. A
// branch ends with Join, and must not commit.
func (t *Tx[V]) Fork() *Tx[V] { return &Tx[V]{t.sp, t.m.Fork()} }

// Join takes back a branch, with what it has read and buffered. It returns ErrNotBranch, and
// nothing happens, if f is not an open branch of t.
func (t *Tx[V]) Join(f *Tx[V]) error {
	if f.sp.txs != t.sp.txs || !f.m.Branch || t.m.Open == 0 || !f.m.At.Set.Equal(t.m.At.Set) {
		return ErrNotBranch
	}
	if err := t.reconcile(f); err != nil {
		return err
	}
	t.m.Join(f.m)
	return nil
}

// Get returns the value of key in the snapshot, or the value that the transaction has buffered.
// ErrStale means that the snapshot is gone: begin again, as Transact does.
func (t *Tx[V]) Get(ctx context.Context, key string) (V, bool, error) {
	items, err := t.GetMany(ctx, key)
	if items == nil {
		var none V
		return none, false, err
	}
	return items[0].Value, items[0].Exists, err // the error ErrUnlawful comes with the value
}

// GetMany is Get for several keys.
func (t *Tx[V]) GetMany(ctx context.Context, keys ...string) ([]Item[V], error) {
	if err := valid(keys...); err != nil || len(keys) == 0 {
		return nil, err
	}
	items, err := t.look(ctx, keys...)
	if err != nil {
		return nil, err
	}
	out := make([]Item[V], len(keys))
	for i, it := range items {
		var e error
		if out[i], e = t.decode(keys[i], it); e != nil && !errors.Is(e, ErrUnlawful) {
			return nil, e
		}
		err = errors.Join(err, e)
	}
	return out, err
}

// look returns what the snapshot has of keys, under what the transaction has buffered.
func (t *Tx[V]) look(ctx context.Context, keys ...string) ([]mesh.Item, error) {
	server, err := t.sp.server()
	if err != nil {
		return nil, err
	}
	r, err := server.do(ctx, func(op mesh.Op) mesh.Input { return t.m.Look(op, keys...) })
	if err != nil {
		return nil, err
	}
	items, _ := t.m.Looked(r, keys...)
	return items, nil
}

// Set makes Commit set key to value. In a space with a merge function, Commit merges value with the
// value of the snapshot.
func (t *Tx[V]) Set(key string, value V) error {
	if err := valid(key); err != nil {
		return err
	}
	m := mesh.Mut{Key: key}
	if was := t.buffered(key); was != nil && t.sp.opt.Merge != nil {
		m.Siblings = was.Siblings || was.Delete
		if !was.Delete {
			old, err := t.sp.opt.Codec.Decode(was.Value)
			if err == nil {
				value, err = t.sp.merged(key, old, value)
			}
			if err != nil {
				return err
			}
		}
	}
	b, err := t.sp.encode(key, value)
	if err != nil {
		return err
	}
	m.Value = b
	t.m.Set(m)
	return nil
}

// Delete makes Commit remove key.
func (t *Tx[V]) Delete(key string) error {
	if err := valid(key); err != nil {
		return err
	}
	t.m.Set(mesh.Mut{Key: key, Delete: true})
	return nil
}

// ErrBranch means that nothing was written: neither a branch nor a transaction with an open branch
// may commit.
var ErrBranch = errors.New("causal: a branch of a transaction is open; join it, and commit what it was forked from")

// ErrNotBranch means that nothing happened: the argument is not an open branch of the transaction.
var ErrNotBranch = errors.New("causal: not a branch of this transaction, or all of them are joined")

// Commit writes everything at once, and returns the session that has seen what was read and
// written. If there is nothing to write, Commit only returns the session.
func (t *Tx[V]) Commit(ctx context.Context) (*Session[V], error) {
	if t.m.Branch || t.m.Open > 0 {
		return nil, ErrBranch
	}
	m := t.m.Session
	s := &Session[V]{t.sp, &m}
	if len(t.m.Buffer) == 0 {
		return s, nil
	}
	if err := t.settle(ctx); err != nil {
		return nil, err
	}
	m = t.m.Session // with what settle has read
	server, err := t.sp.server()
	if err != nil {
		return nil, err
	}
	r, err := server.do(ctx, func(op mesh.Op) mesh.Input { return t.m.Commit(op) })
	if err != nil {
		return nil, err
	}
	s.m.Took(r)
	return s, nil
}
