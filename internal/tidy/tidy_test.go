package tidy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/freshet-cache/freshet"

	maxFunc     = 70
	maxFile     = 500
	maxProtocol = 1420 // lines of code, without comments
)

// larger are the protocols that need more lines, by how many: causal/mesh is the ring,
// its changes, sessions and their encodings, and transactions, which share all of it;
// shard/lease is two machines; linear/clink tells callers besides why what they read is
// not kept.
var larger = map[string]int{"causal/mesh": 1000, "shard/lease": 100, "linear/clink": 4}

// file is one Go file of the repository.
type file struct {
	path, dir string
	text      string
	test      bool
	ast       *ast.File
	fset      *token.FileSet
}

func files(t *testing.T) (out []file) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && rel != "." || d.Name() == "testdata" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, rel, b, parser.ParseComments)
		if err != nil {
			return err
		}
		out = append(out, file{rel, filepath.ToSlash(filepath.Dir(rel)), string(b), strings.HasSuffix(rel, "_test.go"), f, fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// protocols are the machines, and the tests of every other package's kind.
var protocols = []string{"causal/mesh", "eventual/fanout", "eventual/fanout/tier", "feed", "member/view", "linear/clink", "linear/crossowner", "linear/replica", "shard/lease"}

// may says what a package of this module may import of it. A package that is not
// listed may import anything: node, cmd, examples and tests are wiring.
var may = map[string][]string{
	"ticks":                  {},
	"clock":                  {"ticks"},
	"codec":                  {},
	"leader":                 {"ticks", "internal/drive"},
	"leader/embedded":        {"leader", "internal/durable"},
	"leader/etcd":            {"leader", "clock", "ticks", "internal/drive"},
	"member":                 {"member/view", "leader", "clock", "ticks", "internal/drive"},
	"member/view":            {"ticks", "internal/packed"},
	"shard":                  {"shard/lease", "leader", "clock", "ticks"},
	"shard/lease":            {"ticks"},
	"link":                   {},
	"peer":                   {"link", "resp", "internal/drive", "internal/packed"},
	"node/promise":           {"clock", "leader", "peer", "resp"},
	"node/causalspace":       {"node/promise", "causal", "causal/mesh", "codec", "link", "member", "member/view", "peer", "resp", "store/memory", "store/pebble", "store/postgres", "ticks"},
	"linear":                 {"codec", "linear/clink", "linear/crossowner", "linear/replica", "shard", "shard/lease", "clock", "ticks", "store", "internal/drive", "internal/packed"},
	"linear/clink":           {"shard/lease", "ticks"},
	"linear/crossowner":      {},
	"linear/replica":         {"shard/lease", "ticks"},
	"linear/layered":         {"linear"},
	"causal":                 {"causal/dot", "causal/mesh", "causal/wire", "codec", "member", "member/view", "clock", "store", "store/journal", "internal/drive"},
	"causal/dot":             {"internal/packed"},
	"causal/mesh":            {"causal/dot"},
	"causal/wire":            {"causal/dot", "causal/mesh", "internal/packed"},
	"eventual/fanout":        {"eventual/fanout/names", "eventual/wire", "feed", "ticks"},
	"eventual/fanout/names":  {},
	"eventual/fanout/tier":   {"ticks"},
	"eventual/wire":          {"internal/packed"},
	"feed":                   {},
	"store":                  {},
	"store/tablet":           {"store"},
	"store/journal":          {},
	"store/memory":           {"store", "store/tablet", "store/journal"},
	"store/pebble":           {"store", "store/tablet", "store/journal", "internal/durable"},
	"store/postgres":         {"store", "store/journal"},
	"store/mysql":            {"store"},
	"store/etcd":             {"store"},
	"store/storetest":        {"store", "store/journal"},
	"resp":                   {},
	"redis":                  {"linear", "resp"},
	"redis/tracking":         {"clock", "internal/drive", "internal/packed", "link", "peer", "resp", "shard", "shard/lease", "ticks", "track"},
	"track":                  {},
	"check":                  {},
	"sim":                    {"causal/mesh", "causal/wire", "eventual/fanout", "eventual/wire", "linear/clink", "linear/crossowner", "linear/replica", "shard/lease", "ticks", "check"},
	"sim/explore":            {"causal/mesh", "eventual/fanout", "eventual/fanout/tier", "linear/clink", "linear/replica", "shard/lease", "ticks", "sim", "check"},
	"internal/durable":       {},
	"internal/packed":        {},
	"internal/testkit":       {},
	"internal/drive":         {},
	"internal/etcdserver":    {},
	"internal/mariadbserver": {},
	"internal/pgserver":      {},
	"internal/eventlog":      {},
	"internal/follower":      {"resp"},
	"bench":                  {"bench/causal", "bench/kit", "bench/linear"},
	"bench/kit":              {"check", "internal/pgserver", "resp"},
	"bench/kit/kittest":      {"bench/kit", "internal/pgserver", "node"},
	"bench/linear":           {"bench/baseline", "bench/kit", "check", "internal/follower", "internal/pgserver", "linear", "linear/clink", "store", "store/memory", "store/pebble", "store/postgres"},
	"bench/baseline":         {"linear"},
	"bench/causal":           {"bench/causalbase", "bench/kit", "check"},
	"bench/causalbase":       {"causal", "check", "codec", "link", "store/journal", "store/memory"},
}

// wiring may import anything.
var wiring = []string{"node", "cmd/freshet", "blackbox", "examples", "internal/tidy", "internal/mutants", "."}

func TestImports(t *testing.T) {
	for _, f := range files(t) {
		allowed, listed := may[f.dir]
		if !listed && !slices.ContainsFunc(wiring, func(w string) bool { return f.dir == w || strings.HasPrefix(f.dir, w+"/") && w != "." }) {
			t.Errorf("%s: package %s is in no table; say in internal/tidy what it may import", f.path, f.dir)
		}
		for _, im := range f.ast.Imports {
			path := strings.Trim(im.Path.Value, `"`)
			switch inside, ours := strings.CutPrefix(path, module+"/"); {
			case slices.Contains(protocols, f.dir) && !f.test && !ours && !pure(path):
				t.Errorf("%s: a protocol does no I/O and has no clock, lock, chance or dependency, but imports %s", f.path, path)
			case !ours || !listed || f.test:
			case !slices.Contains(allowed, inside):
				t.Errorf("%s: %s may not import %s", f.path, f.dir, inside)
			}
		}
	}
}

// pure are the parts of the standard library a machine may use.
func pure(path string) bool {
	return slices.Contains([]string{"cmp", "encoding/binary", "errors", "fmt", "maps", "math", "slices", "sort", "strconv", "strings", "bytes"}, path)
}

func TestMachinesAreDeterministic(t *testing.T) {
	for _, f := range files(t) {
		if !slices.Contains(protocols, f.dir) || f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType, *ast.SendStmt:
				t.Errorf("%s: a machine has no goroutines and no channels", f.fset.Position(n.Pos()))
			}
			return true
		})
	}
}

