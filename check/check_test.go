package check

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// hist reads one operation a word: kind, value, start and end. r1@3-5 is a read
// of "1" from 3 to 5, r- found nothing, w1@0-2 a write, w1@0-? one without an
// answer, d@1-2 a delete, c1>2@3-4 a compare-and-set, u1>2@3-4 an update that
// decided from "1" and u->2@3-4 from nothing, a+1=2@0-1 an addition.
func hist(t *testing.T, text string) (ops []Op) {
	t.Helper()
	for i, word := range strings.Fields(text) {
		what, when, _ := strings.Cut(word, "@")
		start, end, _ := strings.Cut(when, "-")
		o := Op{Client: i, Key: "k", Outcome: OK}
		if _, err := fmt.Sscan(start, &o.Start); err != nil {
			t.Fatal(word, err)
		}
		if end == "?" {
			o.Outcome = Unknown
		} else if _, err := fmt.Sscan(end, &o.End); err != nil {
			t.Fatal(word, err)
		}
		switch what[0] {
		case 'r':
			o.Kind, o.Value, o.Found = Read, what[1:], true
			if o.Value == "-" {
				o.Value, o.Found = "", false
			}
		case 'w':
			o.Kind, o.Value = Write, what[1:]
		case 'd':
			o.Kind = Delete
		case 'c':
			o.Kind = CAS
			o.Was, o.Value, _ = strings.Cut(what[1:], ">")
		case 'u':
			o.Kind, o.WasFound = Update, true
			o.Was, o.Value, _ = strings.Cut(what[1:], ">")
			if o.Was == "-" {
				o.Was, o.WasFound = "", false
			}
		case 'a':
			o.Kind = Add
			if _, err := fmt.Sscanf(what, "a%d=%s", &o.Delta, &o.Value); err != nil && o.Outcome == OK {
				t.Fatal(word, err)
			}
		}
		ops = append(ops, o)
	}
	return ops
}

var histories = []struct {
	name, text string
	want       Finding
}{
	{"nothing", "", Linearizable},
	{"absence at first", "r-@0-1", Linearizable},
	{"read of the latest", "w1@0-1 r1@2-3", Linearizable},
	{"stale read", "w1@0-1 w2@2-3 r1@4-5", Violated},
	{"stale absence", "w1@0-1 r-@2-3", Violated},
	{"value from nowhere", "r1@0-1", Violated},
	{"value from the future", "r1@0-1 w1@2-3", Violated},
	{"either of two at once", "w1@0-5 w2@0-5 r1@6-7", Linearizable},
	{"both of two at once", "w1@0-5 w2@0-5 r1@6-7 r2@8-9", Violated},
	{"seen early, then not", "w1@0-9 r1@1-2 r-@3-4", Violated},
	{"seen early, and from then on", "w1@0-9 r-@1-2 r1@3-4", Linearizable},
	{"no answer, never seen", "w1@0-1 w2@2-? r1@3-4", Linearizable},
	{"no answer, seen late", "w1@0-1 w2@2-? r1@3-4 r2@5-6", Linearizable},
	{"no answer, seen and gone", "w1@0-1 w2@2-? r2@3-4 r1@5-6", Violated},
	{"deleted", "w1@0-1 d@2-3 r-@4-5", Linearizable},
	{"risen from the dead", "w1@0-1 d@2-3 r1@4-5", Violated},
	{"cas", "w1@0-1 c1>2@2-3 r2@4-5", Linearizable},
	{"cas of what was not there", "w1@0-1 c3>2@2-3", Violated},
	{"cas without an answer", "w1@0-1 c1>2@2-? r1@3-4 r2@5-6", Linearizable},
	{"counter", "a+1=1@0-1 a+1=2@2-3 r2@4-5", Linearizable},
	{"counted twice", "a+1=1@0-1 a+1=3@2-3", Violated},
	{"counted without an answer", "a+1=1@0-1 a+1=?@2-? a+1=3@3-4", Linearizable},
	{"counted onto what is no number", "wx@0-1 a+1=?@2-? rx@3-4", Linearizable},
	{"updates of each other", "u->1@0-9 u1>2@0-9 r2@10-11", Linearizable},
	{"a lost update", "w0@0-1 u0>1@2-9 u0>2@2-9 r2@10-11", Violated},
	{"an update of what had gone", "w1@0-1 w2@2-3 u1>3@4-5", Violated},
	{"an update without an answer, undecided by reads", "u->1@0-? r-@1-2 r1@3-4", Linearizable},
	{"an update without an answer that came too late", "u->1@0-? w2@1-2 r2@3-4 r1@5-6", Violated},
	{"the same value twice", "w1@0-1 w2@2-3 w1@4-5 r1@6-7", Linearizable},
	{"the same value twice, and between", "w1@0-1 w2@2-3 r1@4-5 w1@6-7", Violated},
}

