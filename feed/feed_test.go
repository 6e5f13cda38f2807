package feed

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestStories runs testdata/*.txt: a sender of texts, and a receiver that the story sends to as it likes.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s, r := NewSender[string](0), NewReceiver(0)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var b strings.Builder
			var n, to uint64
			most := 100
			d.MaybeScanArgs(t, "n", &n)
			d.MaybeScanArgs(t, "to", &to)
			d.MaybeScanArgs(t, "most", &most)
			switch d.Cmd {
			case "feed":
				ring, window := 0, 0
				d.MaybeScanArgs(t, "ring", &ring)
				d.MaybeScanArgs(t, "window", &window)
				s, r = NewSender[string](ring), NewReceiver(window)
			case "append":
				for _, m := range strings.Fields(d.Input) {
					fmt.Fprintf(&b, "%d: %s\n", s.Append(m), m)
				}
			case "receive":
				fmt.Fprintln(&b, r.Receive(n))
			case "heard":
				r.Heard(n)
			case "adopt":
				fmt.Fprintln(&b, r.Adopt(n))
			case "resend":
				msgs, ok := s.Resend(n, to, most)
				if !ok {
					fmt.Fprintln(&b, "no longer here")
				} else {
					fmt.Fprintln(&b, msgs)
				}
				return b.String()
			default:
				t.Fatalf("no command %s", d.Cmd)
			}
			r.Check()
			fmt.Fprintf(&b, "applied %d", r.Applied())
			if from, to, ok := r.Gap(most); ok {
				fmt.Fprintf(&b, ", lacks %d to %d", from, to)
			}
			return b.String() + "\n"
		})
	})
}

// play lets a sender and a receiver go on as the bytes say, and compares the receiver with a set of numbers.
func play(t testing.TB, ring, window int, do []byte) {
	s, r := NewSender[uint64](ring), NewReceiver(window)
	had := map[uint64]bool{} // what was recorded or adopted
	for i := 0; i+1 < len(do); i += 2 {
		arg := uint64(do[i+1])
		switch do[i] % 6 {
		case 0, 1:
			n := s.Next()
			if s.Append(n*10) != n || s.Last() != n {
				t.Fatalf("a message took another number than %d", n)
			}
		case 2: // one that was sent arrives
			n := s.Last() - min(s.Last(), arg)
			verdict := r.Receive(n)
			want := New
			switch {
			case n == 0 || had[n]:
				want = Repeat
			case n > r.applied && n-r.applied > uint64(window) && verdict == Beyond:
				want = Beyond
			}
			if verdict != want {
				t.Fatalf("%d is %v, and should be %v", n, verdict, want)
			}
			had[n] = had[n] || verdict == New
		case 3:
			r.Heard(s.Last() - min(s.Last(), arg))
		case 4: // a snapshot
			n := s.Last() - min(s.Last(), arg)
			if was := r.Applied(); r.Adopt(n) != (n > was) {
				t.Fatalf("adoption of %d at %d", n, was)
			}
			for k := range n + 1 {
				had[k] = true
			}
		case 5: // the receiver asks, and has the answer
			most := int(arg%8) + 1
			from, to, ok := r.Gap(most)
			if !ok {
				break
			}
			if from != r.Applied()+1 || to < from || to-from >= uint64(most) || had[from] || had[to] {
				t.Fatalf("applied %d, asks for %d to %d, at most %d", r.Applied(), from, to, most)
			}
			msgs, here := s.Resend(from, to, most)
			if here != (from >= s.Oldest()) || here && len(msgs) != int(to-from+1) {
				t.Fatalf("asked for %d to %d of %d, oldest %d: %v %v", from, to, s.Last(), s.Oldest(), msgs, here)
			}
			for k, m := range msgs {
				if n := from + uint64(k); m != n*10 {
					t.Fatalf("message %d is %d", n, m)
				} else if r.Receive(n) == New {
					had[n] = true
				}
			}
		}
		r.Check()
		below := uint64(0)
		for had[below+1] {
			below++
		}
		if r.Applied() != below || r.Known() > s.Last() {
			t.Fatalf("applied %d of %d, and all up to %d have arrived", r.Applied(), r.Known(), below)
		}
	}
}

// Whatever is lost, repeated, late or out of order, the receiver knows what it lacks.
func TestSchedules(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		do := make([]byte, 2*r.IntN(200))
		for i := range do {
			do[i] = byte(r.Uint32())
			if i%2 == 1 && seed%2 == 0 {
				do[i] %= 8
			}
		}
		ring := 1 + r.IntN(20)
		play(t, ring, []int{ring, 1, 8}[r.IntN(3)], do)
	}
}

func FuzzFeed(f *testing.F) {
	f.Add(3, 3, []byte{0, 0, 0, 0, 2, 0, 5, 3})
	f.Fuzz(func(t *testing.T, ring, window int, do []byte) {
		if ring <= 0 || ring > 100 || window <= 0 || window > 100 || len(do) > 1000 {
			return
		}
		play(t, ring, window, do)
	})
}

// Once nothing is lost any more, a receiver that asks for its gaps is complete in as many answers as
// there are gaps, and bounds.
func TestGapsAreMended(t *testing.T) {
	s, r := NewSender[uint64](0), NewReceiver(0)
	for n := uint64(1); n <= 100; n++ {
		if s.Append(n); n%3 != 0 {
			r.Receive(n)
		}
	}
	r.Heard(100)
	var asked []uint64
	for {
		from, to, ok := r.Gap(10)
		if !ok {
			break
		}
		msgs, _ := s.Resend(from, to, 10)
		for _, n := range msgs {
			asked = append(asked, n)
			r.Receive(n)
		}
	}
	if len(asked) != 33 || r.Applied() != 100 || !slices.IsSorted(asked) {
		t.Errorf("asked for %v, applied %d", asked, r.Applied())
	}
}

// Zero values of the options are the default.
func TestDefaults(t *testing.T) {
	s, r := NewSender[int](0), NewReceiver(-1)
	for range DefaultRing + 1 {
		s.Append(0)
	}
	if s.Oldest() != 2 || r.Receive(DefaultRing) != New || r.Receive(DefaultRing+1) != Beyond {
		t.Errorf("the oldest of %d is %d", s.Last(), s.Oldest())
	}
	if _, ok := s.Resend(0, 9, 9); ok {
		t.Error("message 0 is there")
	}
}

// The incarnations that have ended last are remembered, and no more.
func TestEnded(t *testing.T) {
	var e Ended[int]
	if e.Has(0) {
		t.Error("what has not ended is there")
	}
	for k := range MostEnded + 1 {
		e.Add(k)
	}
	if e.Has(0) || !e.Has(1) || !e.Has(MostEnded) || len(e.has) != MostEnded || len(e.order) != MostEnded {
		t.Errorf("%d are remembered", len(e.has))
	}
}
