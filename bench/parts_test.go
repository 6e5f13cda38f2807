package bench

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func wrongly(system string) func(context.Context, Options) (*Report, error) {
	return func(context.Context, Options) (*Report, error) {
		return &Report{Anomalies: map[string]int{system: 1}}, nil
	}
}

// A request is due when the schedule says, and its latency counts from then, even
// if it was sent late because the one before was slow.
func TestLatencyCountsFromTheSchedule(t *testing.T) {
	s := schedule{rate: 1000}
	for i, want := range []time.Duration{0, time.Millisecond, 2 * time.Millisecond} {
		if got := s.due(i); got != want {
			t.Errorf("request %d is due at %v, want %v", i, got, want)
		}
	}
	if got := (schedule{rate: 3}).due(3_000_000); got != 1_000_000*time.Second {
		t.Error("the schedule drifts:", got)
	}
	if got := s.late(10, 35*time.Millisecond); got != 25*time.Millisecond {
		t.Error("a stall of the sender is left out:", got)
	}
	if got := s.late(10, 9*time.Millisecond); got != 0 {
		t.Error(got)
	}
}

func TestLatencies(t *testing.T) {
	l := newLatencies()
	for i := range 1000 {
		l.add(time.Duration(i+1)*time.Microsecond, 2)
	}
	for percent, want := range map[float64]float64{50: 500, 90: 900, 99: 990, 100: 1000} {
		if got := l.micros(percent); math.Abs(got/want-1) > 0.002 {
			t.Errorf("P%g is %g µs, want %g", percent, got, want)
		}
	}
	l.add(time.Hour, 1)
	l.add(-1, 1)
	if l.h.TotalCount() != 2002 {
		t.Error("what is out of range is lost")
	}
}

func TestSpread(t *testing.T) {
	if got := spreadOf([]float64{5, 1, 3}); got != (spread{3, 1, 5}) {
		t.Error(got)
	}
	if got := spreadOf([]float64{4, 1, 3, 2}); got != (spread{2.5, 1, 4}) {
		t.Error(got)
	}
	if got := ratios([]float64{2, 9, 4}, []float64{1, 3, 0}); !slices.Equal(got, []float64{2, 3}) {
		t.Error(got)
	}
	if got := minus([]float64{10, 20}, []float64{1, 2}, []float64{3, 4}); !slices.Equal(got, []float64{6, 14}) {
		t.Error(got)
	}
	for v, want := range map[any]string{1234567.8: "1234568", 123.45: "123.5", 1.234: "1.23", 0.01234: "0.012", 0.0: "0.00", 7: "7", "x": "x"} {
		if got := text(v); got != want {
			t.Errorf("%v is shown as %s, want %s", v, got, want)
		}
	}
}

func TestStreamsAreReproducible(t *testing.T) {
	if a, b := mix(1, 0), mix(1, 1); a != 0x910a2dec89025cc1 || a == b {
		t.Errorf("%#x %#x", a, b) // the first is the generator's published test vector
	}
	a, b, other := uniform(stream(1, 2), 100, 1000), uniform(stream(1, 2), 100, 1000), uniform(stream(1, 3), 100, 1000)
	if !slices.Equal(a, b) || slices.Equal(a, other) {
		t.Error("a stream depends on something else than its seed and name")
	}
}

func TestUniform(t *testing.T) {
	const keys, draws = 100, 200_000
	count := make([]float64, keys)
	for _, k := range uniform(stream(1, 1), draws, keys) {
		count[k]++
	}
	chi := 0.0
	for _, n := range count {
		chi += (n - draws/keys) * (n - draws/keys) / (draws / keys)
	}
	if chi < 55 || chi > 160 { // 99 degrees of freedom: far beyond one in a thousand
		t.Errorf("chi square is %g", chi)
	}
}

func TestInject(t *testing.T) {
	keys := make([]uint32, 200_000)
	for _, share := range []float64{0, 0.002, 0.05, 0.5, 1} {
		writes, clients, changes := 0, map[int]int{}, 0
		all := inject(&recording{keys: keys}, share, 12, 1)
		for i, a := range all {
			if a.write {
				writes++
			}
			clients[a.client]++
			if i > 0 && a.client != all[i-1].client {
				changes++
				if i%burst != 0 {
					t.Fatalf("a burst ends at %d", i)
				}
			}
		}
		if got := float64(writes) / float64(len(keys)); math.Abs(got-share) > 0.005 {
			t.Errorf("a share of %g are writes, want %g", got, share)
		}
		if len(clients) != 12 || changes < len(keys)/burst*8/10 {
			t.Errorf("%d clients, %d bursts", len(clients), changes)
		}
		for c, n := range clients {
			if n < len(keys)/12*7/10 || n > len(keys)/12*13/10 {
				t.Errorf("client %d makes %d requests", c, n)
			}
		}
	}
}