func TestHistories(t *testing.T) {
	for _, h := range histories {
		v := Linear(hist(t, h.text), time.Second)
		if v.Finding != h.want {
			t.Errorf("%s: %s, want %s (%s)", h.name, v.Finding, h.want, v.Reason)
		}
		if v.Finding == Violated && len(v.Witness) == 0 {
			t.Errorf("%s: no witness", h.name)
		}
	}
}

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		name string
		ops  []Op
		want Finding
	}{
		{"it goes up", []Op{{Kind: Write, Value: "a", Version: 2, Start: 0, End: 1}, {Kind: Read, Value: "a", Found: true, Version: 2, Start: 2, End: 3}}, Linearizable},
		{"it comes back", []Op{{Kind: Delete, Version: 4, Start: 0, End: 1}, {Kind: Read, Version: 3, Start: 2, End: 3}}, Violated},
		{"a write without a version of its own", []Op{{Kind: Write, Value: "a", Version: 2, Start: 0, End: 1}, {Kind: Write, Value: "b", Version: 2, Start: 2, End: 3}}, Violated},
		{"writes that went together", []Op{{Kind: Write, Value: "a", Version: 2, Start: 0, End: 2}, {Kind: Write, Value: "b", Version: 2, Start: 1, End: 3}}, Linearizable},
		{"two values of one", []Op{{Kind: Write, Value: "a", Start: 0, End: 9}, {Kind: Read, Version: 3, Start: 0, End: 9}, {Kind: Read, Value: "a", Found: true, Version: 3, Start: 0, End: 9}}, Violated},
	} {
		for i := range c.ops {
			c.ops[i].Outcome = OK
		}
		if v := Linear(c.ops, time.Second); v.Finding != c.want {
			t.Errorf("%s: %s (%s)", c.name, v.Finding, v.Reason)
		}
	}
}

// random is a history of a real register: each operation takes effect at an
// instant between its start and its end. Some answers are lost.
func random(r *rand.Rand, n int, lost bool) (ops []Op) {
	state, found := "", false
	for i := range n {
		at := int64(i*10 + 100)
		o := Op{Client: i, Key: "k", Start: at - r.Int64N(60), End: at + r.Int64N(60), Outcome: OK}
		if r.IntN(2) == 0 {
			o.Kind, o.Value, o.Found = Read, state, found
		} else {
			o.Kind, o.Value = Write, fmt.Sprint(i)
			switch {
			case lost && r.IntN(4) == 0 && r.IntN(2) == 0:
				o.Outcome = Unknown // and it never happens
			case lost && r.IntN(4) == 0:
				o.Outcome = Unknown
				fallthrough
			default:
				state, found = o.Value, true
			}
		}
		ops = append(ops, o)
	}
	return ops
}

// Histories of a real register pass, by zones and by search; and whatever is
// done to them, both agree.
func TestZonesAgreeWithTheSearch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	bad := 0
	for i := range 4000 {
		ops := random(r, 3+r.IntN(12), i%2 == 0)
		if v := Linear(ops, time.Second); v.Finding != Linearizable {
			t.Fatalf("a register's own history: %s, %s\n%v", v.Finding, v.Reason, ops)
		}
		if stale, _ := Stale(ops); stale > 0 {
			t.Fatalf("a register's own history has %d stale reads\n%v", stale, ops)
		}
		for range 1 + r.IntN(3) { // break it, perhaps
			o := &ops[r.IntN(len(ops))]
			if p := ops[r.IntN(len(ops))]; o.Kind == Read {
				o.Value, o.Found = p.Value, p.Kind == Write || p.Found
			} else if d := r.Int64N(80); o.Outcome == OK {
				o.Start, o.End = max(0, o.Start-d), max(0, o.Start-d)+5
			}
		}
		list := byKey(ops)["k"]
		z, ok := newZones(list)
		if !ok {
			t.Fatalf("the zones cannot decide\n%v", ops)
		}
		reason := z.violation()
		want, _ := search(list, 10*time.Second)
		if (reason == "") != (want == Linearizable) {
			t.Fatalf("zones say %q, the search says %s\n%v", reason, want, ops)
		}
		if stale, _ := Stale(ops); stale > 0 && want == Linearizable {
			t.Fatalf("%d stale reads in a linearizable history\n%v", stale, ops)
		}
		if want == Violated {
			bad++
		}
	}
	if bad < 500 {
		t.Fatalf("only %d of 4000 histories were broken", bad)
	}
}

