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

// ErrUnlawful comes together with a value, which is the same at every server. The merge function
// that made the value is not commutative, associative and idempotent, so the value may change when
// it is written again.
var ErrUnlawful = errors.New("causal: unlawful merge: the value stands, and is the same everywhere; mend the merge function, and try it with CheckMerge")

// errSetting means that nothing was done: the options of the space and of its server differ.
var errSetting = errors.New("causal: the space has a merge function and its server does not keep concurrent writes, or the reverse; set SpaceOptions.Merge and Options.Concurrent together")

// CheckMerge tests a merge function on values, and returns an error that says for which it does not
// obey the laws: merge(a, b) is merge(b, a), merge(merge(a, b), b) is merge(a, b), and merge(a,
// merge(b, c)) is merge(merge(a, b), c), all as c encodes them. It is for tests: give it many
// values, also merged ones.
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

// laws checks the laws on three values.
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

// fold returns the value of a key that holds siblings: all of them merged in the order of their
// stamps, which is the same at every server. The error ErrUnlawful comes with the value. fold
// continues from the longest merge that folds kept.
func (sp *Space[V]) fold(key string, it mesh.Item) (out Item[V], err error) {
	var dots []mesh.Dot
	var values [][]byte
	for _, w := range it.Siblings {
		for _, m := range w.Muts {
			if m.Key == key && !m.Delete {
				dots, values = append(dots, w.Dot), append(values, m.Value)
			}
		}
	}
	if len(values) == 0 {
		return out, nil
	}
	if len(values) >= compactAt {
		sp.compact(key)
	}
	from := sp.folds.find(key, dots)
	at, text := len(from.dots), from.text
	if at == 0 {
		at, text = 1, values[0]
	}
	if out.Value, err = sp.opt.Codec.Decode(text); err != nil {
		return Item[V]{}, fmt.Errorf("causal: the value of %q cannot be decoded: %w", key, err)
	}
	out.Exists = true
	if at == len(values) {
		return out, from.err
	}
	unlawful := from.err
	if unlawful == nil && sp.folds.sampled() {
		if unlawful = sp.lawful(key, values); unlawful != nil && !errors.Is(unlawful, ErrUnlawful) {
			return Item[V]{}, unlawful
		}
	}
	for ; at < len(values); at++ {
		v, err := sp.opt.Codec.Decode(values[at])
		if err != nil {
			return Item[V]{}, fmt.Errorf("causal: the value of %q cannot be decoded: %w", key, err)
		}
		if out.Value, err = sp.merged(key, out.Value, v); err != nil {
			return Item[V]{}, fmt.Errorf("%w (key %q)", err, key)
		}
		if at+1 == len(values) || at%foldStep == 0 {
			if text, err := sp.opt.Codec.Append(nil, out.Value); err == nil {
				sp.folds.keep(key, folded{dots[:at+1], text, unlawful})
			}
		}
	}
	return out, unlawful
}

// lawful checks the laws on three values of a key.
func (sp *Space[V]) lawful(key string, texts [][]byte) error {
	var three [3]V
	for i, text := range [][]byte{texts[0], texts[1], texts[len(texts)-1]} {
		v, err := sp.opt.Codec.Decode(text)
		if err != nil {
			return fmt.Errorf("causal: the value of %q cannot be decoded: %w", key, err)
		}
		three[i] = v
	}
	if err := laws(sp.opt.Codec, sp.opt.Merge, three[0], three[1], three[2]); err != nil {
		if errors.Is(err, ErrUnlawful) {
			sp.folds.broken.Store(true)
		}
		return fmt.Errorf("%w (key %q)", err, key)
	}
	return nil
}

// merged calls the merge function, and returns its panic as an error.
func (sp *Space[V]) merged(key string, a, b V) (v V, err error) {
	defer recoverMerge(&err)
	return sp.opt.Merge(a, b), nil
}

// Update replaces what the session sees of key by what f makes of it. exists says whether there is
// a value. f runs once; its error ends the update, and nothing is written. In a space with a merge
// function, f gets the merged value, and writes that other clients make at the same time are merged
// with the result. Otherwise the larger stamp wins.
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
	return s.put(ctx, mesh.Mut{Key: key, Value: b, Supersedes: items[0].Dots()})
}

// changed returns the encoding of what f makes of the decoded value.
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

