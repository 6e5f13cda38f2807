package kit

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// Page is the report as Markdown, under the name of its files.
func (e Experiment) Page(r *Report, name string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\nWritten by `%s`; do not edit.\n\nMeasured: %s.\n", name, r.Command, e.About())
	for i, p := range e.Plots(r) {
		fmt.Fprintf(&b, "\n![%s](%s.svg)\n", p.Title, plotName(name, i))
	}
	for _, t := range append(e.Tables(r), r.goalTable(), r.verdictTable()) {
		fmt.Fprintf(&b, "\n## %s\n\n", t.Title)
		for i, line := range t.cells() {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
			if i == 0 {
				fmt.Fprintf(&b, "|%s\n", strings.Repeat(" --- |", len(line)))
			}
		}
	}
	if len(r.Remarks) > 0 {
		b.WriteString("\n## Remarks on this run\n\n")
		for _, text := range r.Remarks {
			fmt.Fprintf(&b, "- %s\n", text)
		}
	}
	text, err := e.Pages.text(e.Name, r.Setting)
	if err != nil {
		return "", fmt.Errorf("the text of %s: %w", e.Name, err)
	}
	fmt.Fprintf(&b, "\n%s\n\n## Run\n\n- Machine: %s.\n- Commit: %s.\n- Command: `%s`, which took %s.\n", text, r.Machine, r.Commit, r.Command, r.Took)
	return b.String(), nil
}

func plotName(name string, i int) string {
	if i == 0 {
		return name
	}
	return fmt.Sprintf("%s-%d", name, i+1)
}

// write writes the report, its page and its plots into a directory, under a name.
func (e Experiment) write(r *Report, dir, name string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name+".json"), append(b, '\n'), 0o644); err != nil {
		return err
	}
	return e.Render(dir, name)
}

// Load reads a report.
func Load(file string) (*Report, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := NewReport()
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s is no report: %w", file, err)
	}
	return r, nil
}

// Render makes the page and the plots of a report from its JSON, NAME.json.
func (e Experiment) Render(dir, name string) error {
	r, err := Load(filepath.Join(dir, name+".json"))
	if err != nil {
		return err
	}
	page, err := e.Page(r, name)
	if err != nil {
		return err
	}
	for i, p := range e.Plots(r) {
		if err := p.save(filepath.Join(dir, plotName(name, i))); err != nil {
			return fmt.Errorf("the plot %q: %w", p.Title, err)
		}
	}
	return os.WriteFile(filepath.Join(dir, name+".md"), []byte(page), 0o644)
}

// print shows the tables of a report on a terminal.
func (e Experiment) print(w io.Writer, r *Report) {
	fmt.Fprintf(w, "%s: %s\n%s\n", e.Name, e.About(), r.Machine)
	for _, t := range append(e.Tables(r), r.goalTable(), r.verdictTable()) {
		fmt.Fprintf(w, "\n%s\n", t.Title)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, line := range t.cells() {
			fmt.Fprintln(tw, strings.Join(line, "\t"))
		}
		_ = tw.Flush() // an error of the terminal does not matter
	}
	for _, text := range r.Remarks {
		fmt.Fprintf(w, "\n%s\n", text)
	}
}
