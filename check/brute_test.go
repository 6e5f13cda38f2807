package check

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// brute judges a history of one key by trying every order of what happened, and every
// choice of what without an answer did. It shares nothing with the judge but the meaning
// of one operation, which it writes down again.
func brute(ops []Op) bool {
	var must, may []Op
	for _, o := range ops {
		switch {
		case o.Outcome == OK:
			must = append(must, o)
		case o.Outcome == Unknown && o.Kind != Read:
			may = append(may, o)
		}
	}
	for set := range 1 << len(may) {
		some := slices.Clone(must)
		for i, o := range may {
			if set>>i&1 == 1 {
				some = append(some, o)
			}
		}
		if ordered(some, "", false) {
			return true
		}
	}
	return false
}

// ordered tries every next operation that nothing else ended before.
func ordered(left []Op, value string, found bool) bool {
	if len(left) == 0 {
		return true
	}
	for i, o := range left {
		if slices.ContainsFunc(left, func(p Op) bool { return p.Outcome == OK && p.End < o.Start }) {
			continue
		}
		v, f, fits := applied(o, value, found)
		if fits && ordered(slices.Delete(slices.Clone(left), i, i+1), v, f) {
			return true
		}
	}
	return false
}

// applied is the register after an operation that took effect, and whether its answer
// fits.
func applied(o Op, value string, found bool) (string, bool, bool) {
	switch o.Kind {
	case Read:
		return value, found, o.Found == found && (!found || o.Value == value)
	case Write:
		return o.Value, true, true
	case Delete:
		return "", false, true
	case CAS:
		return o.Value, true, found && value == o.Was
	case Update:
		return o.Value, true, found == o.WasFound && (!found || value == o.Was)
	}
	n := int64(0)
	if found {
		if _, err := fmt.Sscan(value, &n); err != nil || fmt.Sprint(n) != value {
			return "", false, false
		}
	}
	sum := fmt.Sprint(n + o.Delta)
	return sum, true, o.Outcome != OK || o.Value == sum
}

// small is a random history whose times often coincide.
func small(r *rand.Rand) (ops []Op) {
	kinds := []Kind{Read, Read, Write, Delete, CAS, Update, Add}
	if r.IntN(2) == 0 {
		kinds = []Kind{Read, Read, Write} // zones can decide these
	}
	for i := range 1 + r.IntN(6) {
		o := Op{Client: i, Key: "k", Kind: kinds[r.IntN(len(kinds))], Start: int64(r.IntN(5)), Outcome: []Outcome{OK, OK, OK, OK, Unknown, No}[r.IntN(6)]}
		o.End = o.Start + int64(r.IntN(4))
		value := fmt.Sprint(r.IntN(3))
		switch o.Kind {
		case Read:
			if o.Found = r.IntN(4) > 0; o.Found {
				o.Value = value
			}
		case Write:
			o.Value = value
			if r.IntN(3) > 0 {
				o.Value = fmt.Sprint(i + 10) // once only, as zones want it
			}
		case CAS, Update:
			o.Value, o.Was, o.WasFound = value, fmt.Sprint(r.IntN(3)), true
			if o.Kind == Update && r.IntN(3) == 0 {
				o.Was, o.WasFound = "", false
			}
		case Add:
			o.Delta = 1
			if o.Outcome == OK {
				o.Value = value
			}
		}
		ops = append(ops, o)
	}
	for i := range ops { // reads are of something that was written, more often than not
		if j := r.IntN(len(ops)); ops[i].Kind == Read && ops[i].Found && ops[j].Kind == Write {
			ops[i].Value = ops[j].Value
		}
	}
	return ops
}

