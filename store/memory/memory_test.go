package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Store { return New(Options{}) })
}

// What was deleted or has expired long ago takes no memory, and its absence has a
// version that no write to its key ever had.
func TestTheDeadAreForgotten(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := New(Options{Clock: func() time.Time { return now }})
	put := func(m store.Mutation) store.Version {
		t.Helper()
		stamps, err := s.Commit(t.Context(), store.ID{1}, []store.Mutation{m})
		if err != nil {
			t.Fatal(err)
		}
		return stamps[0].Version
	}
	put(store.Mutation{Key: "lives", Value: []byte("v")})
	var last store.Version
	for round := range 20 {
		for i := range 1000 {
			put(store.Mutation{Key: fmt.Sprint("short:", round, i), Value: []byte("v"), TTL: time.Second})
			last = put(store.Mutation{Key: fmt.Sprint("gone:", round, i), Delete: true})
		}
		now = now.Add(2 * grace)
	}
	if n := len(s.rows); n > 5000 {
		t.Errorf("%d rows are kept of 40 000 that are dead", n)
	}
	for _, key := range []string{"short:00", "gone:00"} {
		r, err := s.Load(t.Context(), key)
		if err != nil || r.Exists || r.Version == 0 || r.Version >= last {
			t.Errorf("%s is %+v, %v", key, r, err)
		}
		if _, err := s.Commit(t.Context(), store.ID{2}, []store.Mutation{{Key: key, Value: []byte("v"), Check: true, Expect: r.Version}}); err != nil {
			t.Errorf("%s cannot be written on the version of its absence: %v", key, err)
		}
	}
	keys, _, done, err := s.Scan(t.Context(), "", 10)
	if want := "[gone:00 lives short:00]"; fmt.Sprint(keys) != want || !done || err != nil {
		t.Errorf("%v %v %v, want %s", keys, done, err, want)
	}
}
