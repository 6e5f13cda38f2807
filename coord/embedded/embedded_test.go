package embedded

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/freshet-cache/freshet/shard"
)

func TestStateSurvivesAndTermsGrow(t *testing.T) {
	dir := t.TempDir()
	var last uint64
	var cluster, host string
	for i := range 3 {
		c, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		l, err := c.Lead(t.Context())
		if err != nil || l.Term <= last || l.Gone(c.Host()) || l.Gone("another") || i > 0 && (c.Cluster() != cluster || !l.Gone(host)) {
			t.Fatalf("round %d: %+v, %v after term %d", i, l, err, last)
		}
		cluster, host = c.Cluster(), c.Host()
		if want := string(rune('a'+i-1)) + "state"; i > 0 && string(l.State) != want {
			t.Fatalf("round %d: state %q, want %q", i, l.State, want)
		}
		last = l.Term
		if err := c.Save(t.Context(), l.Term, []byte(string(rune('a'+i))+"state")); err != nil {
			t.Fatal(err)
		}
		if err := c.Save(t.Context(), l.Term-1, nil); !errors.Is(err, shard.ErrDeposed) {
			t.Fatalf("an older term saved: %v", err)
		}
		if _, err := Open(dir); !errors.Is(err, ErrLocked) {
			t.Fatalf("opened twice: %v", err)
		}
		c.Close()
	}
}

func TestDamageIsToldAndNothingDestroyed(t *testing.T) {
	dir := t.TempDir()
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	name := filepath.Join(dir, file)
	whole, _ := os.ReadFile(name)
	for i := range whole {
		bad := append([]byte(nil), whole...)
		bad[i] ^= 0x40
		for _, b := range [][]byte{bad, whole[:i]} {
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if c, err := Open(dir); err == nil {
				c.Close()
				t.Fatalf("opened with byte %d damaged or cut", i)
			}
			if now, _ := os.ReadFile(name); string(now) != string(b) {
				t.Fatal("the damaged file was changed")
			}
		}
	}
}