// The judge agrees with trying everything, also where operations begin and end at the same
// instant, have no answer, or did nothing. What it shows as a witness is a violation by
// itself.
func TestLinearAgreesWithTryingEverything(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 26))
	count := map[Finding]int{}
	for range 30_000 {
		ops := small(r)
		v := Linear(ops, time.Minute)
		if want := brute(ops); want != (v.Finding == Linearizable) {
			t.Fatalf("%s (%s), and trying everything says %v:\n%s", v.Finding, v.Reason, want, text(ops))
		}
		if v.Finding == Violated && brute(v.Witness) {
			t.Fatalf("the witness is no violation:\n%s\nof\n%s", text(v.Witness), text(ops))
		}
		if v.Finding == Violated && v.Reason == "" {
			t.Fatal("a violation without a reason")
		}
		if v.Finding == Linearizable {
			if stale, _ := Stale(ops); stale > 0 {
				t.Fatalf("%d stale reads in what is linearizable:\n%s", stale, text(ops))
			}
		}
		count[v.Finding]++
	}
	if count[Linearizable] < 5000 || count[Violated] < 5000 {
		t.Errorf("the histories are of one kind: %v", count)
	}
}

func text(ops []Op) string {
	var b strings.Builder
	for _, o := range ops {
		fmt.Fprintln(&b, o)
	}
	return b.String()
}

// Stale reads are counted by their definition: some write began after every write of what
// was read had ended, and had ended itself before the read began.
func TestStaleByItsDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 14))
	some := 0
	for range 20_000 {
		ops := small(r)
		wantStale, wantReads, unsure := 0, 0, false
		for _, o := range ops {
			unsure = unsure || o.Kind == Add && o.Outcome == Unknown
			if o.Kind != Read || o.Outcome != OK {
				continue
			}
			wantReads++
			if staleRead(ops, o) {
				wantStale++
			}
		}
		if unsure {
			wantStale, wantReads = 0, 0
		}
		if stale, reads := Stale(ops); stale != wantStale || reads != wantReads {
			t.Fatalf("%d of %d reads are stale, by the definition %d of %d:\n%s", stale, reads, wantStale, wantReads, text(ops))
		}
		some += wantStale
	}
	if some < 1000 {
		t.Errorf("only %d reads were stale", some)
	}
}

func staleRead(ops []Op, read Op) bool {
	latest, written := int64(-1<<62), !read.Found // absence was there in the beginning
	for _, w := range ops {
		if w.Kind == Read || w.Outcome == No {
			continue
		}
		if (w.Kind == Delete) == !read.Found && (w.Kind == Delete || w.Value == read.Value) {
			written = true
			end := w.End
			if w.Outcome == Unknown {
				end = never
			}
			latest = max(latest, end)
		}
	}
	if !written {
		return true
	}
	return slices.ContainsFunc(ops, func(w Op) bool {
		return w.Kind != Read && w.Outcome == OK && w.End < read.Start && w.Start > latest
	})
}

// A key that is violated is found behind keys that are undecided, and one that is
// undecided is not forgotten behind keys that are well.
func TestVerdictOfSeveralKeys(t *testing.T) {
	hard := func(key string) (ops []Op) { // too much to search in no time
		for i := range 40 {
			ops = append(ops, Op{Client: i, Key: key, Kind: Add, Delta: int64(i % 7), Outcome: Unknown, End: never},
				Op{Client: 100 + i, Key: key, Kind: Read, Found: true, Value: "1000000", Start: 5, End: 6, Outcome: OK})
		}
		return ops
	}
	on := func(key, history string) []Op {
		ops := hist(t, history)
		for i := range ops {
			ops[i].Key = key
		}
		return ops
	}
	for _, c := range []struct {
		name string
		ops  []Op
		want Finding
		key  string
	}{
		{"undecided, then well", slices.Concat(hard("a"), on("b", "w1@0-1 r1@2-3")), Undecided, "a"},
		{"well, then undecided", slices.Concat(on("a", "w1@0-1 r1@2-3"), hard("b")), Undecided, "b"},
		{"undecided, then violated", slices.Concat(hard("a"), on("b", "w1@0-1 r-@2-3")), Violated, "b"},
		{"two undecided", slices.Concat(hard("a"), hard("b")), Undecided, "a"},
		{"two well", slices.Concat(on("a", "w1@0-1 c1>2@2-3"), on("b", "w1@0-1 c1>2@2-3")), Linearizable, ""},
	} {
		limit := time.Millisecond
		if c.want == Linearizable {
			limit = time.Minute
		}
		v := Linear(c.ops, limit)
		if v.Finding != c.want || v.Key != c.key || v.Ops != len(c.ops) {
			t.Errorf("%s: %s of %q, %d operations (%s)", c.name, v.Finding, v.Key, v.Ops, v.Reason)
		}
		if c.name == "two well" && v.Searched != 2 {
			t.Errorf("%d keys were searched", v.Searched)
		}
	}
}

