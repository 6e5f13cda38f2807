package linear

import (
	"reflect"
	"testing"

	"github.com/freshet-cache/freshet/shard/lease"
)

// Entries that move with their slice arrive as they were offered, or not at all.
func TestOffersArriveWhole(t *testing.T) {
	batch := []moved{
		{Key: "k", Value: []byte("value"), Exists: true, Version: 300},
		{Key: "gone", Value: []byte{}, Version: 11},
		{Key: "bare", Value: []byte{}, Exists: true, Bare: true, Version: 1},
	}
	for n := range len(batch) + 1 {
		req := appendOffers(nil, 1<<33, batch[:n])
		read := func(b []byte) (lease.Gen, []moved, bool) {
			f := read(b)
			if f.Byte() != askOffer {
				return 0, nil, false
			}
			return f.offers()
		}
		after, got, ok := read(req)
		if !ok || after != 1<<33 || len(got) != n || n > 0 && !reflect.DeepEqual(got, batch[:n]) {
			t.Errorf("%+v are read as %+v after %d, %v", batch[:n], got, after, ok)
		}
		for i := range req {
			if _, _, ok := read(req[:i]); ok {
				t.Errorf("%d offers: the first %d bytes are taken", n, i)
			}
		}
		if _, _, ok := read(append(req, 0)); ok {
			t.Errorf("%d offers: a byte too many is taken", n)
		}
	}
}
