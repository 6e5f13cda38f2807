package track

import (
	"maps"
	"slices"
)

// Subscribe lets who hear of every key that begins with one of the prefixes, in
// place of those it had.
func (t *Table[C]) Subscribe(who C, prefixes []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unsubscribe(who)
	for _, p := range prefixes {
		if slices.Contains(t.prefixes[p], who) {
			continue
		}
		if len(t.prefixes[p]) == 0 {
			t.lengths[len(p)]++
		}
		t.prefixes[p] = append(t.prefixes[p], who)
	}
	t.count()
}

func (t *Table[C]) unsubscribe(who C) {
	for p, all := range t.prefixes {
		left := slices.DeleteFunc(all, func(w C) bool { return w == who })
		if t.prefixes[p] = left; len(left) > 0 {
			continue
		}
		delete(t.prefixes, p)
		if t.lengths[len(p)]--; t.lengths[len(p)] == 0 {
			delete(t.lengths, len(p))
		}
	}
}

// Prefixes are all that anybody wants to hear of, in order.
func (t *Table[C]) Prefixes() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.prefixes))
}

// Subscribers are all who want to hear of some prefix.
func (t *Table[C]) Subscribers() []C {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[C]bool{}
	for _, some := range t.prefixes {
		for _, who := range some {
			all[who] = true
		}
	}
	return slices.Collect(maps.Keys(all))
}

// matching are those of the keys that somebody wants to hear of by a prefix.
func (t *Table[C]) matching(keys []string) map[C][]string {
	if len(t.prefixes) == 0 {
		return nil
	}
	out := map[C][]string{}
	for _, key := range keys {
		for n := range t.lengths {
			if n > len(key) {
				continue
			}
			for _, who := range t.prefixes[key[:n]] {
				if mine := out[who]; len(mine) == 0 || mine[len(mine)-1] != key { // by another prefix already
					out[who] = append(mine, key)
				}
			}
		}
	}
	return out
}