// join is Set in a space with a merge function.
func (s *Session[V]) join(ctx context.Context, key string, value V) error {
	return s.Update(ctx, key, func(old V, exists bool) (V, error) {
		if !exists {
			return value, nil
		}
		return s.sp.merged(key, old, value)
	})
}

// remove is Delete in a space with a merge function. It deletes all siblings that the session sees.
func (s *Session[V]) remove(ctx context.Context, key string) error {
	if err := valid(key); err != nil {
		return err
	}
	items, err := s.read(ctx, func(op mesh.Op) mesh.Input { return s.m.Read(op, key) }, key)
	if err != nil || len(items[0].Siblings) == 0 {
		return err
	}
	return s.put(ctx, mesh.Mut{Key: key, Delete: true, Supersedes: items[0].Dots()})
}

// MergeMax is a merge function of numbers as decimal text: the largest wins. A text that is no
// number is less than any number. Of two such texts the later one in byte order wins.
func MergeMax(a, b []byte) []byte {
	x, okX := new(big.Int).SetString(string(a), 10)
	y, okY := new(big.Int).SetString(string(b), 10)
	switch {
	case okX != okY && okX, okX && okY && x.Cmp(y) > 0:
		return a
	case okX != okY, okX && okY && x.Cmp(y) < 0:
		return b
	case bytes.Compare(a, b) > 0: // one number in two spellings, or no numbers
		return a
	}
	return b
}

// MergeUnion is a merge function of sets as JSON arrays: every element of either, each once, in the
// order of their text. A text that is no array counts as the set of this one text.
func MergeUnion(a, b []byte) []byte {
	x, y := elements(a), elements(b)
	out := append(make([]byte, 0, len(a)+len(b)+2), '[')
	for len(x)+len(y) > 0 {
		way := -1
		switch {
		case len(x) == 0:
			way = 1
		case len(y) > 0:
			way = bytes.Compare(x[0], y[0])
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		if way <= 0 {
			out, x = append(out, x[0]...), x[1:]
		} else {
			out = append(out, y[0]...)
		}
		if way >= 0 {
			y = y[1:]
		}
	}
	return append(out, ']')
}

// elements returns the elements of a set, in order and each once, as json.Marshal writes them.
func elements(b []byte) (all [][]byte) {
	all, plain := words(b)
	if !plain {
		text := bytes.NewBuffer(make([]byte, 0, len(b)))
		if trimmed := bytes.TrimLeft(b, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '[' || json.Compact(text, b) != nil {
			text, _ := json.Marshal(string(b))
			return [][]byte{text}
		}
		var escaped bytes.Buffer
		json.HTMLEscape(&escaped, text.Bytes())
		all = split(escaped.Bytes())
	}
	for i := 1; i < len(all); i++ {
		if bytes.Compare(all[i-1], all[i]) >= 0 {
			slices.SortFunc(all, bytes.Compare)
			return slices.CompactFunc(all, bytes.Equal)
		}
	}
	return all
}

// plainByte marks the bytes that stand for themselves inside a string as json.Marshal writes it.
var plainByte = func() (is [256]bool) {
	for c := range is {
		is[c] = c >= 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return is
}()

// words returns the elements of an array of plain strings without spaces between them. MergeUnion
// writes most sets so, and words reads them much faster than other JSON. ok is false for any other
// text.
func words(b []byte) (all [][]byte, ok bool) {
	n := len(b)
	if n < 4 || b[0] != '[' || b[n-1] != ']' {
		return nil, false
	}
	all = make([][]byte, 0, 1+bytes.Count(b, []byte{','}))
	for at := 1; ; at++ { // behind each comma
		from := at
		if at >= n-1 || b[at] != '"' {
			return nil, false
		}
		for at++; plainByte[b[at]]; at++ { // the bracket at the end is a plain byte, so the loop ends there
			if at == n-1 {
				return nil, false
			}
		}
		if b[at] != '"' || at == n-1 {
			return nil, false
		}
		all = append(all, b[from:at+1])
		switch at++; {
		case at == n-1:
			return all, true
		case b[at] != ',':
			return nil, false
		}
	}
}

// split returns the elements of an array that is JSON without spaces.
func split(b []byte) (all [][]byte) {
	depth, quoted, from := 0, false, 1
	for i := 1; i < len(b)-1; i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		case c == ',' && depth == 0:
			all, from = append(all, b[from:i]), i+1
		}
	}
	if from < len(b)-1 {
		all = append(all, b[from:len(b)-1])
	}
	return all
}
