package mutants

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// A listed package is what go list says of one. The packages of the tests themselves are
// listed with their test files among GoFiles.
type listed struct {
	Dir                 string
	GoFiles, EmbedFiles []string
	Module              *struct{ Main bool }
}

// Depends is a hash of what the tests of a package depend on beside mutants.
func Depends(ctx context.Context, root, test string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-test", "-json=Dir,GoFiles,EmbedFiles,Module", test)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go list %s: %w", test, err)
	}
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	add := func(path string) error {
		b, err := os.ReadFile(path)
		if err == nil {
			fmt.Fprintf(h, "%q %x\n", filepath.Base(path), sha256.Sum256(b))
		}
		return err
	}
	errs := []error{add(filepath.Join(root, "go.mod")), add(filepath.Join(root, "go.sum"))}
	own, err := filepath.Glob(filepath.Join(root, "internal/mutants/*.go")) // another way to judge gives other verdicts
	errs = append(errs, err)
	for _, path := range own {
		errs = append(errs, add(path))
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return "", err
		}
		if p.Module == nil || !p.Module.Main {
			continue
		}
		for _, list := range [][]string{p.GoFiles, p.EmbedFiles} {
			for _, f := range list {
				if !filepath.IsAbs(f) { // else it is the generated main of a test
					errs = append(errs, add(filepath.Join(p.Dir, f)))
				}
			}
		}
	}
	errs = append(errs, filepath.WalkDir(filepath.Join(root, test, "testdata"), func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		return add(path)
	}))
	return hex.EncodeToString(h.Sum(nil)), errors.Join(errs...)
}

// Key names the verdict on m, whose test depends on what has this hash.
func (m Mutant) Key(depends string) string {
	h := sha256.New()
	fails := ""
	if m.Fails != nil {
		fails = m.Fails.String()
	}
	fmt.Fprintf(h, "%q %q %q %q %q %q %q %d\n", depends, m.Dir, m.Name, m.Test, m.Run, fails, m.Survives, m.Tries)
	for _, p := range m.Patches {
		fmt.Fprintf(h, "%q %q %q %q\n", p.Func, p.File, p.Old, p.New)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Verdicts remembers which mutants were as expected, in small files that may be deleted.
type Verdicts struct{ dir string }

// keepVerdicts is for how long a verdict is kept that nobody asks for.
const keepVerdicts = 30 * 24 * time.Hour

// OpenVerdicts uses a directory, which it makes, and removes what is old there.
func OpenVerdicts(dir string) (*Verdicts, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	all, err := os.ReadDir(dir)
	for _, e := range all {
		if info, e2 := e.Info(); e2 == nil && time.Since(info.ModTime()) > keepVerdicts {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return &Verdicts{dir}, err
}

// Get is what was said of the mutant with this key.
func (v *Verdicts) Get(key string) (string, bool) {
	path := filepath.Join(v.dir, key)
	b, err := os.ReadFile(path)
	if err == nil {
		_ = os.Chtimes(path, time.Time{}, time.Now()) // it is not old yet; if that fails, it is found out anew one day
	}
	return string(b), err == nil
}

// Put remembers it.
func (v *Verdicts) Put(key, said string) error {
	return os.WriteFile(filepath.Join(v.dir, key), []byte(said), 0o600)
}
