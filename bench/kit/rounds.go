package kit

// Rounds collects the measurements of the rounds of an experiment, by case and column. A case is
// the subject of a line of a table: a system, perhaps with a load. The zero value is empty.
type Rounds[C comparable] struct{ values map[C]map[string][]float64 }

// Add adds a measurement of one round.
func (r *Rounds[C]) Add(c C, column string, value float64) {
	if r.values == nil {
		r.values = map[C]map[string][]float64{}
	}
	if r.values[c] == nil {
		r.values[c] = map[string][]float64{}
	}
	r.values[c][column] = append(r.values[c][column], value)
}

// Of returns the measurements, round by round; nothing if the case was not measured.
func (r *Rounds[C]) Of(c C, column string) []float64 { return r.values[c][column] }

// Has reports whether a case was measured.
func (r *Rounds[C]) Has(c C) bool { return len(r.values[c]) > 0 }

// Spread returns the median of the rounds, with the minimum and the maximum.
func (r *Rounds[C]) Spread(c C, column string) Spread { return SpreadOf(r.Of(c, column)) }

// Times returns the ratio of a case to another, round by round.
func (r *Rounds[C]) Times(c, other C, column string) Spread {
	return SpreadOf(Ratios(r.Of(c, column), r.Of(other, column)))
}

// Fill writes the spreads of columns into a row. A column that was not measured stays empty.
func (r *Rounds[C]) Fill(row Row, c C, columns ...string) {
	for _, column := range columns {
		if v := r.Of(c, column); len(v) > 0 {
			row[column] = SpreadOf(v)
		}
	}
}
