package kit

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Report has the results of an experiment. Its JSON is stable, because scripts read it. The page
// and the plots depend on nothing else.
type Report struct {
	Experiment string             `json:"experiment"`
	Commit     string             `json:"commit"`
	Machine    string             `json:"machine"`
	Command    string             `json:"command"`
	Took       string             `json:"took"`
	Rows       []Row              `json:"rows"`
	Headline   map[string]float64 `json:"headline"`
	// Anomalies counts, for each system, the answers that a checker found wrong.
	Anomalies map[string]int `json:"anomalies"`
	// Checked counts, for each system, the operations that the checker saw.
	Checked map[string]int `json:"checked"`
	Goals   []Goal         `json:"goals"`
	// Setting has the figures that the text of the page names.
	Setting map[string]string `json:"setting"`
	// Remarks tell readers what is special about this run: failures, findings of a checker.
	Remarks []string `json:"remarks,omitempty"`
}

// NewReport is a report without results.
func NewReport() *Report {
	return &Report{Headline: map[string]float64{}, Anomalies: map[string]int{}, Checked: map[string]int{}, Setting: map[string]string{}}
}

// Row is one line of results, by column. A row names its system, if it is about one.
type Row map[string]any

// UnmarshalJSON restores the types of values: a spread, an int, or another.
func (r *Row) UnmarshalJSON(b []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	*r = Row{}
	for key, text := range raw {
		var v any
		if err := json.Unmarshal(text, &v); err != nil {
			return err
		}
		switch x := v.(type) {
		case map[string]any:
			var s Spread
			if err := json.Unmarshal(text, &s); err != nil {
				return err
			}
			v = s
		case float64:
			if x == math.Trunc(x) && math.Abs(x) < 1<<53 {
				v = int(x)
			}
		}
		(*r)[key] = v
	}
	return nil
}

// Goal is a figure that freshet aims at, beside the published one.
type Goal struct {
	What      string `json:"what"`
	Want      string `json:"want"`
	Published string `json:"published,omitempty"`
	Got       string `json:"got"`
	Met       bool   `json:"met"`
}

// Goal adds a goal.
func (r *Report) Goal(what, want, published string, got any, met bool) {
	r.Goals = append(r.Goals, Goal{what, want, published, Text(got), met})
}

// Judge adds the verdict of a checker on a system: how many operations the checker saw, and how
// many were wrong.
func (r *Report) Judge(system string, checked, wrong int) {
	r.Checked[system] += checked
	r.Anomalies[system] += wrong
}

// Set sets a figure of the text of the page.
func (r *Report) Set(name string, value any) {
	text := fmt.Sprint(value)
	if v, ok := value.(float64); ok {
		text = strconv.FormatFloat(v, 'f', -1, 64)
	}
	r.Setting[name] = text
}

// Remark adds a remark about this run for readers.
func (r *Report) Remark(format string, args ...any) {
	r.Remarks = append(r.Remarks, fmt.Sprintf(format, args...))
}

// With returns the rows that have a value in a column.
func (r *Report) With(column string) []Row { return WithKey(r.Rows, column) }

// Systems returns the systems of rows, in their order.
func Systems(rows []Row) []string { return Distinct(rows, "system") }

// Distinct returns the values of a column, as text, in the order of the rows.
func Distinct(rows []Row, column string) (out []string) {
	seen := map[string]bool{}
	for _, row := range rows {
		v, ok := row[column]
		if text := Text(v); ok && !seen[text] {
			seen[text] = true
			out = append(out, text)
		}
	}
	return out
}

// WithKey returns the rows that have a value for key.
func WithKey(rows []Row, key string) (out []Row) {
	for _, r := range rows {
		if _, ok := r[key]; ok {
			out = append(out, r)
		}
	}
	return out
}
