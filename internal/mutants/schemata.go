package mutants

import (
	"fmt"
	"go/ast"
	"strings"
)

// active is the variable that says which mutant runs. Every changed package has one.
const active = "activeMutant"

// switchFile declares it.
func switchFile(pkg string) string {
	return "package " + pkg + "\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar " + active + ", _ = strconv.Atoi(os.Getenv(\"FRESHET_MUTANT\"))\n"
}

// variant is a function as one mutant has it.
type variant struct {
	number int
	decl   *ast.FuncDecl
	body   string
}

// render is the file with all variants: each changed function begins with a switch that
// calls its copy for the active mutant. No line of the original moves.
func (s *source) render(variants []variant) string {
	var edits []change
	var copies strings.Builder
	by := map[*ast.FuncDecl][]variant{}
	var order []*ast.FuncDecl
	for _, v := range variants {
		if by[v.decl] == nil {
			order = append(order, v.decl)
		}
		by[v.decl] = append(by[v.decl], v)
	}
	for _, d := range order {
		var cases strings.Builder
		fmt.Fprintf(&cases, "{ switch %s {", active)
		call, rename := s.call(d)
		for at, text := range rename {
			edits = append(edits, change{at[0], at[1], text})
		}
		for _, v := range by[d] {
			copied := fmt.Sprintf("%sMutant%d", d.Name.Name, v.number)
			if d.Type.Results == nil {
				fmt.Fprintf(&cases, " case %d: %s; return;", v.number, fmt.Sprintf(call, copied))
			} else {
				fmt.Fprintf(&cases, " case %d: return %s;", v.number, fmt.Sprintf(call, copied))
			}
			fmt.Fprintf(&copies, "\n%s%s%s%s\n", s.slice(d.Pos(), d.Name.Pos()), copied, s.slice(d.Name.End(), d.Body.Pos()), v.body)
		}
		cases.WriteString(" };")
		at := s.offset(d.Body.Lbrace)
		edits = append(edits, change{at, at + 1, cases.String()})
	}
	return changed(s.text, edits) + copies.String()
}

// call is how d calls a copy of itself, as a format of the copy's name, and which
// parameters must get a name for that.
func (s *source) call(d *ast.FuncDecl) (format string, rename map[[2]int]string) {
	rename = map[[2]int]string{}
	names := func(list *ast.FieldList, prefix string) (out []string) {
		if list == nil {
			return nil
		}
		for _, f := range list.List {
			more := ""
			if _, ok := f.Type.(*ast.Ellipsis); ok {
				more = "..."
			}
			if len(f.Names) == 0 {
				n := fmt.Sprintf("%s%d", prefix, len(out))
				rename[[2]int{s.offset(f.Type.Pos()), s.offset(f.Type.Pos())}] = n + " "
				out = append(out, n+more)
			}
			for _, id := range f.Names {
				n := id.Name
				if n == "_" {
					n = fmt.Sprintf("%s%d", prefix, len(out))
					rename[[2]int{s.offset(id.Pos()), s.offset(id.End())}] = n
				}
				out = append(out, n+more)
			}
		}
		return out
	}
	if recv := names(d.Recv, "receiver"); len(recv) > 0 {
		format = recv[0] + "."
	}
	format += "%s"
	if types := names(d.Type.TypeParams, "T"); len(types) > 0 {
		format += "[" + strings.Join(types, ", ") + "]"
	}
	return format + "(" + strings.Join(names(d.Type.Params, "parameter"), ", ") + ")", rename
}
