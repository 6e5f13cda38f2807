package kit

// Rounds collects what the rounds of an experiment measure, by case and column. A case is
// what a line of a table is about: a system, perhaps with a load. The zero value is empty.
type Rounds[C comparable] struct{ values map[C]map[string][]float64 }

// Add adds what one round measured.
func (r *Rounds[C]) Add(c C, column string, value float64) {
	if r.values == nil {
		r.values = map[C]map[string][]float64{}
	}
	if r.values[c] == nil {
		r.values[c] = map[string][]float64{}
	}
	r.values[c][column] = append(r.values[c][column], value)
}

// Of is what was measured, round by round; nothing if the case was not measured.
func (r *Rounds[C]) Of(c C, column string) []float64 { return r.values[c][column] }

// Has reports whether a case was measured.
func (r *Rounds[C]) Has(c C) bool { return len(r.values[c]) > 0 }

// Spread is the median of the rounds, with the least and the most.
func (r *Rounds[C]) Spread(c C, column string) Spread { return SpreadOf(r.Of(c, column)) }

// Times is a case divided by another, round by round.
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
