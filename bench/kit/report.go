package kit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Row is one line of results, by column. Every row names its system.
type Row map[string]any

// Report is what an experiment found. Its JSON is stable: scripts read it.
type Report struct {
	Experiment string             `json:"experiment"`
	Commit     string             `json:"commit"`
	Machine    string             `json:"machine"`
	Command    string             `json:"command"`
	Rows       []Row              `json:"rows"`
	Headline   map[string]float64 `json:"headline"`
	// Anomalies counts, for each system, the answers a checker found wrong.
	Anomalies map[string]int `json:"anomalies"`

	about   string         `json:"-"`
	Tables  []Table        `json:"-"`
	Goals   []Goal         `json:"-"`
	Checked map[string]int `json:"-"` // operations the checker saw, by system
	Notes   []string       `json:"-"`
	Plots   []Figure       `json:"-"`
	took    time.Duration  `json:"-"`
}

// Table shows those columns of those rows.
type Table struct {
	Title   string
	Columns []Column
	Rows    []Row
}

// Column is a column of a table: the key of rows, and its title.
type Column struct{ Key, Title string }

// Goal is what we want to reach, beside what others published.
type Goal struct {
	What, Want, Published string
	Got                   any
	Met                   bool
}

func (g Goal) verdict() string {
	if g.Met {
		return "met"
	}
	return "not met"
}

// cells are the texts of a table, the titles first.
func (t Table) cells() [][]string {
	head := []string{}
	for _, c := range t.Columns {
		head = append(head, c.Title)
	}
	out := [][]string{head}
	for _, r := range t.Rows {
		line := []string{}
		for _, c := range t.Columns {
			cell := ""
			if v, ok := r[c.Key]; ok {
				cell = Text(v)
			}
			line = append(line, cell)
		}
		out = append(out, line)
	}
	return out
}

// all are the tables of the report, with that of the goals and of the verdicts.
func (r *Report) all() []Table {
	out := slices.Clone(r.Tables)
	goals := Table{Title: "Goals", Columns: []Column{{"what", "what"}, {"want", "goal"}, {"published", "published"}, {"got", "measured"}, {"verdict", ""}}}
	for _, g := range r.Goals {
		goals.Rows = append(goals.Rows, Row{"what": g.What, "want": g.Want, "published": cmp.Or(g.Published, "-"), "got": g.Got, "verdict": g.verdict()})
	}
	verdicts := Table{Title: "Verdict of the checker", Columns: []Column{{"system", "system"}, {"checked", "operations checked"}, {"wrong", "stale or otherwise wrong"}}}
	for _, s := range slices.Sorted(maps.Keys(r.Checked)) {
		verdicts.Rows = append(verdicts.Rows, Row{"system": s, "checked": r.Checked[s], "wrong": r.Anomalies[s]})
	}
	return append(out, goals, verdicts)
}

// print shows the report on a terminal.
func (r *Report) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n%s\n", r.Experiment, r.about, r.Machine)
	for _, t := range r.all() {
		fmt.Fprintf(w, "\n%s\n", t.Title)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, line := range t.cells() {
			fmt.Fprintln(tw, strings.Join(line, "\t"))
		}
		_ = tw.Flush() // a terminal that is gone needs no table
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "\n%s\n", n)
	}
}

// page is the report for people who read it later.
func (r *Report) page() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\nWritten by `%s`; do not edit.\n\nMeasured: %s.\n", r.Experiment, r.Command, r.about)
	for _, t := range r.all() {
		fmt.Fprintf(&b, "\n## %s\n\n", t.Title)
		for i, line := range t.cells() {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
			if i == 0 {
				fmt.Fprintf(&b, "|%s\n", strings.Repeat(" --- |", len(line)))
			}
		}
	}
	for _, f := range r.Plots {
		fmt.Fprintf(&b, "\n![%s](%s.svg)\n", f.title, f.name)
	}
	b.WriteString("\n## Set-up\n\n")
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "- %s\n", n)
	}
	fmt.Fprintf(&b, "- Machine: %s.\n- Commit: %s.\n- Command: `%s`, which took %s.\n",
		r.Machine, r.Commit, r.Command, r.took.Round(time.Second))
	return b.String()
}

// write leaves everything in a directory.
func (r *Report) write(dir string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, r.Experiment+".json"), append(b, '\n'), 0o644); err != nil {
		return err
	}
	for i := range r.Plots {
		r.Plots[i].name = r.Experiment
		if i > 0 {
			r.Plots[i].name += fmt.Sprintf("-%d", i+1)
		}
		if err := r.Plots[i].save(dir); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, r.Experiment+".md"), []byte(r.page()), 0o644)
}
