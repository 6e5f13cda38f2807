package mesh

import (
	"fmt"
	"testing"
)

// BenchmarkRead is a hit by a session that knows all that is visible.
func BenchmarkRead(b *testing.B) {
	s, c, keys := full(b, 1)
	out := make([]Output, 0, 8)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		out = s.Step(0, c.Read(Op(i), keys[i%len(keys)]), out[:0])
		c.Took(out[len(out)-1].(Reply), keys[i%len(keys)])
	}
}

// BenchmarkReadMany is a hit on three keys.
func BenchmarkReadMany(b *testing.B) {
	s, c, keys := full(b, 1)
	out := make([]Output, 0, 8)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		three := keys[i%(len(keys)-3):][:3]
		out = s.Step(0, c.ReadMany(Op(i), three...), out[:0])
		c.Took(out[len(out)-1].(Reply), three...)
	}
}

// BenchmarkPut is a write in a ring of three: taken, confirmed by the store, passed on, and
// stable after a stability round that every hundredth of them starts.
func BenchmarkPut(b *testing.B) {
	s, c, keys := full(b, 3)
	out := make([]Output, 0, 8)
	value := []byte("12345678")
	round := func() {
		out = s.Step(0, Beat{}, out[:0])
		s.Step(0, Received{out[len(out)-1].(Send).Message}, nil) // it may have asked external writes first
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		out = s.Step(0, c.Put(Op(i), Mut{Key: keys[i%len(keys)], Value: value}), out[:0])
		out = s.Step(0, Persisted{Call: out[len(out)-1].(Persist).Call}, out[:0])
		c.Took(out[len(out)-1].(Reply))
		if i%100 == 99 {
			round()
			c = &Session{Deps: s.Visible()}
		} else {
			c.Carried = nil // the next is another session's
		}
	}
}

// BenchmarkReceive is a write of another server's that passes through.
func BenchmarkReceive(b *testing.B) {
	s, _, keys := full(b, 3)
	out := make([]Output, 0, 8)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		n := uint64(i + 1)
		w := &Write{Dot: Dot{Incarnation: 2, N: n}, Stamp: Stamp{Time: n + 1000, Incarnation: 2}, Deps: s.Visible(), Muts: []Mut{{Key: keys[i%len(keys)]}}}
		out = s.Step(0, Received{Chain{1, 2, w}}, out[:0])
	}
}

// full is the first server of a ring, with 10 000 keys in memory.
func full(b *testing.B, servers int) (*Server, *Session, []string) {
	v := View{Number: 1}
	for i := range servers {
		v.Ring = append(v.Ring, Incarnation(i+1))
	}
	s := New(Options{Incarnation: 1, View: v})
	if servers > 1 {
		s.Step(0, Received{Resync{View: 1}}, nil)
	}
	var keys []string
	for i := range 10_000 {
		keys = append(keys, fmt.Sprint("key-", i))
		out := s.Step(0, Read{Op: 1, Key: keys[i]}, nil)
		s.Step(0, Loaded{Call: out[1].(Load).Call, Row: Row{Item: Item{Exists: true, Value: []byte("12345678")}}}, nil)
	}
	return s, &Session{}, keys
}
