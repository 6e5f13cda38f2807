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
		Table: &Table{Version: 6, Slices: []Route{{Lease{Range{"", ""}, 3}, "n1/7", "127.0.0.1:6380", nil}}}},
	&Grant{},
	&Renew{Node: "n1/7", Groups: true},
	&Grant{Leases: []Lease{{Range{"", "m"}, 3}, {Point("m"), 4}}, After: []Gen{2, 0}, Groups: []Group{nil, {{"n1/7", "a", "h"}, {"n2/1", "b", "i"}}},
		Table: &Table{Slices: []Route{{Lease{Point("m"), 4}, "n1/7", "a", []Member{{"n2/1", "b", "i"}}}}}},
	&Recall{Node: "n1/7", Term: 2, Leases: []Lease{{Range{"m", ""}, 8}}, Next: []string{"127.0.0.1:6381"}},
	&Gave{Node: "n1/7", Gens: []Gen{8}},
	&State{Gen: 8, Table: 6, Longest: 1e10, Slices: []Held{{Lease: Lease{Range{}, 8}, Node: "n1/7", Addr: "127.0.0.1:6380", Host: "h"}}},
	&State{Gen: 8, Slices: []Held{{Lease: Lease{Point("m"), 8}, Node: "n1/7", Copies: []Member{{"n2/1", "b", "i"}}, Want: 2, Pinned: true}}},
}

// What the first version could say is written as it always was, byte by byte, so that
// what a coordinator keeps can be read by those who know no groups, and by us.
func TestFirstVersionIsAsItWas(t *testing.T) {
	const (
		state = "\x01\x05\x08\x06\x80\xc8\xaf\xa0\x25\x01\x00\x00\x08\x04n1/7\x0e127.0.0.1:6380\x01h"
		renew = "\x01\x01\x04n1/7\x01a\x01h\x09\x02\x03\x04\x01\x05\x00"
		grant = "\x01\x02\x04n1/7\x02\x09\x0a\x01\x00\x01m\x03\x01\x02\x01\x06\x01\x00\x00\x03\x04n1/7\x01a"
	)
	for text, m := range map[string]any{
		state: &State{Gen: 8, Table: 6, Longest: 1e10, Slices: []Held{{Lease: Lease{Range{}, 8}, Node: "n1/7", Addr: "127.0.0.1:6380", Host: "h"}}},
		renew: &Renew{Node: "n1/7", Addr: "a", Host: "h", Seq: 9, Gave: []Gen{3, 4}, Leaving: true, Table: 5},
		grant: &Grant{Node: "n1/7", Term: 2, Seq: 9, Length: 10, Leases: []Lease{{Range{"", "m"}, 3}}, After: []Gen{2},
			Table: &Table{Version: 6, Slices: []Route{{Lease: Lease{Range{}, 3}, Node: "n1/7", Addr: "a"}}}},
	} {
		if b := Append(nil, m); string(b) != text {
			t.Errorf("%T is written as %q", m, b)
		}
		if got, err := Decode([]byte(text)); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%q is read as %#v, %v", text, got, err)
		}
	}
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
