package causal

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/internal/testkit"
)

// large is a set of about 19 kB.
func large() []byte {
	var all []string
	for i := range 1000 {
		all = append(all, fmt.Sprintf("element %06d of", i))
	}
	b, _ := json.Marshal(all)
	return b
}

// adders is how many add at once.
const adders = 60

// add has adders add n words to the sets of keys, each at its own server, and returns how long that took.
func add(t testing.TB, at []*Space[[]byte], n int, key func(adder int) string) time.Duration {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	began := time.Now()
	for i := range adders {
		wg.Go(func() {
			s := at[i%len(at)].Begin()
			for k := range n {
				if err := s.Set(ctx, key(i), fmt.Appendf(nil, `["adder %d word %d"]`, i, k)); err != nil {
					t.Errorf("adder %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// BenchmarkContention compares adding to one large set with adding to sets of one's own, in one run.
func BenchmarkContention(b *testing.B) {
	_, at := sets(b, 3)
	for i := range adders {
		if err := at[0].Begin().Set(b.Context(), fmt.Sprint("own", i), large()); err != nil {
			b.Fatal(err)
		}
	}
	if err := at[0].Begin().Set(b.Context(), "shared", large()); err != nil {
		b.Fatal(err)
	}
	var shared, own time.Duration
	for b.Loop() {
		own += add(b, at, 3, func(i int) string { return fmt.Sprint("own", i) })
		shared += add(b, at, 3, func(int) string { return "shared" })
	}
	b.ReportMetric(float64(3*adders*b.N)/own.Seconds(), "own/s")
	b.ReportMetric(float64(3*adders*b.N)/shared.Seconds(), "shared/s")
	b.ReportMetric(own.Seconds()/shared.Seconds(), "shared/own")
}

// Many who add to one set at once are served, see what each has added, and leave few versions of it: in memory, and in the
// store.
func TestContention(t *testing.T) {
	c, at := sets(t, 3)
	ctx := t.Context()
	if err := at[0].Begin().Set(ctx, "shared", large()); err != nil {
		t.Fatal(err)
	}
	add(t, at, 3, func(int) string { return "shared" })
	versions := func() int {
		rows, err := c.store.Load(ctx, "shared")
		if err != nil {
			t.Fatal(err)
		}
		return len(rows[0].Siblings)
	}
	testkit.Eventually(t, func() bool {
		for _, sp := range at {
			b, _, err := sp.Begin().Get(ctx, "shared")
			if err != nil {
				t.Fatal(err)
			}
			if len(wordsOf(t, b)) != 1000+3*adders {
				return false
			}
		}
		return versions() < compactAt
	})
}
