package track

import (
	"maps"
	"slices"
)

// Subscribe subscribes who to all keys that begin with one of the prefixes. It replaces the earlier
// prefixes of who.
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

// Prefixes returns all subscribed prefixes, in order.
func (t *Table[C]) Prefixes() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.prefixes))
}

// Subscribers returns all readers that have subscribed to a prefix.
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

// matching returns the keys that have subscribers, by subscriber.
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
				if mine := out[who]; len(mine) == 0 || mine[len(mine)-1] != key { // another prefix of who has matched already
					out[who] = append(mine, key)
				}
			}
		}
	}
	return out
}
