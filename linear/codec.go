package linear

import "github.com/freshet-cache/freshet/codec"

// Codec turns values into what the store keeps, and back. See codec.Codec.
type Codec[V any] = codec.Codec[V]

// Bytes stores byte slices as they are. The slice given to Put must not be
// changed afterwards.
func Bytes() Codec[[]byte] { return codec.Bytes() }

// String stores strings as their bytes, without a copy. It is what costs the
// least memory: an entry is smaller by what a slice's capacity takes.
func String() Codec[string] { return codec.String() }

// JSON stores values as encoding/json does. The memory of a value is taken to be
// that of its text.
func JSON[V any]() Codec[V] { return codec.JSON[V]() }
