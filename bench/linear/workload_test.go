package linear

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func within(t *testing.T, what string, got, want, by float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > by {
		t.Errorf("%s is %g, want %g within %g", what, got, want, by)
	}
}

// exponent is that of a zipf distribution fitted to counts: a line through the
// logarithms, at ranks that grow by a tenth, as far as counts are at least 2.
func exponent(counts []int) float64 {
	slices.SortFunc(counts, func(a, b int) int { return b - a })
	var n, sx, sy, sxx, sxy float64
	for rank := 1.0; int(rank) <= len(counts) && counts[int(rank)-1] >= 2; rank = math.Max(rank*1.1, rank+1) {
		x, y := math.Log(math.Floor(rank)), math.Log(float64(counts[int(rank)-1]))
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	return -(n*sxy - sx*sy) / (n*sxx - sx*sx)
}

func counts(w *workload) (all []int, writes float64) {
	all = make([]int, len(w.rows))
	for _, a := range w.asks {
		if a.write >= 0 {
			all[a.write]++
			writes++
		}
		for _, i := range a.reads {
			all[i]++
		}
	}
	return all, writes / float64(len(w.asks))
}

// As many different keys come as in the cluster, whose share of first misses a short
// run so keeps.
func TestTwitterIsLikeItsClusters(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n = 200_000
	}
	for _, c := range clusters {
		w := twitter(c, n, 1, 1)
		all, writes := counts(w)
		if n == 1_000_000 {
			within(t, c.name+": exponent", exponent(all), c.alpha, 0.05)
		}
		within(t, c.name+": share of writes", writes, c.writes/(c.reads+c.writes), 0.005)
		within(t, c.name+": requests of a key, times the mean", float64(n)/float64(len(w.rows))/c.frequency, 1, 0.05)
		sum, k := 0.0, 0.0
		for _, a := range w.asks {
			if a.write >= 0 {
				sum, k = sum+float64(a.size), k+1
			}
		}
		within(t, c.name+": size of values, times the mean", sum/k/float64(c.value), 1, 0.05)
		for _, row := range w.rows[:10] {
			if len(row.key) != c.key {
				t.Errorf("%s: a key of %d bytes", c.name, len(row.key))
			}
		}
	}
}

func TestMeta(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "meta", "kvcache_reg", "pop.json")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(`{"oneHits": 0.1, "popularityBuckets": [1, 0, 9], "popularityWeights": [60, 0, 40]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	const n = 200_000
	w, err := meta(dir, n, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	all, writes := counts(w)
	slices.Sort(all)
	if len(all) != 10 || len(w.rows[0].key) != 48 {
		t.Errorf("%d keys, of %d bytes", len(all), len(w.rows[0].key))
	}
	within(t, "share of the first bin", float64(all[9])/n, 0.6, 0.005)
	within(t, "share of one of nine", float64(all[3])/n, 0.4/9, 0.003)
	within(t, "share of writes", writes, 0.30, 0.005)
	var sizes []int
	for _, a := range w.asks {
		if a.write >= 0 && a.size > 1 {
			sizes = append(sizes, int(a.size))
		}
	}
	slices.Sort(sizes)
	within(t, "median size", float64(sizes[len(sizes)/2]), 19.5, 1.5)
	if top := sizes[len(sizes)-1]; top > 1024 {
		t.Error("a value of", top)
	}
	if w, err = meta("", 1000, 1, 1); err != nil || !strings.Contains(w.source, "STAND-IN") {
		t.Error("a stand-in is not said to be one:", err)
	}
	if _, err = meta(t.TempDir(), 10, 1, 1); err == nil {
		t.Error("a directory without the histogram is taken")
	}
}

func TestUC(t *testing.T) {
	const n = 200_000
	shape := catalogue{2, 5, 20, 50, 1000}
	w := uc(shape, n, 1, 0.1, 1)
	_, writes := counts(w)
	within(t, "share of writes", writes, 0.1, 0.004)
	var fetches, bytes, reads float64
	kinds := map[string]float64{}
	for _, a := range w.asks {
		if a.write >= 0 {
			name := w.rows[a.write].key
			kinds[name[:strings.IndexByte(name, ':')]+strings.Repeat("/", strings.Count(name, "/"))]++
			continue
		}
		reads++
		fetches += float64(len(a.reads))
		_, leaf, _ := strings.Cut(w.rows[a.reads[3]].key, ":")
		for at, key := range parts("table:" + leaf)[:6] {
			if w.rows[a.reads[at]].key != key {
				t.Fatalf("row %d of %s is %s, want %s", at, leaf, w.rows[a.reads[at]].key, key)
			}
		}
		for _, i := range a.reads {
			bytes += float64(w.rows[i].size)
		}
	}
	within(t, "fetches", fetches/reads, 7, 0.02)
	within(t, "bytes of a value", bytes/reads/23_000, 1, 0.05)
	for kind, share := range map[string]float64{"grants///": 0.60, "info///": 0.25, "grants//": 0.10, "groups/": 0.05} {
		within(t, "writes of "+kind, kinds[kind]/n/0.1, share, 0.02)
	}
	for key, want := range map[string]int{"grants:t00/c1/s02/t03": 1, "info:t00/c1/s02/t03": 1, "grants:t00/c1/s02": 50, "groups:t00/p004": 1} {
		if got := shape.shown(key); len(got) != want {
			t.Errorf("%s is shown by %d values", key, len(got))
		}
	}
	if values := shape.shown("grants:t00/c1/s02"); !slices.Contains(values, "table:t00/c1/s02/t49") || !slices.Contains(parts(values[0]), "grants:t00/c1/s02") {
		t.Error(values)
	}
}

func TestLobsters(t *testing.T) {
	const n = 200_000
	w, err := lobsters(n, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	_, writes := counts(w)
	within(t, "share of writes", writes, 0.0171, 0.002)
	kinds, front := map[string]float64{}, 0.0
	for _, a := range w.asks {
		switch {
		case a.write >= 0:
		case len(a.reads) == page && strings.HasPrefix(w.rows[a.reads[0]].key, "story"):
			front++
		case len(a.reads) == 1:
			kinds[w.rows[a.reads[0]].key[:4]]++
		}
	}
	within(t, "front page", front/n, 0.30105, 0.004)
	within(t, "stories", kinds["stor"]/n, 0.55842, 0.004)
	within(t, "users", kinds["user"]/n, 0.06702, 0.002)
}

func TestRecordedBecomesWrites(t *testing.T) {
	w, err := recorded("", 10_000, 1, 0.2, 1)
	if err != nil {
		t.Fatal(err)
	}
	_, writes := counts(w)
	within(t, "share of writes", writes, 0.2, 0.015)
	if len(w.asks) != 10_000 || !strings.Contains(w.source, "CC BY 4.0") {
		t.Error(len(w.asks), w.source)
	}
}

func TestWorkloadsAreReproducible(t *testing.T) {
	a, b, other := twitter(clusters[0], 1000, 1, 1), twitter(clusters[0], 1000, 1, 1), twitter(clusters[0], 1000, 1, 2)
	same := func(x, y *workload) bool {
		return slices.EqualFunc(x.asks, y.asks, func(p, q ask) bool {
			return p.write == q.write && p.size == q.size && slices.Equal(p.reads, q.reads)
		}) && slices.Equal(x.rows, y.rows)
	}
	if !same(a, b) || same(a, other) {
		t.Error("requests depend on something else than the seed")
	}
}
