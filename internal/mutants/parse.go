package mutants

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// A Mutant is one change and what is known of it.
type Mutant struct {
	Name     string
	Dir      string // the package that is changed, below the root of the module
	Test     string // the package whose test notices
	Run      string // and the test, as go test -run takes it
	Fails    *regexp.Regexp
	Survives string
	Tries    int
	Patches  []Patch
	line     int
}

// A Patch replaces lines of a function or of a file.
type Patch struct {
	Func     string // as Name, or Type.Name; or
	File     string // a file of the package
	Old, New string
}

// Load reads the mutants.txt of every package below root.
func Load(root string) (out []Mutant, err error) {
	var errs []error
	seen := map[string]bool{}
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.Name() != "mutants.txt" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		list, err := Parse(filepath.ToSlash(dir), string(text))
		errs = append(errs, err)
		for _, m := range list {
			if seen[m.Name] {
				errs = append(errs, fmt.Errorf("%s/mutants.txt:%d: there is another mutant %q", dir, m.line, m.Name))
			}
			seen[m.Name] = true
		}
		out = append(out, list...)
		return nil
	})
	return out, errors.Join(append(errs, err)...)
}

// Parse reads the mutants of the package in dir.
func Parse(dir, text string) (out []Mutant, err error) {
	var errs []error
	fail := func(line int, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s/mutants.txt:%d: %s", dir, line, fmt.Sprintf(format, args...)))
	}
	for i, l := range strings.Split(text, "\n") {
		if strings.TrimSpace(l) == "" || l[0] == '#' {
			continue
		}
		key, value, _ := strings.Cut(l, ":")
		value = strings.TrimSpace(value)
		if key == "mutant" {
			out = append(out, Mutant{Name: value, Dir: dir, Tries: 1, line: i + 1})
			continue
		}
		if len(out) == 0 {
			fail(i+1, "a mutant begins with its name")
			continue
		}
		if err := out[len(out)-1].take(l, key, value); err != nil {
			fail(i+1, "%v", err)
		}
	}
	for _, m := range out {
		switch {
		case m.Test == "" || m.Run == "":
			fail(m.line, "%q names no test", m.Name)
		case (m.Fails == nil) == (m.Survives == ""):
			fail(m.line, "%q needs either what the failing test says or why none fails", m.Name)
		case len(m.Patches) == 0:
			fail(m.line, "%q changes nothing", m.Name)
		}
	}
	return out, errors.Join(errs...)
}

// take adds a line to the mutant.
func (m *Mutant) take(line, key, value string) (err error) {
	switch line[0] {
	case '-', '+', ' ', '\t':
		if len(m.Patches) == 0 {
			return errors.New("a patch begins with in: or file")
		}
		p := &m.Patches[len(m.Patches)-1]
		if line[0] != '+' {
			p.Old += line[1:] + "\n"
		}
		if line[0] != '-' {
			p.New += line[1:] + "\n"
		}
		return nil
	}
	switch key {
	case "test":
		var ok bool
		if m.Test, m.Run, ok = strings.Cut(value, " "); !ok {
			return errors.New("a test is a package and a pattern")
		}
	case "fails":
		m.Fails, err = regexp.Compile(value)
	case "survives":
		m.Survives = value
	case "tries":
		m.Tries, err = strconv.Atoi(value)
	case "in":
		m.Patches = append(m.Patches, Patch{Func: value})
	case "file":
		m.Patches = append(m.Patches, Patch{File: value})
	default:
		return fmt.Errorf("nothing is known of %q", key)
	}
	return err
}

// Alone reports whether the mutant needs a binary of its own.
func (m Mutant) Alone() bool {
	for _, p := range m.Patches {
		if p.File != "" {
			return true
		}
	}
	return false
}
