package kit

import (
	"cmp"
	"maps"
	"slices"
)

// Table shows some columns of some rows.
type Table struct {
	Title   string
	Columns []Column
	Rows    []Row
}

// Column is a column of a table: the key of rows, and its title.
type Column struct{ Key, Title string }

// Columns makes columns from keys and titles, in turn.
func Columns(keysAndTitles ...string) (out []Column) {
	for pair := range slices.Chunk(keysAndTitles, 2) {
		out = append(out, Column{Key: pair[0], Title: pair[1]})
	}
	return out
}

// cells returns the texts of a table, the titles first.
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

func (r *Report) goalTable() Table {
	t := Table{Title: "Goals", Columns: Columns("what", "what", "want", "goal", "published", "published", "got", "measured", "verdict", "")}
	for _, g := range r.Goals {
		verdict := "not met"
		if g.Met {
			verdict = "met"
		}
		t.Rows = append(t.Rows, Row{"what": g.What, "want": g.Want, "published": cmp.Or(g.Published, "-"), "got": g.Got, "verdict": verdict})
	}
	return t
}

func (r *Report) verdictTable() Table {
	t := Table{Title: "Verdict of the checker", Columns: Columns("system", "system", "checked", "operations checked", "wrong", "stale or otherwise wrong")}
	for _, s := range slices.Sorted(maps.Keys(r.Checked)) {
		t.Rows = append(t.Rows, Row{"system": s, "checked": r.Checked[s], "wrong": r.Anomalies[s]})
	}
	return t
}
