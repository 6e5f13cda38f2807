// Package track remembers which clients have read which keys, and which ones subscribe to all keys
// with a prefix. The node that writes a key can notify all of them before it acknowledges the
// write.
//
// What may be relied on: a [Table] drops a reader only by putting it on a [Ticket]. Of two writers
// of a key, the later one waits until the readers on the ticket of the earlier one were notified. A
// table has one entry per key, and at most as many as Options.Keys.
package track

import (
	"container/heap"
	"context"
	"slices"
	"strings"
)

// Add remembers that who reads key. The caller must call it before it looks up the value. The
// ticket has readers that the caller must notify: the former readers of key, if via is not nil and
// differs from the earlier via, and the readers of a key that was evicted because the table is
// full. The ticket is nearly always nil.
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
		if len(e.who) >= few && len(e.who)&(len(e.who)-1) == 0 { // it doubled: remove readers that have gone
			t.prune(e)
		}
		e.add(who)
		t.readers++
	}
	t.count()
	return out
}

// evict moves an arbitrary key to the ticket.
func (t *Table[C]) evict(out *Ticket[C]) *Ticket[C] {
	for key := range t.keys { // the order of a map is random enough
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

// Ends sets when the TTL of a remembered key ends.
func (t *Table[C]) Ends(key string, at int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.keys[key]
	if e == nil || e.end == at {
		return
	}
	e.end = at
	switch {
	case e.heap < 0: // it had no TTL
		heap.Push(&t.ends, e)
	case at == 0:
		heap.Remove(&t.ends, e.heap)
	default:
		heap.Fix(&t.ends, e.heap)
	}
}

// take moves a key from the table to a ticket, which it creates if necessary.
func (t *Table[C]) take(to *Ticket[C], key string) *Ticket[C] {
	e, before := t.keys[key], t.going[key]
	if e == nil && before == nil {
		return to
	}
	if to == nil {
		to = &Ticket[C]{Tell: map[C][]string{}, t: t, done: make(chan struct{})}
	}
	if before == to { // the caller passed the key twice
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

// Take moves written keys from the table to a ticket, with their readers and the subscribers of
// their prefixes. The ticket is nil if there is no one to notify and no other ticket to wait for.
// keys may contain a key twice.
func (t *Table[C]) Take(keys ...string) (out *Ticket[C]) {
	var nobody C
	return t.TakeBut(nobody, keys...)
}

// TakeBut is Take, but who stays a reader of those keys that it has read: it wrote and read them in
// one command. It is notified all the same. The zero value means no reader.
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

// TakeIf moves all keys for which fits returns true to a ticket. fits gets the key and the via of
// Add.
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

// TakeEnded moves some of the keys whose TTLs have ended at now to a ticket, and reports whether
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

// Wait waits until the earlier tickets of the same keys are done, or ctx ends.
func (k *Ticket[C]) Wait(ctx context.Context) {
	for _, before := range k.wait {
		select {
		case <-before.done:
		case <-ctx.Done():
			return
		}
	}
}

// Done ends the ticket: all its readers were notified.
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

// Forget removes a reader from all keys and prefixes. It visits all entries.
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

// Clear removes all keys, without a ticket: no reader is left to notify. Prefixes stay.
func (t *Table[C]) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.keys)
	t.readers, t.ends = 0, nil
	t.count()
}

// Counts returns the numbers of keys and prefixes, and how many keys were evicted.
func (t *Table[C]) Counts() (keys, prefixes int, evicted uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.keys), len(t.prefixes), t.evicted
}
