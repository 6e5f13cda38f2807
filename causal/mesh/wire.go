package mesh

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// ErrFormat is what decoding returns for what no encoder of this version has made.
var ErrFormat = errors.New("mesh: the encoding is damaged or of another version; both sides must run compatible releases")

const wireVersion = 1

// Stream encodes what is sent on one connection, or decodes what arrives on it: the causes
// of a write are told as what has changed since the last one. Each side has its own, and
// begins with a new one when a connection is opened. The zero Stream is ready.
type Stream struct{ last Frontier }

// The kinds of messages.
const (
	chainKind byte = iota + 1
	lapKind
	greetingKind
)

// Append appends the encoding of a message.
func (s *Stream) Append(b []byte, m Message) []byte {
	b = append(b, wireVersion)
	switch m := m.(type) {
	case Chain:
		b = binary.AppendUvarint(append(b, chainKind), m.View)
		b = binary.AppendUvarint(b, uint64(m.Head))
		b = appendDelta(b, s.last, m.Write.Deps)
		s.last = m.Write.Deps
		return appendBody(b, m.Write)
	case Lap:
		b = binary.AppendUvarint(append(b, lapKind), m.View)
		b = appendFrontier(appendFrontier(b, m.Seen), m.Stable)
		return binary.AppendUvarint(b, m.Low)
	case Greeting:
		b = binary.AppendUvarint(append(b, greetingKind), m.View)
		return appendFrontier(b, m.Received)
	}
	panic(fmt.Sprintf("mesh: %T has no encoding", m))
}

// Decode decodes a message, which must be all of b. After an error the connection is of
// no use any more.
func (s *Stream) Decode(b []byte) (Message, error) {
	r := reader{b: b}
	if r.byte() != wireVersion {
		return nil, ErrFormat
	}
	var m Message
	switch r.byte() {
	case chainKind:
		c := Chain{View: r.uint(), Head: r.origin()}
		deps := r.delta(s.last)
		c.Write = r.body(deps)
		s.last, m = deps, c
	case lapKind:
		m = Lap{View: r.uint(), Seen: r.frontier(), Stable: r.frontier(), Low: r.uint()}
	case greetingKind:
		m = Greeting{View: r.uint(), Received: r.frontier()}
	default:
		return nil, ErrFormat
	}
	if r.bad || len(r.b) > 0 {
		return nil, ErrFormat
	}
	return m, nil
}

// AppendWrite appends the encoding of a write, for the journal.
func AppendWrite(b []byte, w *Write) []byte {
	return appendBody(appendFrontier(append(b, wireVersion), w.Deps), w)
}

// DecodeWrite decodes a write, which must be all of b.
func DecodeWrite(b []byte) (*Write, error) {
	r := reader{b: b}
	if r.byte() != wireVersion {
		return nil, ErrFormat
	}
	w := r.body(r.frontier())
	if r.bad || len(r.b) > 0 {
		return nil, ErrFormat
	}
	return w, nil
}

// Token is the session for the next step of its workflow. Up to limit bytes it carries
// writes with their values, beyond that only their dots: the journal has the rest. What it
// takes then is bounded by the servers and by the writes that are visible nowhere.
func (s *Session) Token(limit int) []byte {
	head := binary.AppendUvarint([]byte{wireVersion}, s.time)
	head = appendFrontier(head, s.deps)
	b := binary.AppendUvarint(head, uint64(len(s.carried)))
	for _, w := range s.carried {
		b = appendBody(appendFrontier(b, w.Deps), w)
	}
	bare := s.bare
	if len(b) > limit && len(s.carried) > 0 {
		b, bare = binary.AppendUvarint(slices.Clip(head), 0), slices.Clone(bare)
		for _, w := range s.carried {
			bare = append(bare, w.Dot)
		}
	}
	return appendDots(b, bare)
}

// MaxToken is the longest token that Resume takes.
const MaxToken = 1 << 20

// Resume is the session that a token stands for. Whoever lets tokens pass through
// others' hands must see to it that they come back unchanged.
func Resume(token []byte) (*Session, error) {
	r := reader{b: token}
	if len(token) > MaxToken || r.byte() != wireVersion {
		return nil, ErrFormat
	}
	s := &Session{time: r.uint(), deps: r.frontier()}
	for range r.count() {
		w := r.body(r.frontier())
		if r.bad || len(s.carried) > 0 && !s.carried[len(s.carried)-1].Stamp.Less(w.Stamp) {
			return nil, ErrFormat
		}
		s.carried = append(s.carried, w)
	}
	s.bare = r.dots()
	if r.bad || len(r.b) > 0 {
		return nil, ErrFormat
	}
	return s, nil
}

