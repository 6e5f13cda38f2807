package linear

import (
	"encoding/binary"

	"github.com/freshet-cache/freshet/internal/packed"
	"github.com/freshet-cache/freshet/linear/replica"
	"github.com/freshet-cache/freshet/shard/lease"
)

// The kinds of messages between caches that keep copies of the same key. Each message begins with
// its kind and the generation.
const (
	sayCacheable  byte = 'c'
	sayInvalidate byte = 'i' // then the write's number
	sayFinish     byte = 'f' // then the write's number, and the row if the message carries one
	sayReport     byte = 'r' // then the last number obeyed, whether entries are kept, and the sender's name
)

// mostAlong bounds the value that Finish carries. A replica reads a larger value from the store
// when a caller asks for it.
const mostAlong = 64 << 10

func appendMessage(b []byte, m replica.Message) []byte {
	num := func(kind byte, gen lease.Gen) { b = binary.AppendUvarint(append(b, kind), uint64(gen)) }
	switch m := m.(type) {
	case replica.Cacheable:
		num(sayCacheable, m.Gen)
	case replica.Invalidate:
		num(sayInvalidate, m.Gen)
		b = binary.AppendUvarint(b, m.N)
	case replica.Finish:
		num(sayFinish, m.Gen)
		b = binary.AppendUvarint(b, m.N)
		if m.Row != nil && len(m.Row.Value) <= mostAlong {
			b = append(binary.AppendUvarint(append(b, flags(m.Row.Exists, false)), m.Row.Version), m.Row.Value...)
		}
	case replica.Report:
		num(sayReport, m.Gen)
		b = append(binary.AppendUvarint(b, m.N), flags(m.Open, false))
		b = packed.AppendString(b, m.From)
	}
	return b
}

func decodeMessage(b []byte) (m replica.Message, ok bool) {
	f := read(b)
	kind, gen := f.Byte(), lease.Gen(f.Uint())
	switch kind {
	case sayCacheable:
		m = replica.Cacheable{Gen: gen}
	case sayInvalidate:
		m = replica.Invalidate{Gen: gen, N: f.Uint()}
	case sayFinish:
		in := replica.Finish{Gen: gen, N: f.Uint()}
		if !f.Done() {
			exists := f.Flag()
			in.Row = &replica.Row{Exists: exists, Version: f.Uint(), Value: append([]byte(nil), f.Rest()...)}
		}
		m = in
	case sayReport:
		m = replica.Report{Gen: gen, N: f.Uint(), Open: f.Flag(), From: f.Text()}
	default:
		return nil, false
	}
	return m, f.Done()
}

// flags returns a byte with a and b as its first two bits.
func flags(a, b bool) (out byte) {
	if a {
		out |= 1
	}
	if b {
		out |= 2
	}
	return out
}
