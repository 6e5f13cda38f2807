package check

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestALineThatIsTooLongIsNamed(t *testing.T) {
	line := `{"kind":"read","outcome":"ok"}`
	r := newReader(strings.NewReader(line+"\n"+strings.Repeat(" ", 100)+line), 100)
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); err == nil || !strings.Contains(err.Error(), "line 2: it is too long") {
		t.Fatal(err)
	}
}

// full takes some bytes, and fails with another error each time after that.
type full struct{ room, fails int }

func (f *full) Write(b []byte) (int, error) {
	if f.room -= len(b); f.room < 0 {
		f.fails++
		return 0, fmt.Errorf("failure %d", f.fails)
	}
	return len(b), nil
}

func TestWriterSaysTheFirstError(t *testing.T) {
	w := NewWriter(&full{room: 2 << 20})
	var wg sync.WaitGroup
	for client := range 4 {
		wg.Go(func() {
			for range 2000 {
				w.Add(Op{Client: client, Value: strings.Repeat("v", 1000)})
			}
		})
	}
	wg.Wait()
	if err := w.Close(); err == nil || err.Error() != "failure 1" {
		t.Fatal(err)
	}
	w = NewWriter(io.Discard)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w.Add(Op{})
	if err := w.Close(); !errors.Is(err, errWriterClosed) {
		t.Fatal("an operation that nobody will read was taken silently:", err)
	}
}

// mixed is a history of a real register under every kind of operation, with few
// different values, so that zones do not suffice.
func mixed(r *rand.Rand, n int) (ops []Op) {
	s := register{}
	for i := range n {
		at := int64(i*10 + 100)
		o := Op{Client: i, Key: "k", Start: at - r.Int64N(40), End: at + r.Int64N(40), Outcome: OK}
		if r.IntN(5) == 0 {
			o.Outcome = Unknown
		}
		lost := o.Outcome == Unknown && r.IntN(2) == 0
		after := register{} // as of a delete
		switch o.Kind = []Kind{Read, Read, Write, Delete, CAS, Update, Add}[r.IntN(7)]; o.Kind {
		case Read:
			o.Value, o.Found, after = s.value, s.found, s
		case CAS:
			if o.Was = s.value; !s.found {
				continue
			}
			o.Value = fmt.Sprint(r.IntN(3))
		case Update:
			o.Was, o.WasFound, o.Value = s.value, s.found, fmt.Sprint(r.IntN(3))
		case Write:
			o.Value = fmt.Sprint(r.IntN(3))
		case Add:
			o.Delta = 1
			_, sum := Op{Delta: 1, Outcome: Unknown}.add(s)
			if o.Outcome == OK {
				o.Value = sum.value
			}
			after = sum
		}
		if o.Kind == Write || o.Kind == CAS || o.Kind == Update {
			after = register{o.Value, true}
		}
		if !lost {
			s = after
		}
		ops = append(ops, o)
	}
	return ops
}

// Whatever a real register does passes, and has no stale read; what is done to
// such a history afterwards is refused whenever a stale read shows it.
func TestARealRegisterPasses(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	refused := 0
	for range 3000 {
		ops := mixed(r, 3+r.IntN(20))
		if v := Linear(ops, 10*time.Second); v.Finding != Linearizable {
			t.Fatalf("%s: %s\n%v", v.Finding, v.Reason, v.Witness)
		}
		if stale, _ := Stale(ops); stale > 0 {
			t.Fatalf("%d stale reads\n%v", stale, ops)
		}
		for i := range ops {
			if o := &ops[i]; o.Kind == Read && r.IntN(3) == 0 {
				o.Value, o.Found = fmt.Sprint(r.IntN(4)), true
			}
		}
		stale, _ := Stale(ops)
		v := Linear(ops, 10*time.Second)
		if stale > 0 && v.Finding == Linearizable {
			t.Fatalf("%d stale reads in a linearizable history\n%v", stale, ops)
		}
		if v.Finding == Violated {
			refused++
			if w := Linear(v.Witness, 10*time.Second); w.Finding != Violated {
				t.Fatalf("the witness is %s\n%v", w.Finding, v.Witness)
			}
		}
	}
	if refused < 300 {
		t.Fatalf("only %d of 3000 broken histories were refused", refused)
	}
}

func TestTimeline(t *testing.T) {
	v := Linear(hist(t, "w1@0-10 w2@20-30 r2@25-35 r1@40-50 w3@45-?"), time.Second)
	var b bytes.Buffer
	v.Print(&b)
	want := strings.TrimLeft(`
violated: 5 operations on 1 keys, 0 of them searched
key "k": "1" and "2" were both there at 25 ns
  client 0  write "1"       |-|          0 ns .. 10 ns
  client 1  write "2"           |-|      20 ns .. 30 ns
  client 3  read found "1"          |-|  40 ns .. 50 ns
`, "\n")
	if b.String() != want {
		t.Fatalf("got\n%s\nwant\n%s", b.String(), want)
	}
	if !slices.IsSortedFunc(v.Witness, func(a, b Op) int { return cmp.Compare(a.Start, b.Start) }) {
		t.Fatal("the witness is not in the order of time")
	}
}
