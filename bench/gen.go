package bench

import (
	"bytes"
	"compress/gzip"
	_ "embed" // the trace that comes with this package
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
)

// mix is splitmix64: the n-th number of the stream of a seed.
func mix(seed, n uint64) uint64 {
	z := seed + (n+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// stream is a source of chance of its own for each purpose, so that more use in
// one place changes nothing in another.
func stream(seed, id uint64) *rand.Rand {
	return rand.New(rand.NewPCG(mix(seed, 2*id), mix(seed, 2*id+1)))
}

// uniform draws n of the numbers below keys, each as likely.
func uniform(r *rand.Rand, n, keys int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(r.IntN(keys))
	}
	return out
}

// access is one request of a trace.
type access struct {
	key    uint32
	write  bool
	client int
}

// burst is how many accesses in a row one client makes.
const burst = 50

// inject makes requests of the accesses of a trace: each is a write with the
// probability writes, as its position says, unless the trace knows which are, and
// clients make bursts of them.
func inject(r *recording, writes float64, clients int, seed uint64) []access {
	out := make([]access, len(r.keys))
	for i, k := range r.keys {
		out[i] = access{
			key:    k,
			write:  float64(mix(seed, uint64(i))>>11)/(1<<53) < writes,
			client: int(mix(^seed, uint64(i/burst)) % uint64(clients)),
		}
		if r.writes != nil {
			out[i].write = r.writes[i]
		}
	}
	return out
}

// size is how long the value of a key is: a row of its type of object.
func size(key uint32) int { return 64 * (1 + int(key>>27)%16) }

//go:embed testdata/orm-busy-200k.be32.gz
var ormBusy []byte

// ormBusySource is owed to those who recorded it.
const ormBusySource = "Trace: the first 200,000 of 5,000,000 accesses to database objects of an e-commerce application, orm-busy of cache2k, (c) headissue GmbH, Jens Wilke, CC BY 4.0, cut and re-encoded; see bench/testdata."

// maxTrace bounds the accesses that are read of a trace.
const maxTrace = 20_000_000

// readTrace reads at most limit accesses from a file, or, if it has no name, from
// the trace that comes with this package.
func readTrace(name string, limit int) (*recording, error) {
	var in io.Reader = bytes.NewReader(ormBusy)
	if name != "" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("--trace: %w", err)
		}
		defer f.Close()
		in = f
	}
	if name == "" || strings.HasSuffix(name, ".gz") {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("--trace %s: %w", name, err)
		}
		in = z
	}
	r, err := parseTrace(name, in, min(limit, maxTrace))
	if err != nil {
		return nil, fmt.Errorf("--trace %s: %w", name, err)
	}
	return r, nil
}
