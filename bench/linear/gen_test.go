package linear

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestInject(t *testing.T) {
	keys := make([]uint32, 200_000)
	for _, share := range []float64{0, 0.002, 0.05, 0.5, 1} {
		writes, clients, changes := 0, map[int]int{}, 0
		all := inject(&recording{keys: keys}, share, 12, 1)
		for i, a := range all {
			if a.write {
				writes++
			}
			clients[a.client]++
			if i > 0 && a.client != all[i-1].client {
				changes++
				if i%burst != 0 {
					t.Fatalf("a burst ends at %d", i)
				}
			}
		}
		if got := float64(writes) / float64(len(keys)); math.Abs(got-share) > 0.005 {
			t.Errorf("a share of %g are writes, want %g", got, share)
		}
		if len(clients) != 12 || changes < len(keys)/burst*8/10 {
			t.Errorf("%d clients, %d bursts", len(clients), changes)
		}
		for c, n := range clients {
			if n < len(keys)/12*7/10 || n > len(keys)/12*13/10 {
				t.Errorf("client %d makes %d requests", c, n)
			}
		}
	}
}

func TestTheTraceThatComesAlong(t *testing.T) {
	all, err := readTrace("", 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	keys := all.keys
	count, kinds := map[uint32]int{}, map[uint32]bool{}
	for _, k := range keys {
		count[k]++
		kinds[k>>27] = true
		if s := size(k); s < 64 || s > 1024 || len(traceValue(k, "original")) != s {
			t.Fatalf("a value of %x has %d bytes", k, s)
		}
	}
	if len(keys) != 200_000 || len(count) != 22_024 || len(kinds) != 29 || count[939616256] != 2696 {
		t.Error(len(keys), len(count), len(kinds))
	}
	if name := traceKey(29<<27 | 77<<10 | 3); name != "d:29:77:3" {
		t.Error(name)
	}
	if few, err := readTrace("", 10); err != nil || !slices.Equal(few.keys, keys[:10]) {
		t.Error(few, err)
	}
}

func TestOtherTraces(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	if keys, err := readTrace(write("plain", []byte{0, 0, 1, 2, 0, 0, 0, 7}), 9); err != nil || !slices.Equal(keys.keys, []uint32{258, 7}) {
		t.Error(keys, err)
	}
	for _, name := range []string{filepath.Join(dir, "none"), write("short", []byte{1, 2}), write("empty", nil), write("no.gz", []byte("text"))} {
		if _, err := readTrace(name, 9); err == nil || !strings.Contains(err.Error(), "--trace") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
