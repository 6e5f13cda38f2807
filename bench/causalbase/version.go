package causalbase

import (
	"slices"
)

// version is a value of a key. It does not change.
type version struct {
	value string
	seq   uint64 // the commit that wrote it, in a global order; 0 for an initial value
	deps  deps
}

// dep is a dependency: a key, and the least version of it that is needed.
type dep struct {
	key string
	seq uint64
}

// deps are sorted by key. They do not change.
type deps []dep

// of returns the version that is needed of a key; 0 for none.
func (d deps) of(key string) uint64 {
	i, ok := slices.BinarySearchFunc(d, key, func(e dep, key string) int {
		switch {
		case e.key < key:
			return -1
		case e.key > key:
			return 1
		}
		return 0
	})
	if !ok {
		return 0
	}
	return d[i].seq
}

// with returns the union, with the later version of each key. It omits versions up to upto.
func (d deps) with(o deps, upto uint64) deps {
	if len(o) == 0 && upto == 0 {
		return d
	}
	out := make(deps, 0, len(d)+len(o))
	for len(d)+len(o) > 0 {
		var e dep
		switch {
		case len(o) == 0 || len(d) > 0 && d[0].key < o[0].key:
			e, d = d[0], d[1:]
		case len(d) == 0 || o[0].key < d[0].key:
			e, o = o[0], o[1:]
		default:
			e = dep{d[0].key, max(d[0].seq, o[0].seq)}
			d, o = d[1:], o[1:]
		}
		if e.seq > upto {
			out = append(out, e)
		}
	}
	return out
}

// bytes returns the encoded size of deps: a length, the key and a version for each.
func (d deps) bytes() (n int) {
	for _, e := range d {
		n += 1 + len(e.key) + 8
	}
	return n
}

// setting is a key that is set.
type setting struct {
	key string
	v   *version
}