// What has nothing to do with a violation is left out of its witness, wherever it stands.
func TestWitnessesAreShort(t *testing.T) {
	for _, c := range []struct{ history, want string }{
		{"w9@0-1 w1@2-3 w2@4-5 r1@6-7", "w1@2-3 w2@4-5 r1@6-7"},
		{"w1@2-3 w2@4-5 r1@6-7 w9@8-9", "w1@2-3 w2@4-5 r1@6-7"},
		{"w1@2-3 r1@3-4 w2@4-5 r2@5-6 r1@6-7 r2@8-9", "w1@2-3 r2@5-6 r1@6-7"},
	} {
		v := Linear(hist(t, c.history), time.Minute)
		if v.Finding != Violated || len(v.Witness) > len(strings.Fields(c.want)) {
			t.Errorf("%s: %s\n%s", c.history, v.Finding, text(v.Witness))
		}
	}
}

// A witness is shown up to a number of operations, and says how many more there are.
func TestWitnessesAreCutShort(t *testing.T) {
	for extra, want := range map[int]string{-1: "", 0: "", 1: "  and 1 more\n", 7: "  and 7 more\n"} {
		v := Verdict{Finding: Violated, Reason: "it is wrong", Key: "k", Ops: 9, Keys: 2, Searched: 1}
		for i := range shown + extra {
			v.Witness = append(v.Witness, Op{Client: i, Kind: Write, Key: "k", Value: "v", Start: int64(i), End: int64(i) + 1, Outcome: OK})
		}
		var b strings.Builder
		v.Print(&b)
		lines := strings.SplitAfter(b.String(), "\n")
		if len(lines) != 3+min(shown, shown+extra)+len(want)/11 || !strings.HasSuffix(b.String(), want) || lines[0] != fmt.Sprint(Violated, ": 9 operations on 2 keys, 1 of them searched\n") {
			t.Errorf("%d more than are shown: %d lines, %q and %q", extra, len(lines), lines[0], lines[len(lines)-2])
		}
	}
}

