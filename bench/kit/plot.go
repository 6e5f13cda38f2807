package kit

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
)

// Plot is a figure: bars for groups that have no order, or lines over an axis.
type Plot struct {
	Title string
	X, Y  string // titles of the axes, with their units
	// Groups are the names below the bars. Without groups, points have X values and are joined by
	// lines.
	Groups     []string
	Series     []Series
	LogX, LogY bool
	// Level is the height of a dashed horizontal line, for comparison. 0: no line.
	Level float64
	// Ticks are the labelled positions on the X axis. Default: round numbers.
	Ticks []float64
	// Mark draws a dashed vertical line at X = 0.
	Mark bool
}

// Series is the values of one system.
type Series struct {
	Name   string
	Points []Point
}

// Point is a value with its minimum and maximum. For bars, X is the number of the group.
type Point struct {
	X float64
	Y Spread
}

// number returns a cell of a row as a spread; false if the cell is no number.
func number(v any) (Spread, bool) {
	switch v := v.(type) {
	case Spread:
		return v, true
	case float64:
		return Spread{v, v, v}, true
	case int:
		return Spread{float64(v), float64(v), float64(v)}, true
	}
	return Spread{}, false
}

// Grouped makes bars of rows: a group for each text of group, a series for each text of
// series, and a bar for the value in a column.
func Grouped(rows []Row, group, series func(Row) string, column string) (groups []string, list []Series) {
	for _, row := range rows {
		y, ok := number(row[column])
		if !ok {
			continue
		}
		at := slices.Index(groups, group(row))
		if at < 0 {
			at, groups = len(groups), append(groups, group(row))
		}
		list = addPoint(list, series(row), Point{float64(at), y})
	}
	return groups, list
}

// Curves makes lines of rows: a line for each system, over the numbers in the column x.
func Curves(rows []Row, x, column string) (list []Series) {
	for _, row := range rows {
		at, ok1 := number(row[x])
		y, ok2 := number(row[column])
		if ok1 && ok2 {
			list = addPoint(list, Text(row["system"]), Point{at.Median, y})
		}
	}
	return list
}

func addPoint(list []Series, name string, p Point) []Series {
	at := slices.IndexFunc(list, func(s Series) bool { return s.Name == name })
	if at < 0 {
		at, list = len(list), append(list, Series{Name: name})
	}
	list[at].Points = append(list[at].Points, p)
	return list
}

// PointOf returns a cell of a row as a point; none if the cell is no number.
func PointOf(x float64, cell any) []Point {
	if y, ok := number(cell); ok {
		return []Point{{x, y}}
	}
	return nil
}

// By is the text of a column of a row.
func By(column string) func(Row) string { return func(r Row) string { return Text(r[column]) } }

// limits returns the least and the greatest value of all series; with a logarithmic axis, only of
// values above zero.
func (p Plot) limits() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, s := range p.Series {
		for _, at := range s.Points {
			for _, v := range []float64{at.Y.Min, at.Y.Median, at.Y.Max} {
				if !p.LogY || v > 0 {
					low, high = min(low, v), max(high, v)
				}
			}
		}
	}
	if low > high { // no value can be shown
		low, high = 1, 10
	}
	if p.Level > 0 {
		low, high = min(low, p.Level), max(high, p.Level)
	}
	if p.LogY {
		low, high = low/1.5, high*1.5
		return low, max(high, low*10)
	}
	if high <= 0 {
		high = 1
	}
	return min(0, low), high * 1.08
}

// ticks labels an axis with short numbers: 200, 1k, 2.5M.
type ticks struct{ log bool }

// Ticks implements plot.Ticker.
func (t ticks) Ticks(low, high float64) []plot.Tick {
	if !t.log {
		return linearTicks(low, high)
	}
	var list []plot.Tick
	few := math.Log10(high/low) < 2 // label 2 and 5 as well
	for decade := math.Pow(10, math.Floor(math.Log10(low))); decade <= high; decade *= 10 {
		for n := 1; n < 10; n++ {
			v := decade * float64(n)
			if v < low || v > high {
				continue
			}
			label := ""
			if n == 1 || few && (n == 2 || n == 5) {
				label = short(v)
			}
			list = append(list, plot.Tick{Value: v, Label: label})
		}
	}
	return list
}

// linearTicks labels about five round numbers.
func linearTicks(low, high float64) (list []plot.Tick) {
	if high <= low {
		return []plot.Tick{{Value: low, Label: short(low)}}
	}
	step := math.Pow(10, math.Floor(math.Log10((high-low)/4)))
	for _, n := range []float64{5, 2} {
		if (high-low)/(step*n) >= 3 {
			step *= n
			break
		}
	}
	for i := math.Ceil(low / step); i*step <= high*(1+1e-9); i++ {
		list = append(list, plot.Tick{Value: i * step, Label: short(i * step)})
	}
	return list
}

// fixed labels these positions and no others.
type fixed []float64

// Ticks implements plot.Ticker.
func (f fixed) Ticks(_, _ float64) (list []plot.Tick) {
	for _, v := range f {
		list = append(list, plot.Tick{Value: v, Label: short(v)})
	}
	return list
}

// short formats a number of an axis.
func short(v float64) string {
	text := func(v float64, unit string) string {
		s := fmt.Sprintf("%.3f", v)
		return strings.TrimRight(strings.TrimRight(s, "0"), ".") + unit
	}
	switch a := math.Abs(v); {
	case a < 1e-9: // positive or negative
		return "0"
	case a >= 1e6:
		return text(v/1e6, "M")
	case a >= 1e3:
		return text(v/1e3, "k")
	}
	return text(v, "")
}
