package tidy

import (
	"go/ast"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// layered are packages whose files stand in layers: a file may use what another declares, and
// then that one uses nothing of the first, not even by way of others. Who reads such a package
// can begin at one end.
var layered = []string{"bench/kit", "bench/linear", "bench/causal", "bench/causalbase", "bench/baseline", "node", "node/promise", "node/causalspace",
	"redis", "redis/tracking", "resp", "track", "peer", "shard", "check", "linear/layered", "store/memory"}

func TestFilesStandInLayers(t *testing.T) {
	all := files(t)
	for _, dir := range layered {
		arrows := arrowsOf(all, dir)
		if len(arrows) == 0 {
			t.Errorf("%s: no file uses another; is there such a package?", dir)
		}
		for _, circle := range circles(arrows) {
			var uses []string
			for _, from := range circle {
				for _, to := range slices.Sorted(maps.Keys(arrows[from])) {
					if slices.Contains(circle, to) {
						uses = append(uses, from+" uses "+arrows[from][to]+" of "+to)
					}
				}
			}
			t.Errorf("%s: files use each other in a circle:\n\t%s", dir, strings.Join(uses, "\n\t"))
		}
	}
}

// arrowsOf says for each file of a package which others it uses, each with a name as an
// example. Names are those declared at the top of a file, and methods and fields of which the
// package has only one by that name: others would need types to be told apart.
func arrowsOf(all []file, dir string) map[string]map[string]string {
	tops, members := map[string]string{}, map[string][]string{}
	for _, f := range all {
		if f.dir == dir && !f.test {
			declared(f, tops, members)
		}
	}
	arrows := map[string]map[string]string{}
	for _, f := range all {
		if f.dir != dir || f.test {
			continue
		}
		from := filepath.Base(f.path)
		use := func(to, name string) {
			if to != "" && to != from {
				if arrows[from] == nil {
					arrows[from] = map[string]string{}
				}
				arrows[from][to] = name
			}
		}
		keys := map[*ast.Ident]bool{}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr: // most are fields
				if id, ok := n.Key.(*ast.Ident); ok {
					keys[id] = true
				}
			case *ast.SelectorExpr:
				if at := members[n.Sel.Name]; len(at) == 1 && !n.Sel.IsExported() {
					use(at[0], n.Sel.Name)
				}
			}
			return true
		})
		for _, id := range f.ast.Unresolved {
			if !keys[id] {
				use(tops[id.Name], id.Name)
			}
		}
	}
	return arrows
}

// declared adds what a file declares: names at its top, and methods and fields.
func declared(f file, tops map[string]string, members map[string][]string) {
	base := filepath.Base(f.path)
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				tops[d.Name.Name] = base
			} else {
				members[d.Name.Name] = append(members[d.Name.Name], base)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					tops[s.Name.Name] = base
				case *ast.ValueSpec:
					for _, n := range s.Names {
						tops[n.Name] = base
					}
				}
			}
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		var list *ast.FieldList
		switch n := n.(type) {
		case *ast.StructType:
			list = n.Fields
		case *ast.InterfaceType:
			list = n.Methods
		default:
			return true
		}
		for _, field := range list.List {
			for _, name := range field.Names {
				members[name.Name] = append(members[name.Name], base)
			}
		}
		return true
	})
}

// circles are the groups of files that reach each other.
func circles(arrows map[string]map[string]string) (out [][]string) {
	reach := map[string]map[string]bool{}
	var walk func(from, at string)
	walk = func(from, at string) {
		for to := range arrows[at] {
			if !reach[from][to] {
				reach[from][to] = true
				walk(from, to)
			}
		}
	}
	for from := range arrows {
		reach[from] = map[string]bool{}
		walk(from, from)
	}
	seen := map[string]bool{}
	for _, from := range slices.Sorted(maps.Keys(arrows)) {
		if seen[from] || !reach[from][from] {
			continue
		}
		var circle []string
		for to := range reach[from] {
			if reach[to][from] {
				circle = append(circle, to)
				seen[to] = true
			}
		}
		slices.Sort(circle)
		out = append(out, circle)
	}
	return out
}

// A circle over three files is found, and a chain is none.
func TestCirclesAreFound(t *testing.T) {
	arrows := map[string]map[string]string{"a": {"b": "x"}, "b": {"c": "y"}, "c": {"a": "z", "d": "w"}, "e": {"a": "v"}}
	if got := circles(arrows); len(got) != 1 || strings.Join(got[0], " ") != "a b c" {
		t.Error(got)
	}
	delete(arrows, "c")
	if got := circles(arrows); len(got) != 0 {
		t.Error(got)
	}
}
