package causalbase

import (
	"cmp"
	"slices"
)

// never is the version of a key that does not exist.
var never = &version{}

func byKey(a, b setting) int { return cmp.Compare(a.key, b.key) }

func place(list []setting, key string) (int, bool) {
	return slices.BinarySearchFunc(list, key, func(s setting, key string) int { return cmp.Compare(s.key, key) })
}

// known returns the values of keys that a workflow carries. rest has the positions of the other
// keys.
func known(keys []string, writes, seen []setting) (out []string, rest []int) {
	out = make([]string, len(keys))
	for i, k := range keys {
		if j := slices.IndexFunc(writes, func(w setting) bool { return w.key == k }); j >= 0 {
			out[i] = writes[j].v.value
		} else if j, ok := place(seen, k); ok {
			out[i] = seen[j].v.value
		} else {
			rest = append(rest, i)
		}
	}
	return out, rest
}

func pick(keys []string, places []int) []string {
	out := make([]string, len(places))
	for i, j := range places {
		out[i] = keys[j]
	}
	return out
}

// saw returns the reads with these added. It does not change seen, which branches may share.
func saw(seen []setting, keys []string, got []*version) []setting {
	out := slices.Clone(seen)
	for i, k := range keys {
		v := got[i]
		if v == nil {
			v = never
		}
		out = append(out, setting{k, v})
	}
	slices.SortFunc(out, byKey)
	return slices.CompactFunc(out, func(a, b setting) bool { return a.key == b.key })
}

// merge returns the reads of two branches. If they differ in a key, it keeps both versions, the
// later one last, so that the difference is noticed.
func merge(a, b []setting) []setting {
	out := slices.Concat(a, b)
	slices.SortFunc(out, func(a, b setting) int { return cmp.Or(byKey(a, b), cmp.Compare(a.v.seq, b.v.seq)) })
	return slices.CompactFunc(out, func(a, b setting) bool { return a.key == b.key && a.v.seq == b.v.seq })
}

// torn reports whether branches have read two versions of a key.
func torn(seen []setting) bool {
	for i := 1; i < len(seen); i++ {
		if seen[i].key == seen[i-1].key {
			return true
		}
	}
	return false
}

func versions(seen []setting) deps {
	out := make(deps, len(seen))
	for i, s := range seen {
		out[i] = dep{s.key, s.v.seq}
	}
	return out
}

func buffered(writes []setting, key, value string) []setting {
	writes = slices.DeleteFunc(slices.Clone(writes), func(w setting) bool { return w.key == key })
	return append(writes, setting{key, &version{value: value}})
}
