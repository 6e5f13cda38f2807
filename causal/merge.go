package causal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/codec"
)

// ErrUnlawful comes together with a value: it is the one that every server gives, but the
// merge function that made it is not commutative, associative and idempotent, so it may
// change when a value is written again.
var ErrUnlawful = errors.New("causal: unlawful merge: the value stands, and is the same everywhere; mend the merge function, and try it with CheckMerge")

// errSetting means that nothing was done.
var errSetting = errors.New("causal: the space has a merge function and its server does not keep concurrent writes, or the reverse; set SpaceOptions.Merge and Options.Concurrent together")

// CheckMerge tries a merge function on values, and says of which it does not obey its laws:
// merge(a, b) is merge(b, a), merge(merge(a, b), b) is merge(a, b), and merge(a, merge(b, c))
// is merge(merge(a, b), c), as c encodes them. It is for tests: give it many values, also
// ones that were merged before.
func CheckMerge[V any](c codec.Codec[V], merge func(a, b V) V, values ...V) (err error) {
	for _, x := range values {
		for _, y := range values {
			for _, z := range values {
				if err := laws(c, merge, x, y, z); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// laws tries them on three values.
func laws[V any](c codec.Codec[V], merge func(a, b V) V, x, y, z V) (err error) {
	defer recoverMerge(&err)
	same := func(law string, x, y V) error {
		bx, errX := c.Append([]byte{}, x)
		by, errY := c.Append([]byte{}, y)
		if err := errors.Join(errX, errY); err != nil {
			return fmt.Errorf("causal: a merged value cannot be encoded: %w", err)
		}
		if !bytes.Equal(bx, by) {
			return fmt.Errorf("%w (%s: %.100q and %.100q)", ErrUnlawful, law, bx, by)
		}
		return nil
	}
	both := merge(x, y)
	if err := same("merge(a, b) is not merge(b, a)", both, merge(y, x)); err != nil {
		return err
	}
	if err := same("merge(merge(a, b), b) is not merge(a, b)", merge(both, y), both); err != nil {
		return err
	}
	return same("merge(a, merge(b, c)) is not merge(merge(a, b), c)", merge(x, merge(y, z)), merge(both, z))
}

func recoverMerge(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("causal: the merge function panicked: %v", p)
	}
}

// fold is the value of a key that holds several: all of them merged, in the order of their
// stamps, which is the same for everybody. It is ErrUnlawful beside the value.
func (sp *Space[V]) fold(key string, it mesh.Item) (out Item[V], err error) {
	var values []V
	for _, w := range it.Among {
		for _, m := range w.Muts {
			if m.Key != key || m.Delete {
				continue
			}
			v, err := sp.opt.Codec.Decode(m.Value)
			if err != nil {
				return out, fmt.Errorf("causal: the value of %q cannot be decoded: %w", key, err)
			}
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return out, nil
	}
	out = Item[V]{values[0], true}
	if len(values) == 1 {
		return out, nil
	}
	err = func() (err error) {
		defer recoverMerge(&err)
		for _, v := range values[1:] {
			out.Value = sp.opt.Merge(out.Value, v)
		}
		return nil
	}()
	if err != nil {
		return Item[V]{}, fmt.Errorf("%w (key %q)", err, key)
	}
	if err = laws(sp.opt.Codec, sp.opt.Merge, values[0], values[1], values[len(values)-1]); err != nil {
		err = fmt.Errorf("%w (key %q)", err, key)
	}
	return out, err
}

// merged is Merge for one more value.
func (sp *Space[V]) merged(key string, a, b V) (v V, err error) {
	defer recoverMerge(&err)
	return sp.opt.Merge(a, b), nil
}

// Update replaces what the session sees of key by what f makes of it; exists says whether
// there is anything. f runs once; its error ends the update, and nothing is written. Where
// the space has a merge function, what others write at the same time is merged with the
// result, and what they have written before is what f is given; else the larger stamp wins.
func (s *Session[V]) Update(ctx context.Context, key string, f func(value V, exists bool) (V, error)) error {
	if err := valid(key); err != nil {
		return err
	}
	items, err := s.read(ctx, func(op mesh.Op) mesh.Input { return s.m.Read(op, key) }, key)
	if err != nil {
		return err
	}
	it, err := s.sp.decode(key, items[0])
	b, err := s.sp.changed(key, it, err, f)
	if err != nil {
		return err
	}
	return s.put(ctx, mesh.Mut{Key: key, Value: b, Over: items[0].Dots()})
}

// changed is the encoding of what f makes of what was decoded.
func (sp *Space[V]) changed(key string, it Item[V], err error, f func(value V, exists bool) (V, error)) ([]byte, error) {
	if err != nil && !errors.Is(err, ErrUnlawful) {
		return nil, err
	}
	v, err := f(it.Value, it.Exists)
	if err != nil {
		return nil, err
	}
	return sp.encode(key, v)
}

// join is Set where there is a merge function.
func (s *Session[V]) join(ctx context.Context, key string, value V) error {
	return s.Update(ctx, key, func(old V, exists bool) (V, error) {
		if !exists {
			return value, nil
		}
		return s.sp.merged(key, old, value)
	})
}

// remove is Delete where there is a merge function: of all that the session sees.
func (s *Session[V]) remove(ctx context.Context, key string) error {
	if err := valid(key); err != nil {
		return err
	}
	items, err := s.read(ctx, func(op mesh.Op) mesh.Input { return s.m.Read(op, key) }, key)
	if err != nil || len(items[0].Among) == 0 {
		return err
	}
	return s.put(ctx, mesh.Mut{Key: key, Delete: true, Over: items[0].Dots()})
}

// MergeMax is a merge function of numbers as decimal text: the largest one. What is no number
// is less than any, and the later in the alphabet is the larger one.
func MergeMax(a, b []byte) []byte {
	x, okX := new(big.Int).SetString(string(a), 10)
	y, okY := new(big.Int).SetString(string(b), 10)
	switch {
	case okX != okY && okX, okX && okY && x.Cmp(y) > 0:
		return a
	case okX != okY, okX && okY && x.Cmp(y) < 0:
		return b
	case bytes.Compare(a, b) > 0: // the same number in two spellings, or none
		return a
	}
	return b
}

// MergeUnion is a merge function of sets as JSON arrays: every element of either, in the
// order of their text, each once. What is no array counts as the set of its text.
func MergeUnion(a, b []byte) []byte {
	all := append(elements(a), elements(b)...)
	slices.SortFunc(all, func(x, y json.RawMessage) int { return bytes.Compare(x, y) })
	all = slices.CompactFunc(all, func(x, y json.RawMessage) bool { return bytes.Equal(x, y) })
	out, _ := json.Marshal(all) // of valid elements
	return out
}

func elements(b []byte) (all []json.RawMessage) {
	if json.Unmarshal(b, &all) == nil && all != nil {
		for i, e := range all {
			var text bytes.Buffer
			_ = json.Compact(&text, e) // it was parsed
			all[i] = text.Bytes()
		}
		return all
	}
	text, _ := json.Marshal(string(b))
	return []json.RawMessage{text}
}
