// Package names has which entries belong to a name, and whether a name was invalidated since a load
// began; and a bounded set of names. A name is a key, or a tag that values of keys depend on.
//
// What may be relied on: an entry is found by its key and by each of its tags, and no invalidation is
// missed. What it costs: names share slots, so that a load may be overtaken in vain.
package names

import (
	"maps"
	"slices"
)

// Counts has, for each slot of names, the count of invalidations when one of them was invalidated last.
type Counts struct {
	slots []uint64
	now   uint64
	floor uint64 // everything was invalidated then
}

// NewCounts returns counts in so many slots.
func NewCounts(slots int) *Counts { return &Counts{slots: make([]uint64, slots)} }

// slot returns a name's: FNV-1a of its bytes.
func (c *Counts) slot(name string) *uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return &c.slots[h%uint64(len(c.slots))]
}

// Now returns the count that a load notes as it begins.
func (c *Counts) Now() uint64 { return c.now }

// Invalidate counts an invalidation of a name.
func (c *Counts) Invalidate(name string) {
	c.now++
	*c.slot(name) = c.now
}

// InvalidateAll counts an invalidation of every name.
func (c *Counts) InvalidateAll() {
	c.now++
	c.floor = c.now
}

// Since reports whether a key, one of its tags, or everything, was invalidated after a count.
func (c *Counts) Since(count uint64, key string, tags []string) bool {
	if count < c.floor || *c.slot(key) > count {
		return true
	}
	for _, tag := range tags {
		if *c.slot(tag) > count {
			return true
		}
	}
	return false
}

// Index has the keys of the entries that depend on each tag.
type Index map[string]map[string]bool

// Add enters a key under its tags.
func (x Index) Add(key string, tags []string) {
	for _, tag := range tags {
		if x[tag] == nil {
			x[tag] = map[string]bool{}
		}
		x[tag][key] = true
	}
}

// Remove takes a key out of its tags.
func (x Index) Remove(key string, tags []string) {
	for _, tag := range tags {
		if delete(x[tag], key); len(x[tag]) == 0 {
			delete(x, tag)
		}
	}
}

// Keys returns the keys that depend on a tag, in order.
func (x Index) Keys(tag string) []string { return slices.Sorted(maps.Keys(x[tag])) }

// Few is a set of names that stands for all names once there are too many. The zero value is empty.
type Few struct {
	names map[string]bool
	all   bool
}

// Most is how many names a Few holds.
const Most = 1024

// Add adds names.
func (f *Few) Add(names ...string) {
	if f.names == nil {
		f.names = map[string]bool{}
	}
	for _, name := range names {
		if f.all {
			return
		}
		if f.names[name] = true; len(f.names) > Most {
			f.names, f.all = nil, true
		}
	}
}

// Remove removes names, or all of them if none is given. Single names cannot be taken out of all.
func (f *Few) Remove(names ...string) {
	if len(names) == 0 {
		*f = Few{}
	}
	for _, name := range names {
		delete(f.names, name)
	}
}

// Empty reports whether there is nothing in the set.
func (f *Few) Empty() bool { return !f.all && len(f.names) == 0 }

// List returns the names in order, and none if the set stands for all.
func (f *Few) List() []string { return slices.Sorted(maps.Keys(f.names)) }
