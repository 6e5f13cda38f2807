package view

import (
	"encoding/binary"
	"errors"

	"github.com/freshet-cache/freshet/internal/packed"
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
	b = packed.AppendString(packed.AppendString(packed.AppendString(append(b, renewEncoding), r.Name), r.Addr), r.Host)
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
	d := decoder{packed.Read(b)}
	d.version(renewEncoding)
	r = Renew{Name: d.Text(), Addr: d.Text(), Host: d.Text(), Incarnation: d.Uint32(), Seq: d.Uint()}
	flags := d.Byte()
	r.Knows, r.Leaving, r.Retired = flags&1 != 0, flags&2 != 0, d.incarnations()
	if flags > 3 {
		d.Fail()
	}
	r.View, r.Sum = d.Uint(), d.Uint()
	r.Store = Known{Newest: d.Uint32(), Number: d.Uint(), Open: d.incarnations()}
	return r, d.err()
}

// AppendGrant appends the encoding of a Grant.
func AppendGrant(b []byte, g Grant) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(append(b, encoding), g.Seq), uint64(g.Incarnation))
	return AppendView(binary.AppendUvarint(b, uint64(g.Length)), g.View)
}

// DecodeGrant decodes a Grant, which must be all of b.
func DecodeGrant(b []byte) (g Grant, err error) {
	d := decoder{packed.Read(b)}
	d.version(encoding)
	g = Grant{Seq: d.Uint(), Incarnation: d.Uint32(), Length: ticks.Tick(d.Uint())}
	if d.Bad() || g.Length < 0 {
		return Grant{}, ErrFormat
	}
	g.View, err = DecodeView(d.Rest())
	return g, err
}

// AppendView appends the encoding of a View, for the coordinator and in a Grant.
func AppendView(b []byte, v View) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(append(b, viewEncoding), v.Number), uint64(v.Newest))
	b = binary.AppendUvarint(b, uint64(len(v.Ring)))
	for _, m := range v.Ring {
		b = packed.AppendString(packed.AppendString(packed.AppendString(binary.AppendUvarint(b, uint64(m.Incarnation)), m.Name), m.Addr), m.Host)
	}
	return packed.AppendString(appendIncarnations(b, v.Departed), string(v.Key))
}

// DecodeView decodes a View, which must be all of b.
func DecodeView(b []byte) (v View, err error) {
	d := decoder{packed.Read(b)}
	keyless := len(b) > 0 && b[0] == encoding
	if !keyless {
		d.version(viewEncoding)
	} else {
		d.version(encoding)
	}
	v = View{Number: d.Uint(), Newest: d.Uint32()}
	for range d.Count() {
		v.Ring = append(v.Ring, Place{d.Uint32(), d.Text(), d.Text(), d.Text()})
	}
	v.Departed = d.incarnations()
	if !keyless {
		if key := d.Text(); key != "" {
			v.Key = []byte(key)
		}
	}
	return v, d.err()
}

func appendIncarnations(b []byte, incarnations []uint32) []byte {
	b = binary.AppendUvarint(b, uint64(len(incarnations)))
	for _, o := range incarnations {
		b = binary.AppendUvarint(b, uint64(o))
	}
	return b
}

// decoder reads an encoding.
type decoder struct{ packed.Reader }

func (d *decoder) err() error {
	if !d.Done() {
		return ErrFormat
	}
	return nil
}

func (d *decoder) version(of byte) {
	if d.Byte() != of {
		d.Fail()
	}
}

func (d *decoder) incarnations() (out []uint32) {
	for range d.Count() {
		out = append(out, d.Uint32())
	}
	return out
}
