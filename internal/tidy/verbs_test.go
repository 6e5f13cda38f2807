package tidy

import (
	"go/ast"
	"slices"
	"testing"
)

// promises are the packages whose methods applications call. One that does not exist yet is here
// too, so that it agrees from its first day.
var promises = []string{"linear", "linear/layered", "causal", "eventual", "graph", "txn", "shard", "member"}

// verbs are the words with which no method of a promise begins, and the verb that every promise has
// for it. The protocols and the stores keep the words of their papers.
var verbs = map[string]string{
	"put": "Set", "write": "Set", "insert": "Set", "upsert": "Set", "store": "Set", "save": "Set",
	"fetch": "Get", "read": "Get", "lookup": "Get", "find": "Get",
	"remove": "Delete", "erase": "Delete", "del": "Delete", "unset": "Delete",
	"modify": "Update", "mutate": "Update", "change": "Update",
	"shutdown": "Close", "stop": "Close", "destroy": "Close", "terminate": "Close",
}

func TestOneVerbForOneMeaning(t *testing.T) {
	for _, f := range files(t) {
		if f.test || !slices.Contains(promises, f.dir) {
			continue
		}
		for _, d := range f.ast.Decls {
			m, ok := d.(*ast.FuncDecl)
			if !ok || m.Recv == nil || !m.Name.IsExported() || !ast.IsExported(receiver(m)) {
				continue
			}
			if verb := verbs[camel(m.Name.Name)[0]]; verb != "" {
				t.Errorf("%s: %s; the verb of every promise is %s", f.fset.Position(m.Pos()), m.Name.Name, verb)
			}
		}
	}
}
