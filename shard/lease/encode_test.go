package lease

import (
	"bytes"
	"reflect"
	"testing"
)

var messages = []any{
	&Renew{Node: "n1/7", Addr: "127.0.0.1:6380", Host: "h", Seq: 9, Gave: []Gen{3, 4}, Leaving: true, Table: 5,
		Loads: []Load{{Gen: 3, Rate: 1000, Sample: []string{"a", "\x00\xff"}, Hot: []HotKey{{"a", 900}}}}},
	&Renew{},
	&Grant{Node: "n1/7", Term: 2, Seq: 9, Length: 1e10, Leases: []Lease{{Range{"", "m"}, 3}}, After: []Gen{2},
		Table: &Table{Version: 6, Slices: []Route{{Lease{Range{"", ""}, 3}, "n1/7", "127.0.0.1:6380"}}}},
	&Grant{},
	&Recall{Node: "n1/7", Term: 2, Leases: []Lease{{Range{"m", ""}, 8}}, Next: []string{"127.0.0.1:6381"}},
	&Gave{Node: "n1/7", Gens: []Gen{8}},
	&State{Gen: 8, Table: 6, Longest: 1e10, Slices: []Held{{Lease{Range{}, 8}, "n1/7", "127.0.0.1:6380", "h"}}},
}

func TestEncodingReturnsWhatWasSent(t *testing.T) {
	for _, m := range messages {
		b := Append(nil, m)
		got, err := Decode(b)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%#v came back as %#v, %v", m, got, err)
		}
		for i := range b {
			if _, err := Decode(b[:i]); err == nil {
				t.Errorf("%T cut to %d of %d bytes was accepted", m, i, len(b))
			}
		}
		if _, err := Decode(append(b, 0)); err == nil {
			t.Errorf("%T with a byte too many was accepted", m)
		}
	}
}

// FuzzDecode: no bytes make Decode panic, and what it accepts has one meaning.
func FuzzDecode(f *testing.F) {
	for _, m := range messages {
		f.Add(Append(nil, m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Decode(Append(nil, m))
		if err != nil || !bytes.Equal(Append(nil, again), Append(nil, m)) {
			t.Fatalf("%x decodes to %#v, which does not survive encoding: %v", b, m, err)
		}
	})
}
