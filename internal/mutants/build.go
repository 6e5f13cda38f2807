package mutants

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// overlay collects changed and added files for go build -overlay.
type overlay struct {
	root, dir string            // of the module, and for the changed files
	replace   map[string]string // by the path that is replaced
}

func newOverlay(root, dir string) (*overlay, error) {
	abs, err := filepath.Abs(root)
	return &overlay{abs, dir, map[string]string{}}, err
}

// put has the build find text at path, below the root.
func (o *overlay) put(path, text string) error {
	file := filepath.Join(o.dir, fmt.Sprintf("%d%s", len(o.replace), filepath.Ext(path)))
	o.replace[filepath.Join(o.root, path)] = file
	return os.WriteFile(file, []byte(text), 0o600)
}

// build makes the test binary of a package.
func (o *overlay) build(ctx context.Context, test string) (string, error) {
	b, err := json.Marshal(map[string]any{"Replace": o.replace})
	if err != nil {
		return "", err
	}
	file, binary := filepath.Join(o.dir, "overlay.json"), filepath.Join(o.dir, "mutants.test")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay="+file, "-o", binary, test)
	cmd.Dir = o.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s with mutants does not build (%w):\n%s", test, err, o.named(string(out)))
	}
	return binary, nil
}

// named puts the paths of the originals into what the compiler says.
func (o *overlay) named(out string) string {
	for _, path := range slices.Sorted(maps.Keys(o.replace)) {
		rel, _ := filepath.Rel(o.root, path)
		out = strings.ReplaceAll(out, o.replace[path], rel)
	}
	return out
}

// sources are the Go files of a package that are not tests.
func sources(root, dir string) (out []*source, err error) {
	paths, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		s, err := parse(filepath.ToSlash(filepath.Join(dir, filepath.Base(path))), string(text))
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// Together makes one binary of a package's tests with several mutants, which are numbered
// from 1 on in their order. None of them may need a binary of its own.
func Together(ctx context.Context, root, dir, test string, list []Mutant) (string, error) {
	o, err := newOverlay(root, dir)
	if err != nil {
		return "", err
	}
	by := map[string][]int{}
	for i, m := range list {
		by[m.Dir] = append(by[m.Dir], i)
	}
	for _, pkg := range slices.Sorted(maps.Keys(by)) {
		files, err := sources(root, pkg)
		if err != nil {
			return "", err
		}
		changed := map[*source][]variant{}
		for _, i := range by[pkg] {
			for s, v := range list[i].variants(files, i+1, &err) {
				changed[s] = append(changed[s], v...)
			}
			if err != nil {
				return "", err
			}
		}
		for _, s := range files {
			if len(changed[s]) > 0 {
				err = o.put(s.path, s.render(changed[s]))
			}
			if err != nil {
				return "", err
			}
		}
		if err := o.put(pkg+"/active_mutant.go", switchFile(files[0].file.Name.Name)); err != nil {
			return "", err
		}
	}
	return o.build(ctx, test)
}

// variants are the functions that m changes, by file.
func (m Mutant) variants(files []*source, number int, err *error) map[*source][]variant {
	out := map[*source][]variant{}
	changes, owner := map[*ast.FuncDecl][]change{}, map[*ast.FuncDecl]*source{}
	for _, p := range m.Patches {
		s, d, e := function(files, p.Func)
		var c change
		if e == nil {
			c, e = p.place(s.body(d), true)
		}
		if e != nil {
			*err = fmt.Errorf("%s/mutants.txt:%d: %s: %w", m.Dir, m.line, m.Name, e)
			return nil
		}
		changes[d], owner[d] = append(changes[d], c), s
	}
	for d, all := range changes {
		out[owner[d]] = append(out[owner[d]], variant{number, d, changed(owner[d].body(d), all)})
	}
	return out
}

// Single makes a binary of the tests of m's package with m alone.
func Single(ctx context.Context, root, dir string, m Mutant) (string, error) {
	o, err := newOverlay(root, dir)
	if err != nil {
		return "", err
	}
	texts, err := m.files(root)
	if err != nil {
		return "", err
	}
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		if err := o.put(path, texts[path]); err != nil {
			return "", err
		}
	}
	return o.build(ctx, m.Test)
}

// files are the texts of all files that m changes.
func (m Mutant) files(root string) (map[string]string, error) {
	texts, changes := map[string]string{}, map[string][]change{}
	for _, p := range m.Patches {
		path := m.Dir + "/" + p.File
		if p.Func != "" {
			return nil, fmt.Errorf("%s/mutants.txt:%d: %s: say file: for every part of a mutant that is built alone", m.Dir, m.line, m.Name)
		}
		if _, ok := texts[path]; !ok {
			b, err := os.ReadFile(filepath.Join(root, path))
			if err != nil {
				return nil, err
			}
			texts[path] = string(b)
		}
		c, err := p.place(texts[path], strings.HasSuffix(path, ".go"))
		if err != nil {
			return nil, fmt.Errorf("%s/mutants.txt:%d: %s: %w", m.Dir, m.line, m.Name, err)
		}
		changes[path] = append(changes[path], c)
	}
	for path, all := range changes {
		texts[path] = changed(texts[path], all)
	}
	return texts, nil
}

// Check reports whether every part of m still has its place.
func (m Mutant) Check(root string) error {
	if m.Alone() {
		_, err := m.files(root)
		return err
	}
	files, err := sources(root, m.Dir)
	if err == nil {
		m.variants(files, 1, &err)
	}
	return err
}
