package mutants

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const root = "../.."

// Every mutant still has its place. This is cheap.
func TestMutantsApply(t *testing.T) {
	list, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 300 {
		t.Errorf("only %d mutants are found", len(list))
	}
	for _, m := range list {
		if err := m.Check(root); err != nil {
			t.Error(err)
		}
	}
}

// tally counts verdicts.
type tally struct{ noticed, survived, known atomic.Int64 }

// TestMutants takes minutes, so it runs when FRESHET_MUTANTS is set: make mutants. It takes
// verdicts from the cache if FRESHET_MUTANTS_CACHE is set.
func TestMutants(t *testing.T) {
	only := os.Getenv("FRESHET_MUTANTS")
	if only == "" {
		t.Skip("set FRESHET_MUTANTS=all, or to a part of a mutant's name or package; or run make mutants")
	}
	list, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	var sum tally
	t.Cleanup(func() {
		t.Logf("%d mutants noticed, %d shown to be hygiene; %d of these verdicts were known", sum.noticed.Load(), sum.survived.Load(), sum.known.Load())
	})
	var verdicts *Verdicts
	if os.Getenv("FRESHET_MUTANTS_CACHE") != "" {
		cache, err := os.UserCacheDir()
		if err == nil {
			verdicts, err = OpenVerdicts(filepath.Join(cache, "freshet-mutants"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := strings.TrimPrefix(only, "./")
	groups := map[string][]Mutant{}
	var order []string
	for _, m := range list {
		if only != "all" && !strings.Contains(m.Name, only) && m.Dir != dir {
			continue
		}
		name := m.Test
		if m.Alone() {
			name += ": " + m.Name
		}
		if groups[name] == nil {
			order = append(order, name)
		}
		groups[name] = append(groups[name], m)
	}
	if len(order) == 0 {
		t.Fatalf("FRESHET_MUTANTS=%s: no mutant has this in its name, and no package with mutants has this path", only)
	}
	slices.SortStableFunc(order, func(a, b string) int { return len(groups[b]) - len(groups[a]) })
	for _, name := range order {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel() // much of the time one processor links what the other waits for
			judge(t, groups[name], verdicts, &sum)
		})
	}
}

// judge builds what is needed and runs the mutants of a group.
func judge(t *testing.T, group []Mutant, verdicts *Verdicts, sum *tally) {
	test := group[0].Test
	keys := make([]string, len(group))
	if verdicts != nil {
		depends, err := Depends(t.Context(), root, test)
		if err != nil {
			t.Fatal(err)
		}
		group = slices.DeleteFunc(group, func(m Mutant) bool {
			said, ok := verdicts.Get(m.Key(depends))
			if ok {
				t.Logf("known of %q: %s", m.Name, said)
				sum.known.Add(1)
				sum.count(m)
			}
			return ok
		})
		for i, m := range group {
			keys[i] = m.Key(depends)
		}
	}
	if len(group) == 0 {
		return
	}
	var binary string
	var err error
	if group[0].Alone() {
		binary, err = Single(t.Context(), root, t.TempDir(), group[0])
	} else {
		binary, err = Together(t.Context(), root, t.TempDir(), test, group)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range group {
		t.Run(strings.ReplaceAll(m.Name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			said, err := m.judge(t.Context(), binary, i+1)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(said)
			sum.count(m)
			if verdicts != nil {
				if err := verdicts.Put(keys[i], said); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func (s *tally) count(m Mutant) {
	if m.Survives != "" {
		s.survived.Add(1)
	} else {
		s.noticed.Add(1)
	}
}

// judge runs the tests with the mutant, and says what became of it, or why that is wrong.
func (m Mutant) judge(ctx context.Context, binary string, number int) (string, error) {
	began := time.Now()
	var out string
	var failed error
	for range m.Tries {
		if out, failed = m.run(ctx, binary, number); failed != nil && (m.Fails == nil || m.Fails.MatchString(out)) {
			break
		}
	}
	switch {
	case strings.Contains(out, "no tests to run"):
		return "", fmt.Errorf("there is no test %s in %s", m.Run, m.Test)
	case m.Survives != "" && failed != nil:
		return "", fmt.Errorf("said to survive (%s), but the tests notice:\n%s", m.Survives, tail(out))
	case m.Survives != "":
		return "survives: " + m.Survives, nil
	case failed == nil:
		return "", fmt.Errorf("survived: go test -run '%s' %s does not notice", m.Run, m.Test)
	case !m.Fails.MatchString(out):
		return "", fmt.Errorf("the tests fail, but none says %q:\n%s", m.Fails, tail(out))
	}
	return fmt.Sprintf("noticed after %v: %s", time.Since(began).Round(time.Second/10), m.Fails.FindString(out)), nil
}

// run runs the test binary in its package.
func (m Mutant) run(ctx context.Context, binary string, number int) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	limit := "4m"
	if m.Fails != nil && m.Fails.MatchString("test timed out") { // that it hangs is how it is noticed
		limit = "1m"
	}
	args := []string{"-test.count=1", "-test.failfast", "-test.timeout=" + limit, "-test.run=" + m.Run}
	if m.Survives != "" && os.Getenv("FRESHET_MUTANTS_LONG") == "" {
		args = append(args, "-test.short") // that nothing notices takes as long as the tests do; the reason is in words
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = filepath.Join(root, m.Test)
	cmd.Env = append(os.Environ(), fmt.Sprint("FRESHET_MUTANT=", number))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func tail(out string) string {
	if len(out) > 4000 {
		return out[len(out)-4000:]
	}
	return out
}
