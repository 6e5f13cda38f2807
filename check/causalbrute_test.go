package check

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// graph is a history's whole causal order, by the definition: one bit for every pair.
type graph struct {
	acts    []Act
	writer  map[Cell]int // by key and name
	deleted map[string]bool
	before  [][]bool
	thin    bool // something was read that nobody wrote before
}

func definitionOf(acts []Act) *graph {
	g := &graph{acts: acts, writer: map[Cell]int{}, deleted: map[string]bool{}, before: make([][]bool, len(acts))}
	for i, a := range acts {
		g.before[i] = make([]bool, len(acts))
		for _, w := range a.Writes {
			g.writer[Cell{Key: w.Key, Write: w.Write}] = i
			g.deleted[w.Key] = g.deleted[w.Key] || w.Gone
		}
	}
	for i, a := range acts {
		for _, j := range a.After {
			g.before[j][i] = true
		}
		for _, r := range a.Reads {
			if r.Write == "" {
				continue
			}
			j, ok := g.writer[Cell{Key: r.Key, Write: r.Write}]
			if g.thin = g.thin || !ok || j == i; ok {
				g.before[j][i] = true
			}
		}
	}
	g.close()
	return g
}

func (g *graph) close() {
	for k := range g.acts {
		for i := range g.acts {
			for j := range g.acts {
				g.before[i][j] = g.before[i][j] || g.before[i][k] && g.before[k][j]
			}
		}
	}
}

func (g *graph) circle() bool {
	return slices.ContainsFunc(g.before, func(row []bool) bool {
		i := slices.IndexFunc(g.before, func(r []bool) bool { return &r[0] == &row[0] })
		return row[i]
	})
}

// known are the acts before i that wrote key.
func (g *graph) known(i int, key string) (out []int) {
	for c, w := range g.writer {
		if c.Key == key && g.before[w][i] {
			out = append(out, w)
		}
	}
	return out
}

// tells reports whether a read that found nothing says that nothing was written.
func (g *graph) tells(r Cell) bool { return r.Write == "" && !(r.Gone && g.deleted[r.Key]) }

func (g *graph) causal() bool {
	if g.thin || g.circle() {
		return false
	}
	var extra [][2]int
	for i, a := range g.acts {
		for _, r := range a.Reads {
			for _, w := range g.known(i, r.Key) {
				switch from := g.writer[Cell{Key: r.Key, Write: r.Write}]; {
				case g.tells(r):
					return false
				case r.Write != "" && w != from:
					extra = append(extra, [2]int{w, from})
				}
			}
		}
	}
	for _, e := range extra {
		g.before[e[0]][e[1]] = true
	}
	g.close()
	return !g.circle()
}

func (g *graph) overtaken() (places []int) {
	for i, a := range g.acts {
		if slices.ContainsFunc(a.Reads, func(r Cell) bool {
			known := g.known(i, r.Key)
			if r.Write == "" {
				return g.tells(r) && len(known) > 0
			}
			from := g.writer[Cell{Key: r.Key, Write: r.Write}]
			return slices.ContainsFunc(known, func(w int) bool { return w != from && g.before[from][w] })
		}) {
			places = append(places, i)
		}
	}
	return places
}

