package lease

import "strconv"

// Range is the keys k with Low <= k < High in byte order. An empty High means no upper end, so the
// zero Range is every key.
type Range struct{ Low, High string }

// Point returns the range of one key.
func Point(key string) Range { return Range{key, key + "\x00"} }

// Contains reports whether key lies in r.
func (r Range) Contains(key string) bool {
	return r.Low <= key && (r.High == "" || key < r.High)
}

// Covers reports whether every key of s lies in r.
func (r Range) Covers(s Range) bool {
	return r.Low <= s.Low && (r.High == "" || s.High != "" && s.High <= r.High)
}

// Overlaps reports whether some key lies in both ranges.
func (r Range) Overlaps(s Range) bool {
	return (s.High == "" || r.Low < s.High) && (r.High == "" || s.Low < r.High)
}

// Intersect returns the keys of both ranges; false if there are none.
func (r Range) Intersect(s Range) (Range, bool) {
	if !r.Overlaps(s) {
		return Range{}, false
	}
	r.Low = max(r.Low, s.Low)
	if r.High == "" || s.High != "" && s.High < r.High {
		r.High = s.High
	}
	return r, true
}

// Cut returns r in pieces, cut at those points that lie strictly inside it. points must be sorted.
func (r Range) Cut(points []string) []Range {
	var out []Range
	for _, at := range points {
		if at > r.Low && (r.High == "" || at < r.High) {
			out = append(out, Range{r.Low, at})
			r.Low = at
		}
	}
	return append(out, r)
}

// String returns [low,high), with an open end written as "end".
func (r Range) String() string {
	high := "end"
	if r.High != "" {
		high = show(r.High)
	}
	return "[" + show(r.Low) + "," + high + ")"
}

// show quotes a key only if it must be quoted.
func show(key string) string {
	q := strconv.Quote(key)
	if q == `"`+key+`"` && key != "" {
		return key
	}
	return q
}