func appendDots(b []byte, dots []Dot) []byte {
	b = binary.AppendUvarint(b, uint64(len(dots)))
	for _, d := range dots {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(d.Origin)), d.N)
	}
	return b
}

func appendFrontier(b []byte, f Frontier) []byte { return appendDots(appendDots(b, f.upto), f.extra) }

// appendDelta tells a frontier by what it has that an earlier one had not, if that tells
// it.
func appendDelta(b []byte, last, f Frontier) []byte {
	var changed []Dot
	for _, d := range f.upto {
		if n := last.Upto(d.Origin); d.N > n {
			changed = append(changed, Dot{d.Origin, d.N - n})
		} else if d.N < n {
			return appendFrontier(append(b, 0), f)
		}
	}
	for _, d := range last.upto {
		if f.Upto(d.Origin) == 0 {
			return appendFrontier(append(b, 0), f)
		}
	}
	return appendDots(appendDots(append(b, 1), changed), f.extra)
}

// appendBody appends all of a write but its Deps.
func appendBody(b []byte, w *Write) []byte {
	b = appendDots(b, append([]Dot{w.Dot}, w.After...))
	b = binary.AppendUvarint(binary.AppendUvarint(b, w.Stamp.Time), uint64(w.Stamp.Origin))
	b = binary.AppendUvarint(b, uint64(len(w.Muts)))
	for _, m := range w.Muts {
		b = appendBytes(b, []byte(m.Key))
		if m.Delete {
			b = append(b, 0)
		} else {
			b = appendBytes(append(b, 1), m.Value)
		}
	}
	return b
}

func appendBytes(b, v []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// reader takes an encoding apart. Once it is bad, it is bad to the end, and returns zeros.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) fail() { r.b, r.bad = nil, true }

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || n > 1 && r.b[n-1] == 0 { // one encoding for one number
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) origin() Origin {
	v := r.uint()
	if v != uint64(Origin(v)) {
		r.fail()
	}
	return Origin(v)
}

// count is how many things follow, each of a byte at least.
func (r *reader) count() int {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *reader) dots() (out []Dot) {
	n := r.count()
	for range n {
		d := Dot{r.origin(), r.uint()}
		if d.Origin == 0 || d.N == 0 {
			r.fail()
		}
		if r.bad {
			return nil
		}
		out = append(out, d)
	}
	return out
}

func (r *reader) frontier() (f Frontier) {
	f.upto, f.extra = r.dots(), r.dots()
	return r.valid(f)
}

// valid is a frontier that is as all frontiers are, or a failure.
func (r *reader) valid(f Frontier) Frontier {
	ok := slices.IsSortedFunc(f.upto, Dot.compare) && slices.IsSortedFunc(f.extra, Dot.compare)
	for i, d := range f.upto {
		ok = ok && (i == 0 || f.upto[i-1].Origin < d.Origin)
	}
	for i, d := range f.extra {
		ok = ok && (i == 0 || f.extra[i-1] != d) && d.N > f.Upto(d.Origin)+1 && f.Upto(d.Origin) < d.N
	}
	if !ok || r.bad {
		r.fail()
		return Frontier{}
	}
	return f
}

func (r *reader) delta(last Frontier) Frontier {
	switch r.byte() {
	case 0:
		return r.frontier()
	case 1:
		f := Frontier{upto: slices.Clone(last.upto)}
		for _, d := range r.dots() {
			i := f.at(d.Origin)
			if f.upto[i].N += d.N; f.upto[i].N < d.N {
				r.fail()
			}
		}
		f.extra = r.dots()
		return r.valid(f)
	}
	r.fail()
	return Frontier{}
}

func (r *reader) bytes() []byte {
	n := r.count()
	v := r.b[:n:n]
	r.b = r.b[n:]
	return slices.Clone(v)
}

func (r *reader) body(deps Frontier) *Write {
	dots := r.dots()
	if len(dots) == 0 {
		r.fail()
		return nil
	}
	w := &Write{Dot: dots[0], Deps: deps, Stamp: Stamp{r.uint(), r.origin()}}
	if len(dots) > 1 {
		w.After = dots[1:]
	}
	for range r.count() {
		m := Mut{Key: string(r.bytes())}
		switch r.byte() {
		case 0:
			m.Delete = true
		case 1:
			m.Value = r.bytes()
		default:
			r.fail()
		}
		if r.bad {
			return nil
		}
		w.Muts = append(w.Muts, m)
	}
	return w
}