func TestSizes(t *testing.T) {
	code := map[string]int{}
	for _, f := range files(t) {
		if n := strings.Count(f.text, "\n"); n > maxFile {
			t.Errorf("%s has %d lines, more than %d", f.path, n, maxFile)
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				if n := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1; n > maxFunc {
					t.Errorf("%s: %s has %d lines, more than %d", f.fset.Position(fn.Pos()), fn.Name.Name, n, maxFunc)
				}
			}
		}
		for l := range strings.Lines(f.text) {
			if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "//") && !f.test {
				code[f.dir]++
			}
		}
	}
	for _, p := range protocols {
		if most := maxProtocol + larger[p]; code[p] > most {
			t.Errorf("%s has %d lines of code, more than %d", p, code[p], most)
		}
	}
}

func TestEverythingExportedIsDocumented(t *testing.T) {
	packages := map[string]bool{}
	for _, f := range files(t) {
		if f.test {
			continue
		}
		packages[f.dir] = packages[f.dir] || f.ast.Doc != nil
		for _, d := range f.ast.Decls {
			for _, name := range undocumented(d) {
				t.Errorf("%s: %s has no comment that says what it promises", f.fset.Position(d.Pos()), name)
			}
		}
	}
	for dir, ok := range packages {
		if !ok {
			t.Errorf("package %s has no comment; its first sentence says what may be relied on", dir)
		}
	}
}

