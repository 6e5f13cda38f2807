package linear

import "github.com/freshet-cache/freshet/codec"

// Codec turns values into the bytes that the store keeps, and back. See codec.Codec.
type Codec[V any] = codec.Codec[V]

// Bytes stores byte slices as they are. Do not change a slice after Set has received it.
func Bytes() Codec[[]byte] { return codec.Bytes() }

// String stores strings as their bytes, without a copy. It costs the least memory, because a string
// has no capacity field.
func String() Codec[string] { return codec.String() }

// JSON stores values as encoding/json does. The memory of a value counts as the length of its text.
func JSON[V any]() Codec[V] { return codec.JSON[V]() }