func TestWitnessIsSmall(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	ops := random(r, 500, false)
	for i := range ops {
		ops[i].Start, ops[i].End = int64(i*10), int64(i*10+5) // one after the other
	}
	state, found := "", false
	for i := range ops {
		if ops[i].Kind == Read {
			ops[i].Value, ops[i].Found = state, found
		} else {
			state, found = ops[i].Value, true
		}
	}
	ops = append(ops, Op{Key: "k", Kind: Read, Value: ops[firstWrite(ops)].Value, Found: true, Start: 9000, End: 9001, Outcome: OK})
	v := Linear(ops, time.Second)
	if v.Finding != Violated || len(v.Witness) > 4 {
		t.Fatalf("%s, %d operations:\n%v", v.Finding, len(v.Witness), v.Witness)
	}
	var b bytes.Buffer
	v.Print(&b)
	if !strings.Contains(b.String(), "violated") || !strings.Contains(b.String(), `key "k"`) {
		t.Fatal(b.String())
	}
	if stale, _ := Stale(ops); stale != 1 {
		t.Fatalf("%d stale reads, want 1", stale)
	}
}

func firstWrite(ops []Op) int {
	for i, o := range ops {
		if o.Kind == Write {
			return i
		}
	}
	return -1
}

// Any of 40 additions of even numbers may have happened before an odd sum was
// read: to refute it takes 2^40 steps, and a search that is cut short says so.
func TestUndecidedIsNoSuccess(t *testing.T) {
	ops := hist(t, "r1@1-2")
	for i := range 40 {
		ops = append(ops, Op{Key: "k", Kind: Add, Delta: 2 << i, Outcome: Unknown})
	}
	if v := Linear(ops, 20*time.Millisecond); v.Finding != Undecided || v.Key != "k" || v.Reason == "" {
		t.Fatal(v.Finding, v.Reason)
	}
	// A violation elsewhere is worth more than a doubt.
	for _, o := range hist(t, "w1@0-1 w2@2-3 r1@4-5") {
		o.Key = "later"
		ops = append(ops, o)
	}
	if v := Linear(ops, 20*time.Millisecond); v.Finding != Violated || v.Key != "later" {
		t.Fatal(v.Finding, v.Key)
	}
}

func TestReadAndWrite(t *testing.T) {
	want := hist(t, "w1@0-1 r1@2-3 w2@4-? c1>3@5-6 a+1=2@7-8 d@9-10")
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, o := range want {
		w.Add(o)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := ReadAll(&b)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%v\n%v\n%v", err, got, want)
	}
	for text, says := range map[string]string{
		"{":                        "line 1",
		"\n\n{\"kind\":\"dance\"}": "line 3: kind \"dance\"",
		`{"kind":"read"}`:          "outcome",
		`{"kind":"read","outcome":"ok","start":5,"end":4}`: "ends at 4",
		`{"kind":"read","outcome":"ok","start":-5}`:        "negative",
		`{"kind":"read","outcome":"ok","value":"v"}`:       "found is not true",
		`{"kind":"update","outcome":"ok","was":"v"}`:       "wasFound is not true",
		`{"kind":"read","outcome":"ok"} {}`:                "after top-level value",
	} {
		if _, err := ReadAll(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzReadAll(f *testing.F) {
	f.Add([]byte(`{"client":1,"kind":"write","key":"k","value":"v","start":1,"end":2,"outcome":"ok"}`))
	f.Add([]byte(`{"kind":"read","key":"k","found":true,"value":"v","start":3,"end":4,"outcome":"ok"}` + "\n{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ops, err := ReadAll(bytes.NewReader(b))
		if err != nil || len(ops) > 20 {
			return
		}
		v := Linear(ops, 100*time.Millisecond)
		stale, _ := Stale(ops)
		if stale > 0 && v.Finding == Linearizable {
			t.Fatalf("%d stale reads in a linearizable history", stale)
		}
	})
}

func BenchmarkLinear(b *testing.B) {
	r := rand.New(rand.NewPCG(5, 6))
	var ops []Op
	for k := range 1000 {
		for _, o := range random(r, 1000, true) {
			o.Key = fmt.Sprint(k)
			ops = append(ops, o)
		}
	}
	for b.Loop() {
		if v := Linear(ops, 0); v.Finding != Linearizable {
			b.Fatal(v.Reason)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(ops)), "ns/history-op")
}
