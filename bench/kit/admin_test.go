package kit

import (
	"testing"
)

func TestCounters(t *testing.T) {
	c := Counters{}
	c.add([]byte("# HELP x text\nplain 3\nhits{node=\"n1\"} 4\nhits{node=\"n 2\"} 5\ncalls{node=\"n1\",request=\"load\"} 1e3\nbroken{ 1\nnone\n"))
	for name, want := range map[string]float64{"plain": 3, "hits": 9, "calls/load": 1000} {
		if c[name] != want {
			t.Errorf("%s is %g, want %g", name, c[name], want)
		}
	}
	if got := c.Since(Counters{"hits": 2}, "hits"); got != 7 || len(c) != 3 {
		t.Error(got, c)
	}
}
