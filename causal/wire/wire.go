// Package wire encodes the messages between servers of package mesh, the journal entries of writes,
// and the tokens of sessions. Decoders refuse what no encoder of this version has made, and never
// panic.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/freshet-cache/freshet/causal/dot"
	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/internal/packed"
)

// ErrFormat is what decoders return for bytes that no encoder of this version has made.
var ErrFormat = errors.New("causal: the encoding is damaged or of another version; both sides must run compatible releases")

// The first byte of every encoding. The store's trigger encodes external writes, with the means
// that a database has.
const (
	externalVersion = 0
	wireVersion     = 1
)

// Stream encodes the messages of one connection, or decodes them. It encodes the causes of a write
// as their difference from those of the previous write. Each side has its own Stream, and a new one
// for each connection. The zero Stream is ready.
type Stream struct {
	last dot.Frontier
	part []byte // memory for the next message
}

// The kinds of messages.
const (
	chainKind byte = iota + 1
	roundKind
	resyncKind
	snapshotKind
	namedKind
)

// Append appends the encoding of a message.
func (s *Stream) Append(b []byte, m mesh.Message) []byte {
	b = append(slices.Grow(b, usual), wireVersion)
	switch m := m.(type) {
	case mesh.Chain:
		b = binary.AppendUvarint(append(b, chainKind), m.View)
		b = binary.AppendUvarint(b, uint64(m.Head))
		b = dot.AppendDelta(b, s.last, m.Write.Deps)
		s.last = m.Write.Deps
		return appendBody(b, m.Write)
	case mesh.Named:
		b = binary.AppendUvarint(append(b, namedKind), m.View)
		return binary.AppendUvarint(binary.AppendUvarint(b, uint64(m.Dot.Incarnation)), m.Dot.N)
	case mesh.StabilityRound:
		b = binary.AppendUvarint(append(b, roundKind), m.View)
		b = dot.AppendFrontier(dot.AppendFrontier(b, m.Seen), m.Stable)
		return dot.AppendFrontier(binary.AppendUvarint(b, m.Low), m.Durable)
	case mesh.Resync:
		b = binary.AppendUvarint(append(b, resyncKind), m.View)
		return dot.AppendFrontier(b, m.Received)
	case mesh.Snapshot:
		b = binary.AppendUvarint(append(b, snapshotKind), m.View)
		b = dot.AppendFrontier(dot.AppendFrontier(dot.AppendFrontier(b, m.Visible), m.Received), m.Stable)
		b = binary.AppendUvarint(binary.AppendUvarint(b, m.Time), uint64(len(m.Log)))
		for _, w := range m.Log {
			b = appendBody(dot.AppendFrontier(b, w.Deps), w)
		}
		b = binary.AppendUvarint(dot.AppendFrontier(b, m.Durable), uint64(len(m.Elder)))
		for _, o := range m.Elder {
			b = binary.AppendUvarint(b, uint64(o))
		}
		return b
	}
	panic(fmt.Sprintf("wire: %T has no encoding", m))
}

// Decode decodes a message, which must be all of b. After an error the connection must be closed.
func (s *Stream) Decode(b []byte) (mesh.Message, error) {
	r := dot.NewReader(b)
	if r.Byte() != wireVersion {
		return nil, ErrFormat
	}
	var m mesh.Message
	switch r.Byte() {
	case chainKind:
		c := mesh.Chain{View: r.Uint(), Head: r.Incarnation()}
		deps := r.Delta(s.last)
		c.Write = body(r, deps)
		s.last, m = deps, c
	case namedKind:
		m = mesh.Named{View: r.Uint(), Dot: r.Dot()}
	case roundKind:
		m = mesh.StabilityRound{View: r.Uint(), Seen: r.Frontier(), Stable: r.Frontier(), Low: r.Uint(), Durable: r.Frontier()}
	case resyncKind:
		m = mesh.Resync{View: r.Uint(), Received: r.Frontier()}
	case snapshotKind:
		c := mesh.Snapshot{View: r.Uint(), Visible: r.Frontier(), Received: r.Frontier(), Stable: r.Frontier(), Time: r.Uint()}
		for range r.Count() {
			c.Log = append(c.Log, body(r, r.Frontier()))
		}
		c.Durable = r.Frontier()
		for range r.Count() {
			c.Elder = append(c.Elder, r.Incarnation())
		}
		m = c
	default:
		return nil, ErrFormat
	}
	if !r.Done() {
		return nil, ErrFormat
	}
	return m, nil
}

// AppendWrite appends the encoding of a write, for the journal.
func AppendWrite(b []byte, w *mesh.Write) []byte {
	return appendBody(dot.AppendFrontier(append(slices.Grow(b, usual), wireVersion), w.Deps), w)
}

// usual is how many bytes most messages take at most.
const usual = 160

// DecodeWrite decodes a write, which must be all of b.
func DecodeWrite(b []byte) (*mesh.Write, error) {
	if len(b) > 0 && b[0] == externalVersion {
		return external(b)
	}
	r := dot.NewReader(b)
	if r.Byte() != wireVersion {
		return nil, ErrFormat
	}
	w := body(r, r.Frontier())
	if !r.Done() {
		return nil, ErrFormat
	}
	return w, nil
}

