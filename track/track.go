// Package track remembers who has read which keys, or wants to hear of all keys
// that begin with a prefix, so that whoever has written a key can tell them all
// before the write is acknowledged.
//
// What may be relied on: a [Table] never forgets a reader without saying so in a
// [Ticket]; and of two writers of a key, the later one waits until the readers
// that the earlier one took out of the table have been told. It costs one entry a
// key, and there are never more than the bound.
package track

import (
	"container/heap"
	"context"
	"slices"
	"strings"
)

// Add remembers that who reads key, and must be called before the value is looked
// up. If via is not nil and not what the key was read through before, the former
// readers are in the ticket, and so are those of a key that must go because the
// table is full: tell them. Nearly always the ticket is nil.
func (t *Table[C]) Add(key string, who C, via any) *Ticket[C] {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out *Ticket[C]
	e := t.keys[key]
	if e != nil && via != nil && e.via != nil && e.via != via {
		out = t.take(nil, key)
		e = nil
	}
	if e == nil {
		if len(t.keys) >= t.opt.Keys || t.readers >= t.opt.Keys*pairsPerKey {
			out = t.evict(out)
		}
		e = &entry[C]{key: strings.Clone(key), heap: -1}
		t.keys[e.key] = e
	}
	if via != nil {
		e.via = via
	}
	if !e.has(who) {
		if len(e.who) >= few && len(e.who)&(len(e.who)-1) == 0 { // it doubled: who has gone makes room
			t.prune(e)
		}
		e.add(who)
		t.readers++
	}
	t.count()
	return out
}

// evict takes some key out.
func (t *Table[C]) evict(out *Ticket[C]) *Ticket[C] {
	for key := range t.keys { // any: the order of a map is as good as chance
		t.evicted++
		return t.take(out, key)
	}
	return out
}

func (t *Table[C]) prune(e *entry[C]) {
	was := len(e.who)
	e.who = slices.DeleteFunc(e.who, func(w C) bool { return !t.opt.Alive(w) })
	t.readers -= was - len(e.who)
	if e.set = nil; len(e.who) > few {
		e.set = map[C]struct{}{}
		for _, w := range e.who {
			e.set[w] = struct{}{}
		}
	}
}

// Ends sets when the TTL of a key that is remembered is over.
func (t *Table[C]) Ends(key string, at int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.keys[key]
	if e == nil || e.end == at {
		return
	}
	e.end = at
	switch {
	case e.heap < 0: // it had no end
		heap.Push(&t.ends, e)
	case at == 0:
		heap.Remove(&t.ends, e.heap)
	default:
		heap.Fix(&t.ends, e.heap)
	}
}

// take takes a key out of the table and onto a ticket, which is made if need be.
func (t *Table[C]) take(to *Ticket[C], key string) *Ticket[C] {
	e, before := t.keys[key], t.going[key]
	if e == nil && before == nil {
		return to
	}
	if to == nil {
		to = &Ticket[C]{Tell: map[C][]string{}, t: t, done: make(chan struct{})}
	}
	if before == to { // named twice
		return to
	}
	if before != nil {
		to.wait = append(to.wait, before)
	}
	if e != nil {
		key = e.key
		delete(t.keys, key)
		t.readers -= len(e.who)
		if e.heap >= 0 {
			heap.Remove(&t.ends, e.heap)
		}
		for _, w := range e.who {
			if t.opt.Alive(w) {
				to.Tell[w] = append(to.Tell[w], key)
			}
		}
	}
	to.Keys = append(to.Keys, key)
	t.going[key] = to
	return to
}

// Take takes keys that were written, and whoever wants to hear of them by a prefix.
// The ticket is nil if there is nobody to tell and nothing to wait for. A key may be
// named twice.
func (t *Table[C]) Take(keys ...string) (out *Ticket[C]) {
	var nobody C
	return t.TakeBut(nobody, keys...)
}

// TakeBut is Take, but whoever is named and has read a key is told and remembered
// all the same: it has written and read the key in one. The zero value names nobody.
func (t *Table[C]) TakeBut(who C, keys ...string) (out *Ticket[C]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var nobody C
	for _, key := range keys {
		e := t.keys[key]
		if out = t.take(out, key); t.keys[key] != e && who != nobody && e.has(who) {
			again := &entry[C]{key: e.key, via: e.via, heap: -1}
			again.add(who)
			t.keys[e.key] = again
			t.readers++
		}
	}
	for who, keys := range t.matching(keys) {
		if out == nil {
			out = &Ticket[C]{Tell: map[C][]string{}, t: t, done: make(chan struct{})}
		}
		had := map[string]bool{}
		for _, key := range out.Tell[who] {
			had[key] = true
		}
		for _, key := range keys {
			if !had[key] {
				out.Tell[who] = append(out.Tell[who], key)
			}
		}
	}
	t.count()
	return out
}

// TakeIf takes all keys that fit, with what they were read through.
func (t *Table[C]) TakeIf(fits func(key string, via any) bool) (out *Ticket[C]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.going {
		if fits(key, nil) {
			out = t.take(out, key)
		}
	}
	for key, e := range t.keys {
		if fits(key, e.via) {
			out = t.take(out, key)
		}
	}
	t.count()
	return out
}

// TakeEnded takes some of the keys whose TTLs have passed at now, and says whether
// there are more.
func (t *Table[C]) TakeEnded(now int64) (out *Ticket[C], more bool) {
	const some = 1000
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := 0; len(t.ends) > 0 && t.ends[0].end <= now; i++ {
		if i == some {
			more = true
			break
		}
		out = t.take(out, t.ends[0].key)
	}
	t.count()
	return out, more
}

// Wait waits until the tickets that had the keys before are done, or ctx ends.
func (k *Ticket[C]) Wait(ctx context.Context) {
	for _, before := range k.wait {
		select {
		case <-before.done:
		case <-ctx.Done():
			return
		}
	}
}

// Done says that everybody has been told.
func (k *Ticket[C]) Done() {
	k.t.mu.Lock()
	defer k.t.mu.Unlock()
	for _, key := range k.Keys {
		if k.t.going[key] == k {
			delete(k.t.going, key)
		}
	}
	k.wait = nil
	close(k.done)
	k.t.count()
}

// Forget takes a reader out of all keys and prefixes. It looks at all there are.
func (t *Table[C]) Forget(who C) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unsubscribe(who)
	for key, e := range t.keys {
		if !e.has(who) {
			continue
		}
		e.who = slices.DeleteFunc(e.who, func(w C) bool { return w == who })
		delete(e.set, who)
		if t.readers--; len(e.who) == 0 {
			delete(t.keys, key)
			if e.heap >= 0 {
				heap.Remove(&t.ends, e.heap)
			}
		}
	}
	t.count()
}

// Clear forgets all keys, but no prefixes: there is nobody left to tell.
func (t *Table[C]) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.keys)
	t.readers, t.ends = 0, nil
	t.count()
}

// Counts are how many keys and prefixes there are, and how many keys had to go.
func (t *Table[C]) Counts() (keys, prefixes int, evicted uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.keys), len(t.prefixes), t.evicted
}
