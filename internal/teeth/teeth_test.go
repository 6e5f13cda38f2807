package teeth

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestSabotages takes minutes, so it runs when FRESHET_TEETH is set: make teeth.
func TestSabotages(t *testing.T) {
	only := os.Getenv("FRESHET_TEETH")
	if only == "" {
		t.Skip("set FRESHET_TEETH=all, or to a part of a sabotage's name; or run make teeth")
	}
	var caught, hygiene atomic.Int64
	t.Cleanup(func() { t.Logf("%d sabotages caught, %d shown to be hygiene", caught.Load(), hygiene.Load()) })
	for _, s := range Sabotages {
		if only != "all" && !strings.Contains(s.Name, only) {
			continue
		}
		t.Run(strings.ReplaceAll(s.Name, " ", "-"), func(t *testing.T) {
			t.Parallel() // much of the time one processor links what the other waits for
			began := time.Now()
			out, err := run(t, s)
			for try := 1; err == nil && s.Hygiene == "" && try < 3; try++ { // what several processes do at once may need another moment
				out, err = run(t, s)
			}
			switch {
			case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
				t.Fatalf("the sabotage does not compile:\n%s", out)
			case s.Hygiene != "" && err != nil:
				t.Fatalf("called hygiene (%s), but the tests notice:\n%s", s.Hygiene, tail(out))
			case s.Hygiene != "":
				hygiene.Add(1)
				t.Logf("hygiene: %s", s.Hygiene)
			case err == nil:
				t.Fatalf("survived: %s -run %s does not notice", s.Pkg, s.Run)
			case !strings.Contains(out, "--- FAIL"):
				t.Fatalf("the tests did not fail, they broke:\n%s", tail(out))
			default:
				caught.Add(1)
				t.Logf("caught in %v: %s", time.Since(began).Round(time.Second/10), verdict(out))
			}
		})
	}
}

// TestSabotagesApply is cheap: every patch must still find its place.
func TestSabotagesApply(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Sabotages {
		if _, err := patched(s); err != nil || seen[s.Name] {
			t.Errorf("%s: %v (twice: %v)", s.Name, err, seen[s.Name])
		}
		seen[s.Name] = true
	}
}

const root = "../.."

func patched(s Sabotage) (string, error) {
	b, err := os.ReadFile(filepath.Join(root, s.File))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(b), s.Old); n != 1 {
		return "", fmt.Errorf("its place occurs %d times in %s", n, s.File)
	}
	text := strings.Replace(string(b), s.Old, s.New, 1)
	if s.Also[0] != "" && strings.Count(text, s.Also[0]) != 1 {
		return "", fmt.Errorf("its second place occurs %d times in %s", strings.Count(text, s.Also[0]), s.File)
	}
	return strings.Replace(text, s.Also[0], s.Also[1], 1), nil
}

func run(t *testing.T, s Sabotage) (string, error) {
	text, err := patched(s)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "sabotaged.go")
	abs, err := filepath.Abs(filepath.Join(root, s.File))
	if err != nil {
		t.Fatal(err)
	}
	overlay, _ := json.Marshal(map[string]map[string]string{"Replace": {abs: file}})
	for name, b := range map[string][]byte{file: []byte(text), filepath.Join(dir, "overlay.json"): overlay} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	args := []string{"test", "-count=1", "-failfast", "-vet=off", "-timeout=150s", "-overlay=" + filepath.Join(dir, "overlay.json"), "-run=" + s.Run}
	if s.Hygiene != "" && os.Getenv("FRESHET_TEETH_LONG") == "" {
		args = append(args, "-short") // that nothing notices takes as long as the tests do; the reason is in words
	}
	cmd := exec.CommandContext(ctx, "go", append(args, s.Pkg)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// verdict is the first line after the failing test's name.
func verdict(out string) string {
	lines := strings.Split(out, "\n")
	for i, l := range lines {
		if strings.Contains(l, "_test.go:") && i > 0 {
			return strings.TrimSpace(l)
		}
	}
	return "failed"
}

func tail(out string) string {
	if len(out) > 4000 {
		return out[len(out)-4000:]
	}
	return out
}
