// Package codec turns values into bytes and back, for every promise that is typed.
package codec

import (
	"encoding/json"
	"unsafe"
)

// Codec turns values into what the store keeps, and back. It must be safe for
// concurrent use, and Decode must give an equal value for what Append made.
type Codec[V any] interface {
	// Append appends the encoding of v to buf.
	Append(buf []byte, v V) ([]byte, error)
	// Decode may keep b, which is not modified afterwards.
	Decode(b []byte) (V, error)
	// Size estimates the memory v takes, in bytes, for the bound on memory.
	Size(v V) int
}

// Bytes stores byte slices as they are. A slice that was written must not be
// changed afterwards.
func Bytes() Codec[[]byte] { return bytesCodec{} }

type bytesCodec struct{}

func (bytesCodec) Append(buf []byte, v []byte) ([]byte, error) {
	if buf == nil && v != nil {
		return v, nil
	}
	return append(buf, v...), nil
}
func (bytesCodec) Decode(b []byte) ([]byte, error) { return b, nil }
func (bytesCodec) Size(v []byte) int               { return len(v) }

// String stores strings as their bytes, without a copy. It is what costs the
// least memory: an entry is smaller by what a slice's capacity takes.
func String() Codec[string] { return stringCodec{} }

type stringCodec struct{}

// A string may share its bytes with a slice that nobody modifies, and neither
// stores nor this package modify values.
func (stringCodec) Append(buf []byte, v string) ([]byte, error) {
	if buf == nil {
		return unsafe.Slice(unsafe.StringData(v), len(v)), nil
	}
	return append(buf, v...), nil
}
func (stringCodec) Decode(b []byte) (string, error) {
	return unsafe.String(unsafe.SliceData(b), len(b)), nil
}
func (stringCodec) Size(v string) int { return len(v) }

// JSON stores values as encoding/json does. The memory of a value is taken to be
// that of its text.
func JSON[V any]() Codec[V] { return jsonCodec[V]{} }

type jsonCodec[V any] struct{}

func (jsonCodec[V]) Append(buf []byte, v V) ([]byte, error) {
	b, err := json.Marshal(v)
	return append(buf, b...), err
}

func (jsonCodec[V]) Decode(b []byte) (v V, err error) {
	err = json.Unmarshal(b, &v)
	return v, err
}

func (jsonCodec[V]) Size(v V) int {
	b, _ := json.Marshal(v)
	return len(b)
}
