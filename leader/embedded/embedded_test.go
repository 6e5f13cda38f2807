package embedded

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/freshet-cache/freshet/leader"
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
		if err := c.Save(t.Context(), l.Term-1, nil); !errors.Is(err, leader.ErrDeposed) {
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

// A directory of the first format, which named no cluster, is read, and goes on.
func TestFirstFormat(t *testing.T) {
	dir := t.TempDir()
	body := append(binary.BigEndian.AppendUint64(nil, 7), "the state"...)
	old := append(binary.BigEndian.AppendUint32([]byte(first), crc32.ChecksumIEEE(body)), body...)
	if err := os.WriteFile(filepath.Join(dir, file), old, 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := ""
	for term := uint64(8); term < 10; term++ {
		c, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		l, err := c.Lead(t.Context())
		if err != nil || l.Term != term || string(l.State) != "the state" || c.Cluster() == "" || cluster != "" && c.Cluster() != cluster {
			t.Errorf("%+v of %q, %v", l, c.Cluster(), err)
		}
		cluster = c.Cluster()
		c.Close()
	}
}
