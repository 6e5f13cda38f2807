package linear

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"

	"github.com/freshet-cache/freshet/bench/kit"
)

// workload has rows and requests, the same for every system.
type workload struct {
	name   string
	source string // its source, and where it differs from what its name says
	rows   []tableRow
	asks   []ask
	rate   float64 // requests a second
	// composed means that a value consists of several rows and that a View can keep it.
	composed bool
}

type tableRow struct {
	key  string
	size int
}

// ask is one request.
type ask struct {
	reads []int32 // rows, in their order within a value
	write int32   // the row that the request writes; -1 for a read
	size  int32   // of the written value
}

// builder makes a workload. It numbers the rows that are used.
type builder struct {
	w    *workload
	seen map[string]int32
}

func build(name string, rate float64) *builder {
	return &builder{&workload{name: name, rate: rate}, map[string]int32{}}
}

// row is the number of a key's row, whose size matters if it is not there yet.
func (b *builder) row(key string, size int) int32 {
	i, ok := b.seen[key]
	if !ok {
		i = int32(len(b.w.rows))
		b.seen[key] = i
		b.w.rows = append(b.w.rows, tableRow{key, size})
	}
	return i
}

func (b *builder) read(rows ...int32) { b.w.asks = append(b.w.asks, ask{reads: rows, write: -1}) }
func (b *builder) write(row int32, size int) {
	b.w.asks = append(b.w.asks, ask{write: row, size: int32(size)})
}

// cluster is a row of the table of caches that Twitter published in March 2020.
type cluster struct {
	name             string
	reads, writes    float64
	key, value       int // bytes, mean
	alpha, frequency float64
}

// clusters are those that match the description of the input in WriteGuards. Additions (add) fill a
// cache after a miss and are no writes of the database.
var clusters = []cluster{
	{"tw52", 0.93, 0.02, 20, 273, 1.2117, 32.6},
	{"tw7", 0.82, 0.18, 17, 1936, 1.0666, 72.9},
	{"tw40", 0.50, 0.50, 44, 155, 0.8551, 11.8},
	{"tw48", 0.65, 0.35, 44, 70, 0.8191, 3.5},
}

const twitterSource = "generated from the parameters of Twitter's cluster %s (cache-trace, CC BY 4.0): popularity, mix, mean sizes and mean frequency of keys; the traces themselves are too large to come along"

// twitter makes n requests like those of a cluster.
func twitter(c cluster, n int, rate float64, seed uint64) *workload {
	b, r := build(c.name, rate), kit.Stream(seed, 20)
	b.w.source = fmt.Sprintf(twitterSource, strings.TrimPrefix(c.name, "tw"))
	z := kit.NewZipf(kit.Ranks(c.alpha, n, float64(n)/c.frequency), c.alpha)
	for range n {
		// Keys of similar popularity are not neighbours.
		key := fmt.Sprintf("%0*x", c.key, kit.Mix(seed, uint64(z.Draw(r))))
		row := b.row(key, lognormal(r, float64(c.value)))
		if r.Float64() < c.writes/(c.reads+c.writes) {
			b.write(row, lognormal(r, float64(c.value)))
		} else {
			b.read(row)
		}
	}
	return b.w
}

// meta makes n requests that model the input from Meta in WriteGuards.
func meta(dir string, n int, rate float64, seed uint64) (*workload, error) {
	b, r := build("meta-wg", rate), kit.Stream(seed, 21)
	b.w.source = "generated: 70 % reads, 28 % writes, 2 % deletes, which are made writes of one byte; values as RocksDB's model of Meta's ZippyDB has them; popularity of Meta's cluster kvcache_reg (CacheLib, Apache-2.0)"
	z := kit.NewZipf(10_483_642, 0.978)
	draw := z.Draw
	if dir != "" {
		h, err := readHistogram(filepath.Join(dir, "meta", "kvcache_reg", "pop.json"))
		if err != nil {
			return nil, err
		}
		draw = h.draw
	} else {
		b.w.source += ". STAND-IN: its histogram is not here, so a zipf distribution of the same exponent is drawn from"
	}
	for range n {
		row := b.row(fmt.Sprintf("%048x", kit.Mix(seed, uint64(draw(r)))), pareto(r))
		switch u := r.Float64(); {
		case u < 0.70:
			b.read(row)
		case u < 0.98:
			b.write(row, pareto(r))
		default:
			b.write(row, 1)
		}
	}
	return b.w, nil
}

// recorded makes requests from the first n accesses of the trace orm-busy.
func recorded(dir string, n int, rate, writes float64, seed uint64) (*workload, error) {
	b := build("orm-busy", rate)
	b.w.source = ormBusySource
	name := ""
	if dir != "" {
		name = filepath.Join(dir, "traces", "orm-busy.be32.gz")
		b.w.source = strings.ReplaceAll(ormBusySource, "the first 200,000 of 5,000,000", fmt.Sprintf("the first %d of 5,000,000", n))
	}
	keys, err := readTrace(name, n)
	if err != nil {
		return nil, err
	}
	for _, a := range inject(keys, writes, 1, seed) {
		row := b.row(traceKey(a.key), size(a.key))
		if a.write {
			b.write(row, size(a.key))
		} else {
			b.read(row)
		}
	}
	return b.w, nil
}

// value returns a value of the given length that compresses badly.
func value(size int, r *rand.Rand) string {
	at := r.IntN(len(noise) - 1)
	var b strings.Builder
	for b.Len() < size {
		b.WriteString(noise[at:min(len(noise), at+size-b.Len())])
		at = 0
	}
	return b.String()
}

// noise has the bytes of which values are parts.
var noise = func() string {
	b := make([]byte, 64<<10)
	r := kit.Stream(3, 3)
	for i := range b {
		b[i] = byte('!' + r.IntN('~'-'!'))
	}
	return string(b)
}()
