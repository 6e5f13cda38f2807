package tidy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/results/README.md has every report, with what it measures and how many of its goals
// are met.
func TestResultsAreListed(t *testing.T) {
	index, err := os.ReadFile(filepath.Join(root, "docs/results/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(root, "docs/results/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed := 0
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".md")
		if name == "README" {
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		met, missed := 0, 0
		for line := range strings.Lines(string(b)) {
			switch line = strings.TrimSpace(line); {
			case strings.HasSuffix(line, "| met |"):
				met++
			case strings.HasSuffix(line, "| not met |"):
				missed++
			}
		}
		goals := fmt.Sprintf("%d of %d", met, met+missed)
		if met+missed == 0 {
			goals = "no goal"
		}
		row := regexp.MustCompile(`(?m)^\| \[` + name + `\]\(` + name + `\.md\) \| [^|]+ \| ` + goals + ` \| [^|]* \| 20\d\d-\d\d-\d\d \|$`)
		if !row.Match(index) {
			t.Errorf("docs/results/README.md has no line of the form: | [%s](%s.md) | what it measures | %s | what is not met | date |", name, name, goals)
		}
		listed++
	}
	if n := strings.Count(string(index), ".md) |"); n != listed {
		t.Errorf("docs/results/README.md lists %d reports, and there are %d", n, listed)
	}
}

// The index of decisions has every page, by its title.
func TestDecisionsAreListed(t *testing.T) {
	index, err := os.ReadFile(filepath.Join(root, "docs/decisions/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(root, "docs/decisions/0*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		title, _, _ := strings.Cut(strings.TrimPrefix(string(b), "# "), "\n")
		if line := fmt.Sprintf("* [%s](%s)\n", title, filepath.Base(path)); !strings.Contains(string(index), line) {
			t.Errorf("docs/decisions/README.md has no line %s", line)
		}
	}
	if n := strings.Count(string(index), ".md)"); n != len(paths) {
		t.Errorf("docs/decisions/README.md lists %d pages, and there are %d", n, len(paths))
	}
}

// Links between the documents lead somewhere.
func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".md"):
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(string(b), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s links to %s, which there is not", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// What the documents tell to make, test and run is there: targets of the Makefile, tests,
// and flags of the command. Package blackbox runs what can be run.
func TestDocumentedTargetsExist(t *testing.T) {
	read := func(pattern string) (text string) {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, path := range paths {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text += string(b)
		}
		return text
	}
	makefile, command := read("Makefile"), read("cmd/freshet/*.go")
	target := regexp.MustCompile("(?m)(?:`|^)make ([a-z]+)")
	tested := regexp.MustCompile(`go test (?:-run '?([A-Za-z]+)[^ ]* )?(?:-v )?(\./[a-z/]+[a-z])`)
	flag := regexp.MustCompile(`(?m)go run \./cmd/freshet [^#\n]*`)
	for _, page := range []string{"README.md", "CONTRIBUTING.md", "docs/start.md", "docs/papers.md", "docs/STYLE.md", "docs/ARCHITECTURE.md"} {
		text := read(page)
		for _, m := range target.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s says make %s, and the Makefile has no such target", page, m[1])
			}
		}
		for _, m := range tested.FindAllStringSubmatch(text, -1) {
			if tests := read(m[2] + "/*_test.go"); m[1] != "" && !strings.Contains(tests, m[1]) {
				t.Errorf("%s says %s, and there is no such test", page, m[0])
			}
		}
		for _, line := range flag.FindAllString(text, -1) {
			for _, word := range strings.Fields(line) {
				if name, ok := strings.CutPrefix(word, "--"); ok && !strings.Contains(command, `"`+name+`"`) {
					t.Errorf("%s says %s, and there is no flag %s", page, line, word)
				}
			}
		}
	}
}

// What the glossary says is in the code is there.
func TestGlossaryNamesWhatIsThere(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docs/glossary.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := 0
	for _, m := range regexp.MustCompile("`([a-z]+)\\.([A-Z][A-Za-z]*)").FindAllStringSubmatch(string(b), -1) {
		names++
		declared := regexp.MustCompile(`(?m)^((type|func|var|const) |\t)` + m[2] + `\b`)
		found := false
		for _, f := range files(t) {
			found = found || !f.test && filepath.Base(f.dir) == m[1] && declared.MatchString(f.text)
		}
		if !found {
			t.Errorf("docs/glossary.md names %s.%s, and no package %s declares it", m[1], m[2], m[1])
		}
	}
	if names < 10 {
		t.Errorf("only %d names are found", names)
	}
}
