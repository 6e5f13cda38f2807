package kit

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Report is what an experiment found. Its JSON is stable: scripts read it. The page and the
// plots are made of nothing else.
type Report struct {
	Experiment string             `json:"experiment"`
	Commit     string             `json:"commit"`
	Machine    string             `json:"machine"`
	Command    string             `json:"command"`
	Took       string             `json:"took"`
	Rows       []Row              `json:"rows"`
	Headline   map[string]float64 `json:"headline"`
	// Anomalies counts, for each system, the answers a checker found wrong.
	Anomalies map[string]int `json:"anomalies"`
	// Checked counts, for each system, the operations that the checker saw.
	Checked map[string]int `json:"checked"`
	Goals   []Goal         `json:"goals"`
	// Setting has the figures that the text of the page names.
	Setting map[string]string `json:"setting"`
	// Remarks are what a reader has to know of this run: what failed, what a checker says.
	Remarks []string `json:"remarks,omitempty"`
}

// NewReport is a report without results.
func NewReport() *Report {
	return &Report{Headline: map[string]float64{}, Anomalies: map[string]int{}, Checked: map[string]int{}, Setting: map[string]string{}}
}

// Row is one line of results, by column. A row names its system, if it is about one.
type Row map[string]any

// UnmarshalJSON gives values the types that they had: a spread, an int, or another.
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

// Goal is what we want to reach, beside what others published.
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

// Judge adds what a checker said of a system: how many operations it saw, and how many of
// them were wrong.
func (r *Report) Judge(system string, checked, wrong int) {
	r.Checked[system] += checked
	r.Anomalies[system] += wrong
}

// Set gives a figure of the page's text its value.
func (r *Report) Set(name string, value any) {
	text := fmt.Sprint(value)
	if v, ok := value.(float64); ok {
		text = strconv.FormatFloat(v, 'f', -1, 64)
	}
	r.Setting[name] = text
}

// Remark adds what a reader has to know of this run.
func (r *Report) Remark(format string, args ...any) {
	r.Remarks = append(r.Remarks, fmt.Sprintf(format, args...))
}

// With are the rows that have a value in a column.
func (r *Report) With(column string) []Row { return WithKey(r.Rows, column) }

// Systems are the systems of rows, in their order.
func Systems(rows []Row) []string { return Distinct(rows, "system") }

// Distinct are the values of a column, as text, in the order of the rows.
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

// WithKey are the rows that have a value for key.
func WithKey(rows []Row, key string) (out []Row) {
	for _, r := range rows {
		if _, ok := r[key]; ok {
			out = append(out, r)
		}
	}
	return out
}
