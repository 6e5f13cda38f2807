package bench

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

	about   string
	tables  []table
	goals   []goal
	checked map[string]int // operations the checker saw, by system
	notes   []string
	plots   []figure
	took    time.Duration
}

// table shows those columns of those rows.
type table struct {
	title   string
	columns []column
	rows    []Row
}

type column struct{ key, title string }

// goal is what we want to reach, beside what others published.
type goal struct {
	what, want, published string
	got                   any
	met                   bool
}

func (g goal) verdict() string {
	if g.met {
		return "met"
	}
	return "not met"
}

// cells are the texts of a table, the titles first.
func (t table) cells() [][]string {
	head := []string{}
	for _, c := range t.columns {
		head = append(head, c.title)
	}
	out := [][]string{head}
	for _, r := range t.rows {
		line := []string{}
		for _, c := range t.columns {
			cell := ""
			if v, ok := r[c.key]; ok {
				cell = text(v)
			}
			line = append(line, cell)
		}
		out = append(out, line)
	}
	return out
}

// all are the tables of the report, with that of the goals and of the verdicts.
func (r *Report) all() []table {
	out := slices.Clone(r.tables)
	goals := table{title: "Goals", columns: []column{{"what", "what"}, {"want", "goal"}, {"published", "published"}, {"got", "measured"}, {"verdict", ""}}}
	for _, g := range r.goals {
		goals.rows = append(goals.rows, Row{"what": g.what, "want": g.want, "published": cmp.Or(g.published, "-"), "got": g.got, "verdict": g.verdict()})
	}
	verdicts := table{title: "Verdict of the checker", columns: []column{{"system", "system"}, {"checked", "operations checked"}, {"wrong", "stale or otherwise wrong"}}}
	for _, s := range slices.Sorted(maps.Keys(r.checked)) {
		verdicts.rows = append(verdicts.rows, Row{"system": s, "checked": r.checked[s], "wrong": r.Anomalies[s]})
	}
	return append(out, goals, verdicts)
}

// print shows the report on a terminal.
func (r *Report) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n%s\n", r.Experiment, r.about, r.Machine)
	for _, t := range r.all() {
		fmt.Fprintf(w, "\n%s\n", t.title)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, line := range t.cells() {
			fmt.Fprintln(tw, strings.Join(line, "\t"))
		}
		_ = tw.Flush() // a terminal that is gone needs no table
	}
	for _, n := range r.notes {
		fmt.Fprintf(w, "\n%s\n", n)
	}
}

// page is the report for people who read it later.
func (r *Report) page() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\nWritten by `%s`; do not edit.\n\nMeasured: %s.\n", r.Experiment, r.Command, r.about)
	for _, t := range r.all() {
		fmt.Fprintf(&b, "\n## %s\n\n", t.title)
		for i, line := range t.cells() {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
			if i == 0 {
				fmt.Fprintf(&b, "|%s\n", strings.Repeat(" --- |", len(line)))
			}
		}
	}
	for _, f := range r.plots {
		fmt.Fprintf(&b, "\n![%s](%s.svg)\n", f.title, f.name)
	}
	b.WriteString("\n## Set-up\n\n")
	for _, n := range r.notes {
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
	for i := range r.plots {
		r.plots[i].name = r.Experiment
		if i > 0 {
			r.plots[i].name += fmt.Sprintf("-%d", i+1)
		}
		if err := r.plots[i].save(dir); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, r.Experiment+".md"), []byte(r.page()), 0o644)
}
