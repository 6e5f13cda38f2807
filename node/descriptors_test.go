package node

import "testing"

func TestConnectionsWithinTheLimitOfFiles(t *testing.T) {
	for _, c := range []struct {
		limit    uint64
		nodes    int
		embedded bool
		want     int // 0: too few
	}{
		{20_000, 1, true, 20_000 - 512 - 256 - 128},
		{20_000, 1, false, 20_000 - 256 - 128},
		{1024, 1, true, 128},
		{1024, 2, true, 0},
		{256, 1, false, 0},
		{1<<64 - 1, 1, true, 1 << 30}, // no limit
	} {
		got, err := connsWithin(c.limit, c.nodes, c.embedded)
		if got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
}
