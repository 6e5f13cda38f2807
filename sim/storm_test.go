package sim

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // a simulated world is small, so it would be collected for all the time
	os.Exit(m.Run())
}

// stormed runs the seeds of a promise that have failed once, and then n others: few with -short, and as
// many as FRESHET_SEEDS says if that is set, as make storms does. Each rare case must happen in some
// seed. It returns how often what happened.
func stormed(t *testing.T, promise string, n, few uint64, rare []string, run func(seed uint64) Result) map[string]int {
	t.Helper()
	if testing.Short() {
		n = few
	}
	if v := os.Getenv("FRESHET_SEEDS"); v != "" {
		var err error
		if n, err = strconv.ParseUint(v, 10, 32); err != nil {
			t.Fatalf("FRESHET_SEEDS: %v", err)
		}
	}
	seeds := failed(t, promise)
	for i := range n {
		seeds = append(seeds, i+1)
	}
	seen, events := try(t, seeds, "freshet sim "+promise+" --seed %d", run)
	for _, what := range rare {
		if seen[what] == 0 && !testing.Short() {
			t.Errorf("never in %d seeds: %s", len(seeds), what)
		}
	}
	t.Logf("%d seeds, %d events", len(seeds), events)
	return seen
}

func TestStorms(t *testing.T) {
	stormed(t, "linear", 300, 10, Rare(), func(seed uint64) Result { return NewLinearPlan(seed).Run(false) })
}

// repeated fails if a seed does not give the same events each time.
func repeated(t *testing.T, n uint64, run func(seed uint64) Result) {
	t.Helper()
	for seed := range n {
		a, b := run(seed), run(seed)
		if a.Events != b.Events || strings.Join(a.Log, "\n") != strings.Join(b.Log, "\n") {
			t.Fatalf("seed %d ran in two ways: %d and %d events", seed, a.Events, b.Events)
		}
	}
}

// try runs the seeds in their order, two at a time, until one fails, and sums up what has
// happened in them. It reports the first seed that fails, which is the same in every run, with
// the command that repeats it.
func try(t *testing.T, seeds []uint64, repeat string, run func(seed uint64) Result) (seen map[string]int, events int) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	seen = map[string]int{}
	next, first := 0, len(seeds)
	var err error
	one := func() bool {
		mu.Lock()
		i := next
		next++
		stop := i >= first
		mu.Unlock()
		if stop {
			return false
		}
		res := run(seeds[i])
		mu.Lock()
		defer mu.Unlock()
		if res.Err != nil && i < first {
			first, err = i, res.Err
		}
		for what, n := range res.Sometimes {
			seen[what] += n
		}
		events += res.Events
		return true
	}
	for range 2 {
		wg.Go(func() {
			for one() {
			}
		})
	}
	wg.Wait()
	if err != nil {
		t.Fatalf("seed %d: %v\nreplay it with: "+repeat, seeds[first], err, seeds[first])
	}
	return seen, events
}

// failed are the seeds of a simulation which have found something.
func failed(t *testing.T, simulation string) (out []uint64) {
	f, err := os.Open("testdata/" + simulation + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line, _, _ := strings.Cut(sc.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		n, err := strconv.ParseUint(line, 10, 64)
		if err != nil {
			t.Fatalf("testdata/%s.txt: %v", simulation, err)
		}
		out = append(out, n)
	}
	return out
}

// The same plan gives the same run, event by event: or no seed could be replayed.
func TestRunsRepeat(t *testing.T) {
	repeated(t, 5, func(seed uint64) Result { return NewLinearPlan(seed).Run(true) })
}

// A plan that fails is made smaller, and goes on failing.
func TestShrink(t *testing.T) {
	p := NewLinearPlan(7)
	p.Config.Lease = 2 * sec
	p.Config.Span = 10 * sec
	p.Calls = append(p.Calls, Call{At: 3 * sec, Node: -1}) // of no key: nobody can take it
	shrunk, res := Shrink(p, 500)
	if res.Err == nil {
		t.Fatal("it does not fail any more")
	}
	small := shrunk.(LinearPlan)
	if n := len(small.Calls) + len(small.Faults); n > 3 {
		t.Fatalf("%d calls and faults are left:\n%v", n, small)
	}
	if len(res.Log) == 0 || !strings.Contains(fmt.Sprint(small), "seed 7") {
		t.Fatal("nothing says what happened")
	}
}

// A plan of causal that fails is made smaller too: of its faults the one is left that does it,
// and of its sizes what that takes.
func TestShrinkCausal(t *testing.T) {
	p := NewCausalPlan(3)
	p.Faults = append(p.Faults, CausalFault{At: 1, Kind: CausalBreak, Node: -1}) // there is no such server
	shrunk, res := Shrink(p, 500)
	if res.Err == nil {
		t.Fatal("it does not fail any more")
	}
	small := shrunk.(CausalPlan)
	if len(small.Faults) != 1 || small.Config.Servers > 2 || small.Config.Clients != 1 || small.Config.Calls != 1 {
		t.Fatalf("it is no smaller than\n%v", small)
	}
	if len(res.Log) == 0 || !strings.Contains(fmt.Sprint(small), "break server -1") {
		t.Fatalf("nothing says what happened: %v\n%v", small, res.Log)
	}
}