func TestTheTraceThatComesAlong(t *testing.T) {
	all, err := readTrace("", 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	keys := all.keys
	count, kinds := map[uint32]int{}, map[uint32]bool{}
	for _, k := range keys {
		count[k]++
		kinds[k>>27] = true
		if s := size(k); s < 64 || s > 1024 || len(traceValue(k, "original")) != s {
			t.Fatalf("a value of %x has %d bytes", k, s)
		}
	}
	if len(keys) != 200_000 || len(count) != 22_024 || len(kinds) != 29 || count[939616256] != 2696 {
		t.Error(len(keys), len(count), len(kinds))
	}
	if name := traceKey(29<<27 | 77<<10 | 3); name != "d:29:77:3" {
		t.Error(name)
	}
	if few, err := readTrace("", 10); err != nil || !slices.Equal(few.keys, keys[:10]) {
		t.Error(few, err)
	}
}

func TestOtherTraces(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	if keys, err := readTrace(write("plain", []byte{0, 0, 1, 2, 0, 0, 0, 7}), 9); err != nil || !slices.Equal(keys.keys, []uint32{258, 7}) {
		t.Error(keys, err)
	}
	for _, name := range []string{filepath.Join(dir, "none"), write("short", []byte{1, 2}), write("empty", nil), write("no.gz", []byte("text"))} {
		if _, err := readTrace(name, 9); err == nil || !strings.Contains(err.Error(), "--trace") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCounters(t *testing.T) {
	c := counters{}
	c.add([]byte("# HELP x text\nplain 3\nhits{node=\"n1\"} 4\nhits{node=\"n 2\"} 5\ncalls{node=\"n1\",request=\"load\"} 1e3\nbroken{ 1\nnone\n"))
	for name, want := range map[string]float64{"plain": 3, "hits": 9, "calls/load": 1000} {
		if c[name] != want {
			t.Errorf("%s is %g, want %g", name, c[name], want)
		}
	}
	if got := c.since(counters{"hits": 2}, "hits"); got != 7 || len(c) != 3 {
		t.Error(got, c)
	}
}

func TestSkim(t *testing.T) {
	for in, want := range map[string]struct {
		kind byte
		body string
		size int
	}{
		"+OK\r\n":           {'+', "OK", 5},
		"-ERR no\r\n+OK":    {'-', "ERR no", 9},
		"$3\r\nabc\r\n+OK":  {'$', "abc", 9},
		"$0\r\n\r\n":        {'$', "", 6},
		"$3\r\nabc\r":       {},
		"$3\r\n":            {},
		"$3":                {},
		"":                  {},
		"$-1\r\n":           {0, "", 5},
		"$x\r\n":            {0, "", 4},
		"$4\r\na\r\nb\r\n+": {'$', "a\r\nb", 10},
	} {
		kind, body, size := skim([]byte(in))
		if kind != want.kind || string(body) != want.body || size != want.size {
			t.Errorf("%q: %c %q %d", in, kind, body, size)
		}
	}
	if got := string(remoteKey(nil, 90210)); got != "key:000000090210" || len(got) != keyBytes {
		t.Error(got)
	}
}

// A server that answers every GET with the value of one key is found out.
func TestWrongValuesAreCounted(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	get := len(appendGet(nil, 0))
	value := appendSet(nil, 1)
	answer := append([]byte("$100\r\n"), value[len(value)-valueBytes-2:]...)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		for in := make([]byte, get); ; {
			if _, err := io.ReadFull(c, in); err != nil {
				return
			}
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	}()
	load, err := newLoad(t.Context(), l.Addr().String(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer load.close()
	if err := load.run(t.Context(), false, 3, time.Minute, counting(9)); err != nil {
		t.Fatal(err)
	}
	if load.ops != 9 || load.wrong != 8 { // key 1 alone is right
		t.Errorf("%d operations, %d wrong", load.ops, load.wrong)
	}
}

// behind is a target that answers with an older version than it has acknowledged.
type behind struct{ written uint64 }

func (*behind) read(_ context.Context, _ *ask, versions []uint64) (bool, error) {
	versions[0] = 1
	return true, nil
}

func (b *behind) write(context.Context, *ask, string) (uint64, error) {
	b.written++
	return 1 + b.written, nil
}

func (*behind) close() error { return nil }

// A system that serves what was overwritten is found out, and its hits are counted.
func TestTheDriverJudges(t *testing.T) {
	b := build("test", 0)
	row := b.row("k", 10)
	b.read(row)
	b.write(row, 10)
	b.read(row)
	d := newDriver(b.w, &opened{instances: []target{&behind{}}, queries: func() int64 { return 0 }, first: 1})
	for at := range b.w.asks {
		p, err := d.run(t.Context(), at, at+1, 0)
		if err != nil {
			t.Fatal(err)
		}
		if p.hits != p.read || p.reads.h.TotalCount()+p.writes.h.TotalCount() != 1 {
			t.Errorf("request %d: %+v", at, p)
		}
	}
	if reads, stale := d.judge.Counts(); reads != 2 || stale != 1 {
		t.Errorf("%d reads, %d stale", reads, stale)
	}
	d.filling = true
	if p, err := d.run(t.Context(), 0, 3, 1000); err != nil || p.read != 2 || p.writes.h.TotalCount() != 0 {
		t.Error("a write is sent while caches are filled:", p, err)
	}
}

// What failed is counted, and too much of it is an error.
type failing struct{ behind }

func (*failing) read(context.Context, *ask, []uint64) (bool, error) {
	return false, io.ErrUnexpectedEOF
}

func TestFailuresAreCounted(t *testing.T) {
	b := build("test", 0)
	b.read(b.row("k", 10))
	d := newDriver(b.w, &opened{instances: []target{&failing{}}, queries: func() int64 { return 0 }})
	if _, err := d.run(t.Context(), 0, 20, 0); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}
