package kit

import (
	"fmt"
	"io/fs"
	"strings"
	"text/template"
)

// Pages are the Markdown files of a package's experiments. NAME.md is the text of the
// experiment NAME: its first paragraph says what is measured, and the rest explains the
// set-up, and what differs from a paper. The rest is a text/template: {{.rounds}} is the
// figure rounds of the report's setting, and {{template "shared.md" .}} is another file.
type Pages struct {
	about map[string]string
	rest  *template.Template
}

const measures = "This experiment measures "

// ReadPages reads all Markdown files of a directory. It panics if one is malformed, because they
// are part of the program.
func ReadPages(dir fs.FS) *Pages {
	p := &Pages{about: map[string]string{}, rest: template.New("").Option("missingkey=error")}
	names, err := fs.Glob(dir, "*.md")
	if err != nil || len(names) == 0 {
		panic(fmt.Sprintf("there are no pages: %v", err))
	}
	for _, name := range names {
		b, err := fs.ReadFile(dir, name)
		if err != nil {
			panic(err)
		}
		text := string(b)
		if strings.HasPrefix(text, "# ") {
			_, text, _ = strings.Cut(text, "\n\n")
			first, rest, _ := strings.Cut(text, "\n\n")
			about, ok := strings.CutPrefix(strings.Join(strings.Fields(first), " "), measures)
			if !ok || !strings.HasSuffix(about, ".") {
				panic(fmt.Sprintf("%s: the first paragraph does not read: %s...", name, measures))
			}
			p.about[strings.TrimSuffix(name, ".md")] = strings.TrimSuffix(about, ".")
			text = rest
		}
		template.Must(p.rest.New(name).Parse(text))
	}
	return p
}

// About returns one line: what an experiment measures.
func (p *Pages) About(name string) string { return p.about[name] }

// text returns the rest of a page with the figures of a report filled in.
func (p *Pages) text(name string, setting map[string]string) (string, error) {
	var b strings.Builder
	err := p.rest.ExecuteTemplate(&b, name+".md", setting)
	return strings.TrimSpace(b.String()), err
}
