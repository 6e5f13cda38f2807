package check

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// acts reads a history: one act a word, "session:what", where what is w or r, a key
// and a write's name, joined by commas; after lists further acts it follows.
func acts(t *testing.T, text string) (out []Act) {
	t.Helper()
	last := map[string]int{}
	for _, word := range strings.Fields(text) {
		session, what, ok := strings.Cut(word, ":")
		if !ok {
			t.Fatalf("%q is no act", word)
		}
		session, joins, _ := strings.Cut(session, "<")
		a := Act{Session: session}
		for _, s := range append([]string{session}, strings.Split(joins, "<")...) {
			if i, ok := last[s]; ok {
				a.After = append(a.After, i)
			}
		}
		for _, w := range strings.Split(what, ",") {
			c := Cell{Key: w[1:2], Write: w[2:]}
			switch w[0] {
			case 'w':
				a.Writes = append(a.Writes, c)
			case 'd':
				c.Gone = true
				a.Writes = append(a.Writes, c)
			case 'g':
				c.Gone = true
				a.Reads = append(a.Reads, c)
			case 'r':
				a.Reads = append(a.Reads, c)
			}
		}
		last[session] = len(out)
		out = append(out, a)
	}
	return out
}

func TestCausal(t *testing.T) {
	for _, c := range []struct{ name, history, reason string }{
		{"nothing", "", ""},
		{"own write", "a:wx1 a:rx1", ""},
		{"own write lost", "a:wx1 a:rx", "never written"},
		{"backwards", "a:wx1 a:wx2 b:rx2 b:rx1", "no order"},
		{"forwards", "a:wx1 a:wx2 b:rx1 b:rx2", ""},
		{"an effect without its cause", "a:wx1 a:wy2 b:ry2 b:rx", "never written"},
		{"through another", "a:wx1 b:rx1 b:wy2 c:ry2 c:rx", "never written"},
		{"an older cause", "a:wx0 a:wx1 b:rx1 b:wy2 c:ry2 c:rx0", "no order"},
		{"two may differ in what they see first", "a:wx1 b:wx2 c:rx1 d:rx2", ""},
		{"but not in the order", "a:wx1 b:wx2 c:rx1 c:rx2 d:rx2 d:rx1", "no order"},
		{"read from a later write", "a:rx1 a:wy1 b:ry1 b:wx1", "circle"},
		{"out of thin air", "a:rx7", "nobody wrote"},
		{"one cut", "a:wx1 a:wy1 b:rx1,ry1", ""},
		{"no cut", "a:wx1 a:wy1 b:ry1,rx", "never written"},
		{"no cut of overwritten values", "a:wx1 a:wy1 a:wx2 a:wy2 b:ry2,rx1", "no order"},
		{"half of a batch", "a:wx1,wy1 b:rx1,ry", "never written"},
		{"half of an overwritten batch", "a:wx0,wy0 b:rx0 b:wx1,wy1 c:rx1,ry0", "no order"},
		{"a fork", "a:wx1 b<a:rx1 b:wy1 a:wz1 a<b:ry1", ""},
		{"a fork that forgets", "a:wx1 b<a:rx", "never written"},
		{"a join that forgets", "a:wx0 a:wx1 b:wz1 b<a:rx0", "no order"},
		{"deleted", "a:wx1 a:dx2 b:rx1 b:rx2 b:gx", ""},
		{"not deleted", "a:wx1 b:rx1 b:gx", "never written"},
		{"twice", "a:wx1 b:wx1", "twice"},
	} {
		v := Causal(acts(t, c.history))
		if v.OK != (c.reason == "") || !strings.Contains(v.Reason, c.reason) || !v.OK && len(v.Witness) == 0 {
			t.Errorf("%s: %v %q\n%s", c.name, v.OK, v.Reason, strings.Join(v.Witness, "\n"))
		}
	}
}

// world is n acts over servers that each apply, in causal order, what others wrote; with
// bad, now and then a reader misses a cause.
func world(r *rand.Rand, n, clients, keys int, bad bool) (out []Act) {
	type entry struct{ time, writer int }
	type client struct {
		seen map[int]entry
		last int
	}
	newer := func(a, b entry) bool { return a.time > b.time || a.time == b.time && a.writer > b.writer }
	cs := make([]client, clients)
	for i := range cs {
		cs[i] = client{map[int]entry{}, -1}
	}
	time := 0
	for i := range n {
		c := &cs[r.IntN(clients)]
		if o := cs[r.IntN(clients)]; r.IntN(4) == 0 { // hears all that another has seen
			for k, e := range o.seen {
				if newer(e, c.seen[k]) {
					c.seen[k] = e
				}
			}
			a := Act{Session: fmt.Sprint("c", i)}
			for _, l := range []int{c.last, o.last} {
				if l >= 0 {
					a.After = append(a.After, l)
				}
			}
			c.last = len(out)
			out = append(out, a)
			continue
		}
		a, k := Act{Session: "c"}, r.IntN(keys)
		if c.last >= 0 {
			a.After = []int{c.last}
		}
		if c.last = len(out); r.IntN(3) == 0 {
			time++
			c.seen[k] = entry{time, i + 1}
			a.Writes = []Cell{{Key: fmt.Sprint(k), Write: fmt.Sprint(i + 1)}}
		} else {
			cell := Cell{Key: fmt.Sprint(k)}
			if e := c.seen[k]; e.writer > 0 {
				cell.Write = fmt.Sprint(e.writer)
			}
			if bad && r.IntN(50) == 0 {
				cell.Write = ""
			}
			a.Reads = []Cell{cell}
		}
		out = append(out, a)
	}
	return out
}

