package tracking

import (
	"reflect"
	"slices"
	"testing"

	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/shard/lease"
)

// What has changed, and by whom, arrives whole. A list of no keys is not the same as no list, which
// means that everything may have changed.
func TestInvalidationsArriveWhole(t *testing.T) {
	for _, c := range []struct {
		by   cause
		keys []string
	}{
		{cause{write: true}, nil},
		{cause{write: true}, []string{"k"}},
		{cause{conn: 300, write: true}, []string{"", "a\x00b"}},
		{cause{conn: 1, write: true, reads: true}, []string{"a", "b", "c"}},
	} {
		message := appendInvalid(nil, c.by, c.keys)
		by, keys, err := decodeInvalid(message)
		if err != nil || by != c.by || !reflect.DeepEqual(keys, c.keys) {
			t.Errorf("%+v %q is read as %+v %q, %v", c.by, c.keys, by, keys, err)
		}
		read := func(b []byte) error { _, _, err := decodeInvalid(b); return err }
		testkit.Whole(t, "an invalidation", message, map[int]byte{0: 1, 1: 0x80}, read)
		if message[1] ^= 1; read(message) == nil {
			t.Errorf("%q is taken with the other flag for everything", c.keys)
		}
	}
	if _, _, err := decodeInvalid(appendInvalid(nil, cause{conn: -1}, []string{"k"})); err == nil {
		t.Error("a connection with a number below 0 is taken")
	}
}

// A takeover announcement names the new owner and its slices, the last one without an end.
func TestAnnouncementsArriveWhole(t *testing.T) {
	all := []*takeover{{Range: lease.Range{High: "b"}}, {Range: lease.Range{Low: "k", High: "l"}}, {Range: lease.Range{Low: "x"}}}
	for n := range len(all) + 1 {
		message := appendAcquired(nil, "host:1", all[:n])
		addr, got, err := decodeAcquired(message)
		if err != nil || addr != "host:1" || len(got) != n {
			t.Fatalf("%d slices are read as %d of %q, %v", n, len(got), addr, err)
		}
		for i := range got {
			if got[i].Range != all[i].Range {
				t.Errorf("slice %d is read as %v", i, got[i].Range)
			}
		}
		testkit.Whole(t, "an announcement", message, map[int]byte{0: 1}, func(b []byte) error { _, _, err := decodeAcquired(b); return err })
	}
}

// A list of prefixes arrives whole, and one that is too long is refused.
func TestListsOfPrefixesArriveWhole(t *testing.T) {
	for _, prefixes := range [][]string{nil, {""}, {"a", "", "b\x00"}} {
		message := appendFollow(nil, prefixes)
		if got, err := decodeFollow(message); err != nil || !slices.Equal(got, prefixes) {
			t.Errorf("%q is read as %q, %v", prefixes, got, err)
		}
		testkit.Whole(t, "a list", message, map[int]byte{0: 1}, func(b []byte) error { _, err := decodeFollow(b); return err })
	}
	if _, err := decodeFollow(appendFollow(nil, make([]string, maxPrefixList))); err != nil {
		t.Error(err)
	}
	if _, err := decodeFollow(appendFollow(nil, make([]string, maxPrefixList+1))); err == nil {
		t.Error("a list that is too long is taken")
	}
}

// FuzzMessages: what another node says about tracking, however malformed, is
// refused or means what it says, and never ends this node.
func FuzzMessages(f *testing.F) {
	f.Add(appendInvalid(nil, cause{conn: 3, reads: true}, []string{"k"}))
	f.Add(appendInvalid(nil, cause{}, nil))
	f.Add(appendAcquired(nil, "h:1", []*takeover{{Range: lease.Range{Low: "a"}}}))
	f.Add(appendFollow(nil, []string{"a", "b"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if by, keys, err := decodeInvalid(b); err == nil {
			if again, keys2, err := decodeInvalid(appendInvalid(nil, by, keys)); err != nil || again != by || !slices.Equal(keys, keys2) {
				t.Errorf("%q: %+v %q %v", b, again, keys2, err)
			}
		}
		if addr, all, err := decodeAcquired(b); err == nil {
			if again, all2, err := decodeAcquired(appendAcquired(nil, addr, all)); err != nil || again != addr || len(all2) != len(all) {
				t.Errorf("%q: %q %d %v", b, again, len(all2), err)
			}
		}
		if prefixes, err := decodeFollow(b); err == nil {
			if again, err := decodeFollow(appendFollow(nil, prefixes)); err != nil || !slices.Equal(again, prefixes) {
				t.Errorf("%q: %q %v", b, again, err)
			}
		}
	})
}
