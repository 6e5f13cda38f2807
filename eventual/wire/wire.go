// Package wire is the encoding of what nodes of eventual say to each other, and of the tokens of its
// sessions. Every decoder takes exactly what its encoder makes: each message has one encoding.
package wire

import (
	"encoding/binary"
	"errors"

	"github.com/freshet-cache/freshet/internal/packed"
)

// ErrFormat is what decoders return for bytes that no encoder of this version has made.
var ErrFormat = errors.New("eventual: a message or token is damaged or of another version; run one version of freshet on all nodes")

// The first byte of a message says what it is, and in which encoding.
const (
	heartbeatKind = 1 + iota
	noticeKind
	missingKind
	snapshotKind
	leaveKind
)

const mostNumber = 1 << 62 // of a notice, an incarnation or a heartbeat: sums of them do not overflow

// Append appends the encoding of a message of an incarnation. A heartbeat takes at most 40 bytes, and
// 16 for each Echo, as long as heartbeats are fewer than 2^42 and incarnations' numbers are below 2^63.
func Append(b []byte, from Incarnation, msg Message) []byte {
	switch msg := msg.(type) {
	case Heartbeat:
		b = binary.AppendUvarint(append(b, heartbeatKind), uint64(from))
		b = binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(b, msg.Beat), msg.Last), msg.Marks<<1|bit(msg.Hello))
		b = binary.AppendUvarint(binary.AppendUvarint(b, msg.Server), uint64(len(msg.Echoes)))
		for _, e := range msg.Echoes {
			b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(e.Of)), e.Beat)
		}
		return b
	case Notice:
		b = binary.AppendUvarint(append(b, noticeKind), uint64(from))
		b = binary.AppendUvarint(binary.AppendUvarint(b, msg.Number), msg.Closes)
		return appendNames(b, msg.Names)
	case Missing:
		b = binary.AppendUvarint(append(b, missingKind), uint64(from))
		return binary.AppendUvarint(binary.AppendUvarint(b, msg.From), msg.To)
	case Snapshot:
		b = binary.AppendUvarint(append(b, snapshotKind), uint64(from))
		b = binary.AppendUvarint(binary.AppendUvarint(b, msg.Last), uint64(len(msg.Marks)))
		for _, k := range msg.Marks {
			b = appendNames(binary.AppendUvarint(b, k.Number), k.Names)
		}
		return b
	case Leave:
		b = binary.AppendUvarint(append(b, leaveKind), uint64(from))
		return binary.AppendUvarint(b, msg.Last)
	}
	panic("wire: no such message")
}

func bit(set bool) uint64 {
	if set {
		return 1
	}
	return 0
}

func appendNames(b []byte, names []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(names)))
	for _, name := range names {
		b = packed.AppendString(b, name)
	}
	return b
}

// Decode decodes a message, which must be all of b.
func Decode(b []byte) (from Incarnation, msg Message, err error) {
	d := decoder{packed.Read(b)}
	kind := d.Byte()
	from = d.incarnation()
	switch kind {
	case heartbeatKind:
		msg = d.heartbeat()
	case noticeKind:
		msg = d.notice()
	case missingKind:
		n := Missing{From: d.number(), To: d.number()}
		if n.To < n.From || n.From == 0 && n.To > 0 {
			d.Fail()
		}
		msg = n
	case snapshotKind:
		msg = d.snapshot()
	case leaveKind:
		msg = Leave{Last: d.number()}
	default:
		d.Fail()
	}
	if !d.Done() {
		return 0, nil, ErrFormat
	}
	return from, msg, nil
}

// decoder reads an encoding.
type decoder struct{ packed.Reader }

func (d *decoder) number() uint64 {
	n := d.Uint()
	if n >= mostNumber {
		d.Fail()
		return 0
	}
	return n
}

func (d *decoder) incarnation() Incarnation {
	id := d.Uint()
	if id == 0 || id >= 1<<63 {
		d.Fail()
		return 0
	}
	return Incarnation(id)
}

func (d *decoder) names() (out []string) {
	for range d.Count() {
		out = append(out, d.Text())
	}
	return out
}

func (d *decoder) heartbeat() Message {
	h := Heartbeat{Beat: d.number(), Last: d.number()}
	marks := d.number()
	h.Marks, h.Hello = marks>>1, marks&1 == 1
	h.Server = d.Uint()
	for range d.Count() {
		e := Echo{Of: d.incarnation(), Beat: d.number()}
		if n := len(h.Echoes); d.Bad() || n > 0 && e.Of <= h.Echoes[n-1].Of {
			d.Fail()
			break
		}
		h.Echoes = append(h.Echoes, e)
	}
	if h.Beat == 0 || h.Marks > h.Last {
		d.Fail()
	}
	return h
}

func (d *decoder) notice() Message {
	n := Notice{Number: d.number(), Closes: d.number(), Names: d.names()}
	if n.Number == 0 || n.Closes >= n.Number {
		d.Fail()
	}
	return n
}

func (d *decoder) snapshot() Message {
	s := Snapshot{Last: d.number()}
	for range d.Count() {
		k := Mark{Number: d.number(), Names: d.names()}
		if n := len(s.Marks); d.Bad() || k.Number == 0 || k.Number > s.Last || n > 0 && k.Number <= s.Marks[n-1].Number {
			d.Fail()
			break
		}
		s.Marks = append(s.Marks, k)
	}
	return s
}

// AppendToken appends the encoding of a token: at most 33 bytes while numbers of incarnations and of
// heartbeats are below 2^35 and 2^34.
func AppendToken(b []byte, t Token) []byte {
	for _, o := range t {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(o.Of)), o.Beat<<1|bit(o.Elsewhere))
	}
	return b
}

// DecodeToken decodes a token, which must be all of b.
func DecodeToken(b []byte) (t Token, err error) {
	d := decoder{packed.Read(b)}
	for d.Left() > 0 {
		of, beat := d.incarnation(), d.number()
		for _, o := range t {
			if o.Of == of {
				d.Fail()
			}
		}
		t = append(t, Moment{Of: of, Beat: beat >> 1, Elsewhere: beat&1 == 1})
	}
	if !d.Done() || len(t) > Moments {
		return nil, ErrFormat
	}
	return t, nil
}
