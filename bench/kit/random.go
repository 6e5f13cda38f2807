package kit

import (
	_ "embed" // the trace in this package
	"math/rand/v2"
)

// Mix is splitmix64. It returns the n-th number of the stream of a seed.
func Mix(seed, n uint64) uint64 {
	z := seed + (n+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Stream is a source of random numbers for one purpose, so that more draws for one purpose do not
// change those for another.
func Stream(seed, id uint64) *rand.Rand {
	return rand.New(rand.NewPCG(Mix(seed, 2*id), Mix(seed, 2*id+1)))
}

// Uniform draws n numbers below keys, all equally likely.
func Uniform(r *rand.Rand, n, keys int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(r.IntN(keys))
	}
	return out
}