// anything is a random history: acts that read and write several cells, forks, joins,
// deletions, and now and then what cannot be. Its keys lie around the places at which the
// judge's memory of them is cut up; the first act, which few follow, makes them known.
func anything(r *rand.Rand) (acts []Act) {
	first := Act{Session: "first"}
	for i := range 2*chunk + 1 {
		first.Writes = append(first.Writes, Cell{Key: fmt.Sprint("k", i), Write: "0"})
	}
	keys := []string{"k0", fmt.Sprint("k", chunk-1), fmt.Sprint("k", chunk), fmt.Sprint("k", 2*chunk), "another"}[r.IntN(4):][:2]
	acts = append(acts, first)
	var cells []Cell
	for i := 1; i < 4+r.IntN(9); i++ {
		a := Act{Session: fmt.Sprint("s", i)}
		for range r.IntN(3) {
			if j := r.IntN(i); j > 0 || r.IntN(4) == 0 {
				a.After = append(a.After, j)
			}
		}
		for _, key := range keys {
			var own []Cell
			for _, c := range cells {
				if c.Key == key {
					own = append(own, Cell{Key: key, Write: c.Write})
				}
			}
			switch n := r.IntN(12); {
			case n < 4 && len(own) > 0:
				a.Reads = append(a.Reads, own[r.IntN(len(own))])
			case n == 4:
				a.Reads = append(a.Reads, Cell{Key: key, Gone: r.IntN(2) == 0})
			case n == 5 && r.IntN(8) == 0:
				a.Reads = append(a.Reads, Cell{Key: key, Write: fmt.Sprint(i + r.IntN(2))}) // of a later act, or its own
			}
			if r.IntN(3) == 0 {
				c := Cell{Key: key, Write: fmt.Sprint(i), Gone: r.IntN(6) == 0}
				a.Writes, cells = append(a.Writes, c), append(cells, c)
			}
		}
		acts = append(acts, a)
	}
	return acts
}

// The judge of causal histories agrees with the definition, of pairs of acts, and so does
// the count of what was overtaken.
func TestCausalAgreesWithTheWholeDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	broken, late := 0, 0
	for range 20_000 {
		acts := anything(r)
		g := definitionOf(acts)
		noHistory := g.thin || g.circle()
		if got, err := Overtaken(acts); (err != nil) != noHistory || err == nil && !slices.Equal(got, g.overtaken()) {
			t.Fatalf("overtaken are %v, %v; by the definition %v\n%+v", got, err, g.overtaken(), acts[1:])
		} else if len(got) > 0 {
			late++
		}
		want := g.causal()
		v := Causal(acts)
		if v.OK != want || (v.Reason == "") != want || (len(v.Witness) == 0) != want {
			t.Fatalf("%v, %q; by the definition %v\n%+v", v.OK, v.Reason, want, acts[1:])
		}
		if !want {
			broken++
		}
	}
	if broken < 4000 || broken > 16_000 || late < 2000 {
		t.Errorf("%d of 20000 are broken, %d have what was overtaken", broken, late)
	}
}

// What is shown of a circle leads from each act to the next, and back to the first.
func TestWitnessesOfCircles(t *testing.T) {
	for _, c := range []struct{ history, want string }{
		{"a:wx1 a:wx2 b:rx2 b:rx1", "act 0 of a: writes x as 1 | comes before, in the session, | act 1 of a: writes x as 2 | " +
			"was overwritten by the next, for its effects were known to: act 3 of b: reads x of 1 | act 0 of a: writes x as 1"},
		{"a:rx1 a:wy1 b:ry1 b:wx1", "act 3 of b: writes x as 1 | wrote what is read by | act 0 of a: reads x of 1 | comes before, in the session, | " +
			"act 1 of a: writes y as 1 | wrote what is read by | act 2 of b: reads y of 1 | comes before, in the session, | act 3 of b: writes x as 1"},
		{"a:wx1 b:rx1 b:rx", "act 0 of a: writes x as 1 | comes causally before | act 2 of b: finds no x"},
	} {
		v := Causal(acts(t, c.history))
		got := strings.Join(v.Witness, " | ")
		if len(v.Witness) > 3 { // a circle begins anywhere
			steps := v.Witness[:len(v.Witness)-1]
			for range steps {
				if steps = append(slices.Clone(steps[2:]), steps[:2]...); strings.HasPrefix(c.want, steps[0]) {
					got = strings.Join(append(slices.Clone(steps), steps[0]), " | ")
					break
				}
			}
		}
		if got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.history, got, c.want)
		}
	}
}
