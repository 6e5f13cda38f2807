package causal

import (
	"context"
	"errors"
	"slices"

	"github.com/freshet-cache/freshet/causal/mesh"
)

// In a space with a merge function, the buffer of a transaction has values as they were given.
// settle merges them with the values of the snapshot before the commit, and sets what they
// supersede. A buffered value with Siblings set replaces the value of the snapshot instead: it
// comes from an Update, or follows a Delete.

// buffered returns what a transaction has buffered for a key, or nil.
func (t *Tx[V]) buffered(key string) *mesh.Mut {
	if i := slices.IndexFunc(t.m.Buffer, func(m mesh.Mut) bool { return m.Key == key }); i >= 0 {
		return &t.m.Buffer[i]
	}
	return nil
}

// decode returns what a transaction sees of a key.
func (t *Tx[V]) decode(key string, it mesh.Item) (out Item[V], err error) {
	b := t.buffered(key)
	if t.sp.opt.Merge == nil || b == nil {
		return t.sp.decode(key, it)
	}
	if b.Delete {
		return out, nil
	}
	own, err := t.sp.opt.Codec.Decode(b.Value)
	if err != nil || b.Siblings {
		return Item[V]{own, err == nil}, err
	}
	out, err = t.sp.fold(key, it)
	if err != nil && !errors.Is(err, ErrUnlawful) || !out.Exists {
		return Item[V]{own, err == nil}, err
	}
	v, e := t.sp.merged(key, out.Value, own)
	return Item[V]{v, e == nil}, errors.Join(err, e)
}

// Update makes Commit replace what the transaction sees of key by what f makes of it. exists says
// whether there is a value. An error of f ends the update. In a space with a merge function, writes
// outside the snapshot are merged with the result.
func (t *Tx[V]) Update(ctx context.Context, key string, f func(value V, exists bool) (V, error)) error {
	if err := valid(key); err != nil {
		return err
	}
	items, err := t.look(ctx, key)
	if err != nil {
		return err
	}
	it, err := t.decode(key, items[0])
	b, err := t.sp.changed(key, it, err, f)
	if err != nil {
		return err
	}
	t.m.Set(mesh.Mut{Key: key, Value: b, Siblings: t.sp.opt.Merge != nil})
	return nil
}

// settle merges what is buffered with the values of the snapshot, and names the writes that it
// supersedes.
func (t *Tx[V]) settle(ctx context.Context) error {
	if t.sp.opt.Merge == nil {
		return nil
	}
	var keys []string
	for _, m := range t.m.Buffer {
		keys = append(keys, m.Key)
	}
	items, err := t.look(ctx, keys...)
	if err != nil {
		return err
	}
	for i, key := range keys {
		m := *t.buffered(key)
		if !m.Delete && !m.Siblings {
			it, err := t.decode(key, items[i])
			if err != nil && !errors.Is(err, ErrUnlawful) {
				return err
			}
			if m.Value, err = t.sp.encode(key, it.Value); err != nil {
				return err
			}
		}
		m.Supersedes, m.Siblings = items[i].Dots(), true
		t.m.Set(m)
	}
	return nil
}

// reconcile merges what a branch has buffered with what the transaction has buffered for the same
// keys.
func (t *Tx[V]) reconcile(f *Tx[V]) error {
	if t.sp.opt.Merge == nil {
		return nil
	}
	f.m.Buffer = slices.Clone(f.m.Buffer)
	for i, m := range f.m.Buffer {
		own := t.buffered(m.Key)
		if own == nil || own.Delete || m.Delete {
			continue
		}
		a, errA := t.sp.opt.Codec.Decode(own.Value)
		b, errB := t.sp.opt.Codec.Decode(m.Value)
		if err := errors.Join(errA, errB); err != nil {
			return err
		}
		v, err := t.sp.merged(m.Key, a, b)
		if err != nil {
			return err
		}
		if m.Value, err = t.sp.encode(m.Key, v); err != nil {
			return err
		}
		m.Siblings = m.Siblings && own.Siblings // otherwise settle merges the snapshot's value too
		f.m.Buffer[i] = m
	}
	return nil
}