// What an operation says of itself.
func TestOperationsAreTold(t *testing.T) {
	for want, o := range map[string]Op{
		`client 1  read found "a", version 3  2 ns .. 5 ns`: {Client: 1, Kind: Read, Found: true, Value: "a", Version: 3, Start: 2, End: 5, Outcome: OK},
		`client 0  read found nothing  0 ns .. 1 ns`:        {Kind: Read, End: 1, Outcome: OK},
		`client 0  write "b"  0 ns .. (unknown)`:            {Kind: Write, Value: "b", Outcome: Unknown},
		`client 0  delete  0 ns .. (no)`:                    {Kind: Delete, Outcome: No},
		`client 0  cas of "a" to "b"  0 ns .. 1 ns`:         {Kind: CAS, Was: "a", Value: "b", End: 1, Outcome: OK},
		`client 0  update of "a" to "b"  0 ns .. 1 ns`:      {Kind: Update, Was: "a", WasFound: true, Value: "b", End: 1, Outcome: OK},
		`client 0  update of nothing to "b"  0 ns .. 1 ns`:  {Kind: Update, Value: "b", End: 1, Outcome: OK},
		`client 0  add +2 makes 5  0 ns .. 1 ns`:            {Kind: Add, Delta: 2, Value: "5", End: 1, Outcome: OK},
		`client 0  add -2  0 ns .. (unknown)`:               {Kind: Add, Delta: -2, Outcome: Unknown},
	} {
		if got := o.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	for _, bad := range []Op{
		{Kind: "look", Outcome: OK}, {Kind: Read, Outcome: "maybe"}, {Kind: Read, Outcome: OK, Start: 2, End: 1}, {Kind: Read, Outcome: No, Start: -1},
		{Kind: Read, Outcome: OK, Value: "a"}, {Kind: Update, Outcome: OK, Was: "a"},
	} {
		if bad.check() == nil {
			t.Errorf("%+v is let pass", bad)
		}
	}
	for _, o := range []Outcome{OK, No, Unknown} {
		if err := (&Op{Kind: Write, Outcome: o}).check(); err != nil {
			t.Error(err)
		}
	}
}

// Versions are judged by their definition, of pairs of operations; those without one say
// nothing.
func TestVersionsByTheirDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 9))
	bad := 0
	for range 20_000 {
		ops := small(r)
		for i := range ops {
			ops[i].Version = uint64(r.IntN(4))
			if ops[i].Outcome != OK {
				ops[i].End = never
			}
		}
		slices.SortStableFunc(ops, func(a, b Op) int { return int(a.Start - b.Start) })
		want := false
		for _, o := range ops {
			if o.Version == 0 || o.Outcome != OK {
				continue
			}
			for _, p := range ops {
				before := p.End < o.Start
				twice := p.Outcome == OK && o.Kind == Read && p.Kind == Read && p.Version == o.Version
				want = want || before && (p.Version > o.Version || p.Version == o.Version && o.Kind != Read) || twice && (p.Value != o.Value || p.Found != o.Found)
			}
		}
		if got := versions(ops); (got != "") != want {
			t.Fatalf("%q; by the definition %v:\n%s", got, want, text(ops))
		}
		if want {
			bad++
		}
	}
	if bad < 2000 || bad > 18_000 {
		t.Errorf("%d of 20000 go back", bad)
	}
}

// What is left out of a witness takes nothing with it that a read which stays needs.
func TestWithoutKeepsWhatIsNeeded(t *testing.T) {
	for _, c := range []struct{ ops, low, high, want string }{
		{"w1 w2 r1", "0", "2", "w1 r1"}, {"w1 d r-", "0", "2", "d r-"}, {"w1 d r1", "0", "2", "w1 r1"}, {"d r- r1", "0", "1", "d r- r1"}, {"d r1 r-", "0", "1", "d r1 r-"},
		{"w1 w2 c1", "0", "2", "w1 c1"}, {"d u1", "0", "1", "u1"}, {"d u-", "0", "1", "d u-"}, {"r1 w1 r2", "0", "1", "w1 r2"}, {"r1 w1 r2", "1", "2", "r1 w1 r2"}, {"r2 w1 r2", "1", "2", "r2 r2"},
		{"w1 r1 w2", "2", "3", "w1 r1"}, {"a1 r5", "0", "1", "a1 r5"}, {"r1 r2 r3", "1", "2", "r1 r3"}, {"d r1", "0", "1", "r1"},
	} {
		var ops []Op
		for _, word := range strings.Fields(c.ops) {
			o := Op{Kind: map[byte]Kind{'w': Write, 'r': Read, 'd': Delete, 'c': CAS, 'u': Update, 'a': Add}[word[0]], Outcome: OK}
			switch value := word[1:]; o.Kind {
			case Read:
				if o.Found = value != "-"; o.Found {
					o.Value = value
				}
			case CAS:
				o.Was, o.Value = value, "new"
			case Update:
				if o.WasFound = value != "-"; o.WasFound {
					o.Was = value
				}
				o.Value = "new"
			default:
				o.Value = value
			}
			o.Key = word
			ops = append(ops, o)
		}
		var got []string
		for _, o := range without(ops, int(c.low[0]-'0'), int(c.high[0]-'0')) {
			got = append(got, o.Key)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s without %s to %s is %v, want %s", c.ops, c.low, c.high, got, c.want)
		}
	}
	for _, after := range []int{-1, 1, 7} {
		if v := Causal([]Act{{Session: "a", After: []int{after}}}); v.OK || !strings.Contains(v.Reason, "which there is not") && after != 1 {
			t.Errorf("after act %d: %+v", after, v)
		}
	}
}