// external decodes an external write as the trigger encodes it: number, time, key behind its
// length, and value behind a byte that says whether there is one.
func external(b []byte) (*mesh.Write, error) {
	const head = 1 + 8 + 8 + 4
	if len(b) < head {
		return nil, ErrFormat
	}
	n, time, size := binary.BigEndian.Uint64(b[1:]), binary.BigEndian.Uint64(b[9:]), binary.BigEndian.Uint32(b[17:])
	if b = b[head:]; n == 0 || size == 0 || uint64(len(b)) < uint64(size)+1 {
		return nil, ErrFormat
	}
	m := mesh.Mut{Key: string(b[:size]), Delete: b[size] == 0}
	switch b = b[size:]; {
	case b[0] > 1 || m.Delete && len(b) > 1:
		return nil, ErrFormat
	case !m.Delete:
		m.Value = append([]byte{}, b[1:]...)
	}
	return &mesh.Write{Dot: dot.Dot{Incarnation: mesh.External, N: n}, Stamp: dot.Stamp{Time: time, Incarnation: mesh.External}, Muts: []mesh.Mut{m}}, nil
}

// AppendWrites appends the encoding of several writes, for the log of an asynchronous space.
func AppendWrites(b []byte, writes []*mesh.Write) []byte {
	b = binary.AppendUvarint(append(b, wireVersion), uint64(len(writes)))
	for _, w := range writes {
		b = appendBody(dot.AppendFrontier(b, w.Deps), w)
	}
	return b
}

// DecodeWrites decodes several writes, which must be all of b.
func DecodeWrites(b []byte) (out []*mesh.Write, err error) {
	r := dot.NewReader(b)
	if r.Byte() != wireVersion {
		return nil, ErrFormat
	}
	for range r.Count() {
		out = append(out, body(r, r.Frontier()))
	}
	if !r.Done() {
		return nil, ErrFormat
	}
	return out, nil
}

// AppendSet appends the encoding of a set of writes. A store keeps it as the mark of what was
// merged into its rows.
func AppendSet(b []byte, f dot.Frontier) []byte {
	return dot.AppendFrontier(append(b, wireVersion), f)
}

// DecodeSet decodes a set of writes, which must be all of b. An empty b is the empty set.
func DecodeSet(b []byte) (f dot.Frontier, err error) {
	if len(b) == 0 {
		return f, nil
	}
	r := dot.NewReader(b)
	if r.Byte() != wireVersion {
		return f, ErrFormat
	}
	if f = r.Frontier(); !r.Done() {
		return dot.Frontier{}, ErrFormat
	}
	return f, nil
}

// appendBody appends everything of a write except its Deps.
func appendBody(b []byte, w *mesh.Write) []byte {
	b = dot.AppendNamed(b, w.Dot, w.After)
	b = binary.AppendUvarint(binary.AppendUvarint(b, w.Stamp.Time), uint64(w.Stamp.Incarnation))
	return appendMuts(b, w.Muts)
}

// Flags of an encoded mutation.
const (
	hasValue byte = 1 << iota
	hasSiblings
)

func appendMuts(b []byte, muts []mesh.Mut) []byte {
	b = binary.AppendUvarint(b, uint64(len(muts)))
	for _, m := range muts {
		b = packed.AppendString(b, m.Key)
		what := byte(0)
		if !m.Delete {
			what |= hasValue
		}
		if m.Siblings {
			what |= hasSiblings
		}
		if b = append(b, what); !m.Delete {
			b = packed.AppendBytes(b, m.Value)
		}
		if m.Siblings {
			b = dot.AppendDots(b, m.Supersedes)
		}
	}
	return b
}

func body(r *dot.Reader, deps dot.Frontier) *mesh.Write {
	whole := &struct { // one allocation, because nearly all writes set one key
		mesh.Write
		muts [1]mesh.Mut
	}{Write: mesh.Write{Deps: deps}}
	w := &whole.Write
	w.Dot, w.After = r.Named()
	w.Stamp = dot.Stamp{Time: r.Uint(), Incarnation: r.Incarnation()}
	if w.Muts = muts(r, whole.muts[:0]); r.Bad() {
		return nil
	}
	return w
}

func muts(r *dot.Reader, out []mesh.Mut) []mesh.Mut {
	n := r.Count()
	switch {
	case n == 0:
		return nil
	case n > cap(out):
		out = make([]mesh.Mut, 0, min(n, 64))
	}
	for range n {
		m := mesh.Mut{Key: r.Text()}
		what := r.Byte()
		if m.Delete = what&hasValue == 0; !m.Delete {
			m.Value = r.Copy()
		}
		if m.Siblings = what&hasSiblings != 0; m.Siblings {
			m.Supersedes = r.Dots()
		}
		if what > hasValue|hasSiblings {
			r.Fail()
		}
		if r.Bad() {
			return nil
		}
		out = append(out, m)
	}
	return out
}
