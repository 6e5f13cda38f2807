package causal

import (
	"fmt"
	"testing"

	"github.com/freshet-cache/freshet/store/memory"
)

// BenchmarkWorkflow is three steps at three servers, each of which reads two keys and writes
// one, over links in this process.
func BenchmarkWorkflow(b *testing.B) {
	c := gather(b, 3, memory.Options{}, nil)
	ctx := b.Context()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		i := 0
		for pb.Next() {
			s := c.spaces[i%3].Begin()
			for step := range 3 {
				token, err := s.Token()
				if err != nil {
					b.Fatal(err)
				}
				if s, err = c.spaces[(i+step)%3].Resume(token); err != nil {
					b.Fatal(err)
				}
				for range 2 {
					if _, _, err := s.Get(ctx, fmt.Sprint("k", i*7%1000)); err != nil {
						b.Fatal(err)
					}
					i++
				}
				if err := s.Set(ctx, fmt.Sprint("k", i%1000), "12345678"); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
