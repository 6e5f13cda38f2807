package kit

import (
	"math"
	"slices"
	"testing"
	"time"
)

// A request is due when the schedule says, and its latency counts from then, even
// if it was sent late because the one before was slow.
func TestLatencyCountsFromTheSchedule(t *testing.T) {
	s := Schedule{Rate: 1000}
	for i, want := range []time.Duration{0, time.Millisecond, 2 * time.Millisecond} {
		if got := s.Due(i); got != want {
			t.Errorf("request %d is due at %v, want %v", i, got, want)
		}
	}
	if got := (Schedule{Rate: 3}).Due(3_000_000); got != 1_000_000*time.Second {
		t.Error("the schedule drifts:", got)
	}
	if got := s.Late(10, 35*time.Millisecond); got != 25*time.Millisecond {
		t.Error("a stall of the sender is left out:", got)
	}
	if got := s.Late(10, 9*time.Millisecond); got != 0 {
		t.Error(got)
	}
}

func TestLatencies(t *testing.T) {
	l := NewLatencies()
	for i := range 1000 {
		l.Add(time.Duration(i+1)*time.Microsecond, 2)
	}
	for percent, want := range map[float64]float64{50: 500, 90: 900, 99: 990, 100: 1000} {
		if got := l.Micros(percent); math.Abs(got/want-1) > 0.002 {
			t.Errorf("P%g is %g µs, want %g", percent, got, want)
		}
	}
	l.Add(time.Hour, 1)
	l.Add(-1, 1)
	if l.Count() != 2002 {
		t.Error("what is out of range is lost")
	}
}

func TestSpread(t *testing.T) {
	if got := SpreadOf([]float64{5, 1, 3}); got != (Spread{3, 1, 5}) {
		t.Error(got)
	}
	if got := SpreadOf([]float64{4, 1, 3, 2}); got != (Spread{2.5, 1, 4}) {
		t.Error(got)
	}
	if got := Ratios([]float64{2, 9, 4}, []float64{1, 3, 0}); !slices.Equal(got, []float64{2, 3}) {
		t.Error(got)
	}
	if got := Minus([]float64{10, 20}, []float64{1, 2}, []float64{3, 4}); !slices.Equal(got, []float64{6, 14}) {
		t.Error(got)
	}
	for v, want := range map[any]string{1234567.8: "1234568", 123.45: "123.5", 1.234: "1.23", 0.01234: "0.012", 0.0: "0.00", 7: "7", "x": "x"} {
		if got := Text(v); got != want {
			t.Errorf("%v is shown as %s, want %s", v, got, want)
		}
	}
}