func undocumented(d ast.Decl) (out []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		marker := d.Recv != nil && (len(d.Body.List) == 0 || !ast.IsExported(receiver(d)))
		if d.Name.IsExported() && d.Doc == nil && !marker && !slices.Contains([]string{"Len", "Less", "Swap", "Push", "Pop", "String", "Error"}, d.Name.Name) {
			out = append(out, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
					out = append(out, s.Name.Name)
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if n.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
						out = append(out, n.Name)
					}
				}
			}
		}
	}
	return out
}

func receiver(d *ast.FuncDecl) string {
	e := d.Recv.List[0].Type
	if s, ok := e.(*ast.StarExpr); ok {
		e = s.X
	}
	switch x := e.(type) {
	case *ast.IndexExpr:
		e = x.X
	case *ast.IndexListExpr:
		e = x.X
	}
	if id, ok := e.(*ast.Ident); ok {
		return id.Name
	}
	return fmt.Sprint(e)
}

// Every numbered rule of a protocol's doc.go says what goes wrong without it, and is cited
// where it is kept, and in DESIGN.md beside it, where a reader finds its story and its mutant.
func TestRulesAreCited(t *testing.T) {
	rule := regexp.MustCompile(`^//\t([A-Z]\d+)\. `)
	all := files(t)
	for _, p := range protocols {
		design, err := os.ReadFile(filepath.Join(root, p, "DESIGN.md"))
		if err != nil {
			t.Error(err)
		}
		var doc, code string
		for _, f := range all {
			switch {
			case f.dir != p || f.test:
			case strings.HasSuffix(f.path, "/doc.go"):
				doc = f.text
			default:
				code += f.text
			}
		}
		rules := 0
		for text := range strings.SplitSeq(doc, "\n//\n") {
			r := rule.FindStringSubmatch(text)
			if r == nil {
				continue
			}
			rules++
			if !strings.Contains(strings.ReplaceAll(text, "\n//\t", " "), " Why: ") {
				t.Errorf("%s/doc.go: rule %s does not say, after Why:, what goes wrong without it", p, r[1])
			}
			cited := regexp.MustCompile(`\b` + r[1] + `\b`)
			if !cited.MatchString(code) {
				t.Errorf("%s: rule %s is cited nowhere in the code", p, r[1])
			}
			if !cited.Match(design) {
				t.Errorf("%s/DESIGN.md does not mention rule %s", p, r[1])
			}
		}
		if rules == 0 {
			t.Errorf("%s/doc.go numbers no rules", p)
		}
	}
}

// Nothing is left for later, tests wait for conditions and not for time, and no
// file names the machine it was written on.
func TestNothingIsLeft(t *testing.T) {
	words := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	machine := regexp.MustCompile(`/wo` + `rk/|/ro` + `ot/|/ho` + `me/`)
	for _, f := range files(t) {
		if m := words.FindString(f.text); m != "" {
			t.Errorf("%s says %s: do it, or open an issue", f.path, m)
		}
		if m := machine.FindString(f.text); m != "" {
			t.Errorf("%s names a path of somebody's machine: %s", f.path, m)
		}
		if f.test && strings.Contains(f.text, "time.Sl"+"eep(") && !strings.Contains(f.text, `"testing/synctest"`) {
			t.Errorf("%s sleeps; wait for a condition, or use virtual time", f.path)
		}
	}
}

// What the documents quote is what there is: the README's example. Package node compares
// the list of metrics, and internal/eventlog that of events.
func TestDocumentsTellTheTruth(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	readme, example := read("README.md"), read("example_test.go")
	_, quoted, _ := strings.Cut(readme, "```go\n")
	quoted, _, _ = strings.Cut(quoted, "```")
	for line := range strings.Lines(quoted) {
		if !strings.Contains(example, strings.TrimSpace(line)) {
			t.Errorf("README.md quotes %q, which is not in example_test.go", line)
		}
	}
}
