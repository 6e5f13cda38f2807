package wire

import (
	"encoding/binary"
	"slices"

	"github.com/freshet-cache/freshet/causal/dot"
	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/internal/packed"
)

// Token returns a session as bytes for the next step of its workflow. Up to limit bytes it carries
// writes with their values, beyond that only their dots, and the journal has the rest. The number
// of servers and of writes that are not visible then bounds its length.
func Token(s *mesh.Session, limit int) []byte {
	head := binary.AppendUvarint(append(make([]byte, 0, usual), wireVersion), s.Time)
	head = dot.AppendFrontier(head, s.Deps)
	b := binary.AppendUvarint(head, uint64(len(s.Carried)))
	for _, w := range s.Carried {
		b = appendBody(dot.AppendFrontier(b, w.Deps), w)
	}
	bare := s.Bare
	if len(b) > limit && len(s.Carried) > 0 {
		b, bare = binary.AppendUvarint(slices.Clip(head), 0), slices.Clone(bare)
		for _, w := range s.Carried {
			bare = append(bare, w.Dot)
		}
	}
	return dot.AppendDots(b, bare)
}

// MaxToken is the length in bytes of the longest token that Resume accepts.
const MaxToken = 1 << 20

// mostTime exceeds every time that a session may have seen. Stores accept no larger time.
const mostTime = 1 << 62

// Resume returns the session that a token encodes. A caller that gives tokens to clients must
// authenticate them: Resume does not notice a changed token.
func Resume(token []byte) (*mesh.Session, error) {
	r := dot.NewReader(token)
	if len(token) > MaxToken || r.Byte() != wireVersion {
		return nil, ErrFormat
	}
	s := &mesh.Session{Time: r.Uint(), Deps: r.Frontier()}
	for range r.Count() {
		w := body(r, r.Frontier())
		if r.Bad() || w.Stamp.Time >= mostTime || len(s.Carried) > 0 && !s.Carried[len(s.Carried)-1].Stamp.Less(w.Stamp) {
			return nil, ErrFormat
		}
		s.Carried = append(s.Carried, w)
	}
	s.Bare = r.Dots()
	if !r.Done() || s.Time >= mostTime {
		return nil, ErrFormat
	}
	return s, nil
}

// TxToken returns a transaction, or a branch of one, as bytes for the next step of its workflow. It
// carries all values.
func TxToken(t *mesh.Tx) []byte {
	b := packed.AppendBytes(append(make([]byte, 0, 2*usual), wireVersion), Token(&t.Session, MaxToken))
	b = appendView(dot.AppendFrontier(b, t.At.Set), t.At.View)
	b = binary.AppendUvarint(b, uint64(len(t.Seen)))
	for _, s := range t.Seen {
		b = packed.AppendString(b, s.Key)
		b = binary.AppendUvarint(binary.AppendUvarint(b, s.Stamp.Time), uint64(s.Stamp.Incarnation))
		b = binary.AppendUvarint(b, uint64(s.Siblings))
	}
	b = binary.AppendUvarint(appendMuts(b, t.Buffer), uint64(t.Open))
	if t.Branch {
		return append(b, 1)
	}
	return append(b, 0)
}

// ResumeTx returns the transaction that a token encodes. See Resume.
func ResumeTx(token []byte) (*mesh.Tx, error) {
	r := dot.NewReader(token)
	if len(token) > 2*MaxToken || r.Byte() != wireVersion {
		return nil, ErrFormat
	}
	s, err := Resume(r.Copy())
	if err != nil {
		return nil, ErrFormat
	}
	t := &mesh.Tx{Session: *s, At: mesh.Snap{Set: r.Frontier(), View: view(r)}}
	for range r.Count() {
		seen := mesh.Seen{Key: r.Text(), Stamp: dot.Stamp{Time: r.Uint(), Incarnation: r.Incarnation()}, Siblings: int(r.Incarnation())}
		if n := len(t.Seen); r.Bad() || n > 0 && t.Seen[n-1].Key >= seen.Key {
			return nil, ErrFormat
		}
		t.Seen = append(t.Seen, seen)
	}
	t.Buffer, t.Open = muts(r, nil), int(r.Incarnation())
	switch branch := r.Byte(); {
	case branch > 1 || !r.Done():
		return nil, ErrFormat
	default:
		t.Branch = branch == 1
	}
	return t, nil
}

// appendView appends a view, or nil before the snapshot is fixed.
func appendView(b []byte, v *mesh.View) []byte {
	if v == nil {
		return append(b, 0)
	}
	b = binary.AppendUvarint(append(b, 1), v.Number)
	for _, incarnations := range [][]mesh.Incarnation{v.Ring, v.Departed, {v.Newest}} {
		b = binary.AppendUvarint(b, uint64(len(incarnations)))
		for _, o := range incarnations {
			b = binary.AppendUvarint(b, uint64(o))
		}
	}
	return b
}

func view(r *dot.Reader) *mesh.View {
	switch r.Byte() {
	case 0:
		return nil
	case 1:
	default:
		r.Fail()
	}
	v := &mesh.View{Number: r.Uint()}
	newest := []mesh.Incarnation{}
	for _, incarnations := range []*[]mesh.Incarnation{&v.Ring, &v.Departed, &newest} {
		for range r.Count() {
			*incarnations = append(*incarnations, r.Incarnation())
		}
	}
	if len(newest) != 1 {
		r.Fail()
		return nil
	}
	v.Newest = newest[0]
	return v
}
