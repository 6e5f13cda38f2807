package mutants

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"slices"
	"strings"
)

// word is a token and where it stands.
type word struct {
	text     string
	from, to int
}

// words are the tokens of Go code without comments and without the semicolons that only
// stand for ends of lines.
func words(code string) (out []word) {
	fs := token.NewFileSet()
	f := fs.AddFile("", fs.Base(), len(code))
	var s scanner.Scanner
	s.Init(f, []byte(code), func(token.Position, string) {}, 0)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return out
		}
		if tok == token.SEMICOLON && text == "\n" {
			continue
		}
		if text == "" {
			text = tok.String()
		}
		at := f.Offset(pos)
		out = append(out, word{text, at, at + len(text)})
	}
}

// lines are the lines of text that is not Go, without their indentation.
func lines(text string) (out []word) {
	at := 0
	for l := range strings.Lines(text) {
		if t := strings.TrimSpace(l); t != "" {
			from := at + strings.Index(l, t)
			out = append(out, word{t, from, from + len(t)})
		}
		at += len(l)
	}
	return out
}

// find returns where old occurs in text, which must be once. In Go code it looks for the
// tokens, and for the lines if there are none: a line may be a part of a long string.
func find(text, old string, code bool) (from, to int, err error) {
	if code {
		if from, to, err = occurs(words(text), words(old)); err == nil {
			return from, to, nil
		}
	}
	return occurs(lines(text), lines(old))
}

func occurs(have, want []word) (from, to int, err error) {
	if len(want) == 0 {
		return 0, 0, fmt.Errorf("no line says where the change belongs")
	}
	n := 0
	for i := range have {
		if i+len(want) <= len(have) && slices.EqualFunc(have[i:i+len(want)], want, func(a, b word) bool { return a.text == b.text }) {
			from, to = have[i].from, have[i+len(want)-1].to
			n++
		}
	}
	if n != 1 {
		return 0, 0, fmt.Errorf("its place occurs %d times", n)
	}
	return from, to, nil
}

// source is a Go file.
type source struct {
	path string
	text string
	fset *token.FileSet
	file *ast.File
}

func parse(path, text string) (*source, error) {
	s := &source{path: path, text: text, fset: token.NewFileSet()}
	var err error
	s.file, err = parser.ParseFile(s.fset, path, text, parser.SkipObjectResolution)
	return s, err
}

func (s *source) offset(p token.Pos) int { return s.fset.Position(p).Offset }

func (s *source) slice(from, to token.Pos) string { return s.text[s.offset(from):s.offset(to)] }

// name is what a patch calls a function: Name, or Type.Name.
func name(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + d.Name.Name
		default:
			return d.Name.Name
		}
	}
}

// function finds a function in the files of a package.
func function(files []*source, called string) (s *source, d *ast.FuncDecl, err error) {
	for _, f := range files {
		for _, decl := range f.file.Decls {
			if fd, ok := decl.(*ast.FuncDecl); ok && fd.Body != nil && name(fd) == called {
				if d != nil {
					return nil, nil, fmt.Errorf("there are two functions %s", called)
				}
				s, d = f, fd
			}
		}
	}
	if d == nil {
		return nil, nil, fmt.Errorf("there is no function %s", called)
	}
	return s, d, nil
}

// change is a part of a text that is replaced.
type change struct {
	from, to int
	text     string
}

// changed is text with all changes, which were found in text as it is.
func changed(text string, all []change) string {
	slices.SortFunc(all, func(a, b change) int { return b.from - a.from })
	for _, c := range all {
		text = text[:c.from] + c.text + text[c.to:]
	}
	return text
}

// body is the body of d, braces and all.
func (s *source) body(d *ast.FuncDecl) string { return s.slice(d.Body.Pos(), d.Body.End()) }

// place finds where the patch belongs.
func (p Patch) place(text string, code bool) (change, error) {
	from, to, err := find(text, p.Old, code)
	if err != nil {
		return change{}, fmt.Errorf("%s%s: %w", p.Func, p.File, err)
	}
	return change{from, to, strings.TrimSpace(p.New)}, nil
}
