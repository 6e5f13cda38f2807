package view

import (
	"encoding/binary"
	"errors"

	"github.com/freshet-cache/freshet/ticks"
)

// ErrFormat is what decoders return for bytes that no encoder of this version has made.
var ErrFormat = errors.New("causal: a message about the ring is damaged or of another version; run one version of freshet on all nodes")

const (
	encoding      = 1 // of a Grant, and of a View without a key, which a coordinator may still have
	viewEncoding  = 2
	renewEncoding = 2
)

// AppendRenew appends the encoding of a Renew.
func AppendRenew(b []byte, r Renew) []byte {
	b = appendText(appendText(appendText(append(b, renewEncoding), r.Name), r.Addr), r.Host)
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(r.Incarnation)), r.Seq)
	flags := byte(0)
	if r.Knows {
		flags |= 1
	}
	if r.Leaving {
		flags |= 2
	}
	b = appendIncarnations(append(b, flags), r.Retired)
	b = binary.AppendUvarint(binary.AppendUvarint(b, r.View), r.Sum)
	return appendIncarnations(binary.AppendUvarint(binary.AppendUvarint(b, uint64(r.Store.Newest)), r.Store.Number), r.Store.Open)
}

// DecodeRenew decodes a Renew, which must be all of b.
func DecodeRenew(b []byte) (r Renew, err error) {
	d := decoder{b: b}
	d.version(renewEncoding)
	r = Renew{Name: d.text(), Addr: d.text(), Host: d.text(), Incarnation: d.incarnation(), Seq: d.num()}
	flags := d.byte()
	r.Knows, r.Leaving, r.Retired = flags&1 != 0, flags&2 != 0, d.incarnations()
	d.bad = d.bad || flags > 3
	r.View, r.Sum = d.num(), d.num()
	r.Store = Known{Newest: d.incarnation(), Number: d.num(), Open: d.incarnations()}
	return r, d.err()
}

// AppendGrant appends the encoding of a Grant.
func AppendGrant(b []byte, g Grant) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(append(b, encoding), g.Seq), uint64(g.Incarnation))
	return AppendView(binary.AppendUvarint(b, uint64(g.Length)), g.View)
}

// DecodeGrant decodes a Grant, which must be all of b.
func DecodeGrant(b []byte) (g Grant, err error) {
	d := decoder{b: b}
	d.version(encoding)
	g = Grant{Seq: d.num(), Incarnation: d.incarnation(), Length: ticks.Tick(d.num())}
	if d.bad || g.Length < 0 {
		return Grant{}, ErrFormat
	}
	g.View, err = DecodeView(d.b)
	return g, err
}

// AppendView appends the encoding of a View, for the coordinator and in a Grant.
func AppendView(b []byte, v View) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(append(b, viewEncoding), v.Number), uint64(v.Newest))
	b = binary.AppendUvarint(b, uint64(len(v.Ring)))
	for _, m := range v.Ring {
		b = appendText(appendText(appendText(binary.AppendUvarint(b, uint64(m.Incarnation)), m.Name), m.Addr), m.Host)
	}
	return appendText(appendIncarnations(b, v.Departed), string(v.Key))
}

// DecodeView decodes a View, which must be all of b.
func DecodeView(b []byte) (v View, err error) {
	d := decoder{b: b}
	keyless := len(b) > 0 && b[0] == encoding
	if !keyless {
		d.version(viewEncoding)
	} else {
		d.version(encoding)
	}
	v = View{Number: d.num(), Newest: d.incarnation()}
	for range d.count() {
		v.Ring = append(v.Ring, Place{d.incarnation(), d.text(), d.text(), d.text()})
	}
	v.Departed = d.incarnations()
	if !keyless {
		if key := d.text(); key != "" {
			v.Key = []byte(key)
		}
	}
	return v, d.err()
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendIncarnations(b []byte, incarnations []uint32) []byte {
	b = binary.AppendUvarint(b, uint64(len(incarnations)))
	for _, o := range incarnations {
		b = binary.AppendUvarint(b, uint64(o))
	}
	return b
}

// decoder reads an encoding. After the first mistake it is bad for good and returns zeros.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) err() error {
	if d.bad || len(d.b) > 0 {
		return ErrFormat
	}
	return nil
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.bad = true
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) version(of byte) { d.bad = d.byte() != of || d.bad }

func (d *decoder) num() uint64 {
	n, w := binary.Uvarint(d.b)
	if w <= 0 {
		d.b, d.bad = nil, true
		return 0
	}
	d.b = d.b[w:]
	return n
}

func (d *decoder) incarnation() uint32 {
	n := d.num()
	d.bad = d.bad || n != uint64(uint32(n))
	return uint32(n)
}

// count reads how many elements follow, each of which takes at least one byte.
func (d *decoder) count() int {
	n := d.num()
	if n > uint64(len(d.b)) {
		d.b, d.bad = nil, true
		return 0
	}
	return int(n)
}

func (d *decoder) text() string {
	n := d.count()
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *decoder) incarnations() (out []uint32) {
	for range d.count() {
		out = append(out, d.incarnation())
	}
	return out
}