func TestCausalOnHistories(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	broken := 0
	for i := range 300 {
		acts := world(r, 200, 1+r.IntN(6), 1+r.IntN(5), i%2 == 1)
		if v := Causal(acts); !v.OK {
			broken++
			if i%2 == 0 {
				t.Fatalf("%s\n%s", v.Reason, strings.Join(v.Witness, "\n"))
			}
		}
	}
	if broken < 100 {
		t.Fatalf("only %d of 150 broken histories were found", broken)
	}
}

// Histories agree with the definition, judged by brute force over pairs of acts.
func TestCausalAgreesWithTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	found := 0
	for range 3000 {
		n := 4 + r.IntN(8)
		var acts []Act
		var cells []Cell
		for i := range n {
			a := Act{Session: "s"}
			if i > 0 && r.IntN(3) > 0 {
				a.After = []int{r.IntN(i)}
			}
			if r.IntN(2) == 0 {
				c := Cell{Key: string(rune('x' + r.IntN(2))), Write: fmt.Sprint(i)}
				a.Writes, cells = []Cell{c}, append(cells, c)
			} else if len(cells) > 0 {
				a.Reads = []Cell{cells[r.IntN(len(cells))]}
			}
			acts = append(acts, a)
		}
		want := definition(acts)
		if got := Causal(acts); got.OK != want {
			t.Fatalf("%v, %s; want %v\n%+v", got.OK, got.Reason, want, acts)
		}
		if !want {
			found++
		}
	}
	if found < 200 || found > 2800 {
		t.Fatalf("%d of 3000 are broken", found)
	}
}

// definition computes the whole causal order and every pair of arbitration.
func definition(acts []Act) bool {
	n := len(acts)
	co := make([][]bool, n)
	writer := map[Cell]int{}
	for i, a := range acts {
		co[i] = make([]bool, n)
		for _, w := range a.Writes {
			writer[w] = i
		}
	}
	for i, a := range acts {
		for _, j := range a.After {
			co[j][i] = true
		}
		for _, r := range a.Reads {
			co[writer[r]][i] = true
		}
	}
	closure := func() {
		for k := range n {
			for i := range n {
				for j := range n {
					co[i][j] = co[i][j] || co[i][k] && co[k][j]
				}
			}
		}
	}
	closure()
	var extra [][2]int
	for i, a := range acts {
		for _, r := range a.Reads {
			for c, w := range writer {
				if c.Key == r.Key && w != writer[r] && co[w][i] {
					extra = append(extra, [2]int{w, writer[r]})
				}
			}
		}
	}
	for _, e := range extra {
		co[e[0]][e[1]] = true
	}
	closure()
	for i := range n {
		if co[i][i] {
			return false
		}
	}
	return true
}

func BenchmarkCausal(b *testing.B) {
	acts := world(rand.New(rand.NewPCG(5, 6)), 100_000, 50, 1000, false)
	b.ResetTimer()
	for b.Loop() {
		if v := Causal(acts); !v.OK {
			b.Fatal(v.Reason)
		}
	}
}

// What is counted are the acts that read what they knew to be overtaken, and only those.
func TestOvertaken(t *testing.T) {
	for _, c := range []struct {
		name, history string
		want          string
	}{
		{"nothing", "", "[]"},
		{"own write lost", "a:wx1 a:rx a:rx1", "[1]"},
		{"backwards", "a:wx1 a:wx2 b:rx2 b:rx1 b:rx2", "[3]"},
		{"forwards", "a:wx1 a:wx2 b:rx1 b:rx2", "[]"},
		{"an older cause", "a:wx0 a:wx1 b:rx1 b:wy2 c:ry2 c:rx0 c:rx1", "[5]"},
		{"in one act", "a:wx0 a:wx1 a:wy2 c:ry2,rx0", "[3]"},
		{"concurrent", "a:wx1 b:wx2 c:rx1 c:rx2 d:rx2 d:rx1", "[]"},
	} {
		got, err := Overtaken(acts(t, c.history))
		if fmt.Sprint(got) != c.want || err != nil {
			t.Errorf("%s: %v, want %s, %v", c.name, got, c.want, err)
		}
	}
	for _, history := range []string{"a:rx1", "a:rx1 a:wy1 b:ry1 b:wx1"} {
		if got, err := Overtaken(acts(t, history)); err == nil {
			t.Errorf("%s is no history: %v", history, got)
		}
	}
}
