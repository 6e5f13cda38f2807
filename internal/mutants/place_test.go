package mutants

import (
	"go/format"
	"strings"
	"testing"
)

const before = `package p

// A set.
type set[K comparable] map[K]int

func (s *set[K]) add(_ int, keys ...K) (n int) {
	for _, k := range keys { // each
		(*s)[k]++
		n++
	}
	return n
}

func (set[K]) size(int) {}

func pick[K comparable](a, b K) K { return a }
`

// A changed function stays where it was and calls its copies; a patch does not mind
// comments, indentation and lines.
func TestRender(t *testing.T) {
	list, err := Parse("p", `# comment
mutant: one
test: ./p TestP
fails: x
in: set.add
-	(*s)[k]++   n++
+	n++
mutant: two
test: ./p TestP
survives: because
in: set.add
 	for _, k := range
-	keys {
+	keys[1:] {
in: pick
-	return a
+	return b
mutant: three
test: ./p TestP
fails: x
in: set.size
 {
+	panic("never")
 }
`)
	if err != nil {
		t.Fatal(err)
	}
	s, err := parse("p.go", before)
	if err != nil {
		t.Fatal(err)
	}
	var all []variant
	for i, m := range list {
		all = append(all, m.variants([]*source{s}, i+1, &err)[s]...)
	}
	if err != nil {
		t.Fatal(err)
	}
	text := s.render(all)
	if _, err := format.Source([]byte(text)); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	for _, want := range []string{
		"func (s *set[K]) add(parameter0 int, keys ...K) (n int) { switch activeMutant { case 1: return s.addMutant1(parameter0, keys...); case 2: return s.addMutant2(parameter0, keys...); };\n",
		"func (receiver0 set[K]) size(parameter0 int) { switch activeMutant { case 3: receiver0.sizeMutant3(parameter0); return; };}",
		"func pick[K comparable](a, b K) K { switch activeMutant { case 2: return pickMutant2[K](a, b); }; return a }",
		"func (s *set[K]) addMutant1(_ int, keys ...K) (n int) {\n\tfor _, k := range keys { // each\n\t\tn++\n\t}",
		"keys[1:] {", "pickMutant2[K comparable](a, b K) K { return b }", `panic("never")`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if at := strings.Index(text, "\nfunc (s *set[K]) addMutant1"); strings.Count(text[:at], "\n") != strings.Count(before, "\n") {
		t.Error("lines of the original have moved")
	}
}

// What cannot be read or placed is refused with its line.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"test: ./p TestP\n":                                "mutants.txt:1: a mutant begins with its name",
		"mutant: a\n\ntest: ./p\n":                         "mutants.txt:3: a test is a package and a pattern",
		"mutant: a\nin: f\n-x\nfails: y\n":                 `"a" names no test`,
		"mutant: a\ntest: ./p T\nin: f\n-x\n":              "needs either what the failing test says",
		"mutant: a\ntest: ./p T\nfails: y\n":               "changes nothing",
		"mutant: a\ntest: ./p T\nfails: (\nin: f\n-x\n":    "mutants.txt:3: error parsing regexp",
		"mutant: a\ntest: ./p T\nfails: y\n-x\n":           "a patch begins with in: or file",
		"mutant: a\ntest: ./p T\nfails: y\nwhere: f\n-x\n": `nothing is known of "where"`,
	} {
		if _, err := Parse("p", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for old, want := range map[string]string{"n++": "occurs 1 times", "nowhere": "occurs 0 times", "(": "occurs 7 times", "// each": "occurs 0 times"} {
		if _, _, err := find(before, old, true); want == "occurs 1 times" && err != nil || want != "occurs 1 times" && (err == nil || !strings.Contains(err.Error(), "occurs")) {
			t.Errorf("%q: %v", old, err)
		}
	}
	if from, to, err := find("SELECT 1\n   FROM t\n  WHERE x\n", "FROM t\nWHERE x", false); err != nil || from != 12 || to != 28 {
		t.Errorf("lines from %d to %d, %v", from, to, err)
	}
}
