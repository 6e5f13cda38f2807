package lease

import (
	"bytes"
	"reflect"
	"testing"
)

var messages = []any{
	&Renew{Node: "n1/7", Addr: "127.0.0.1:6380", Host: "h", Seq: 9, Gave: []Gen{3, 4}, Leaving: true, Done: true, Table: 5,
		Loads: []Load{{Gen: 3, Rate: 1000, Sample: []string{"a", "\x00\xff"}, Hot: []HotKey{{"a", 900}}}}},
	&Renew{},
	&Grant{Node: "n1/7", Term: 2, Seq: 9, Length: 1e10, Leases: []Lease{{Range{"", "m"}, 3}}, After: []Gen{2},
		Table: &Table{Version: 6, Slices: []Route{{Lease{Range{"", ""}, 3}, "n1/7", "127.0.0.1:6380", nil}}}},
	&Grant{},
	&Renew{Node: "n1/7", Groups: true},
	&Grant{Leases: []Lease{{Range{"", "m"}, 3}, {Point("m"), 4}}, After: []Gen{2, 0}, Groups: []Group{nil, {{"n1/7", "a", "h"}, {"n2/1", "b", "i"}}},
		Table: &Table{Slices: []Route{{Lease{Point("m"), 4}, "n1/7", "a", []GroupMember{{"n2/1", "b", "i"}}}}}},
	&Recall{Node: "n1/7", Term: 2, Leases: []Lease{{Range{"m", ""}, 8}}, Next: []string{"127.0.0.1:6381"}},
	&Gave{Node: "n1/7", Gens: []Gen{8}},
	&State{Gen: 8, Table: 6, Longest: 1e10, Slices: []Held{{Lease: Lease{Range{}, 8}, Node: "n1/7", Addr: "127.0.0.1:6380", Host: "h"}}},
	&State{Gen: 8, Slices: []Held{{Lease: Lease{Point("m"), 8}, Node: "n1/7", Copies: []GroupMember{{"n2/1", "b", "i"}}, Want: 2, Pinned: true}}},
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

// Lists that must be of one length are refused if they are not, and so is a flag that is
// neither, a kind or version that is unknown, and what is longer than the bytes that follow.
func TestMalformedIsRefused(t *testing.T) {
	two := []Lease{{Range{"", "m"}, 3}, {Range{"m", ""}, 4}}
	for name, m := range map[string]any{
		"no predecessor":       &Grant{Leases: two, After: []Gen{1}},
		"one too many":         &Grant{Leases: two, After: []Gen{1, 2, 3}},
		"a group is missing":   &Grant{Leases: two, After: []Gen{1, 2}, Groups: []Group{{{"n1", "a", "h"}}}},
		"a group too many":     &Grant{Leases: two[:1], After: []Gen{1}, Groups: []Group{nil, nil}},
		"no successor":         &Recall{Leases: two, Next: []string{"a"}},
		"a successor too many": &Recall{Leases: two[:1], Next: []string{"a", "b"}},
	} {
		if got, err := Decode(Append(nil, m)); err == nil {
			t.Errorf("%s: %+v is accepted", name, got)
		}
	}
	for name, text := range map[string]string{
		"nothing":             "",
		"no kind":             "\x01",
		"version 0":           "\x00\x04\x01n\x00",
		"version 3":           "\x03\x04\x01n\x00",
		"kind 0":              "\x01\x00\x01n\x00",
		"kind 6":              "\x01\x06\x01n\x00",
		"a flag of 2":         "\x01\x01\x01n\x01a\x01h\x09\x00\x02\x05\x00",
		"a list without end":  "\x01\x04\x01n\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
		"a list of 2 with 1":  "\x01\x04\x01n\x02\x05",
		"a name that is long": "\x01\x04\x05n",
		"a number that is":    "\x01\x04\x01n\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
	} {
		if got, err := Decode([]byte(text)); err == nil {
			t.Errorf("%s: %+v is accepted", name, got)
		}
	}
	if got, err := Decode([]byte("\x01\x04\x01n\x00")); err != nil || got.(*Gave).Node != "n" {
		t.Errorf("%+v, %v", got, err)
	}
}

// The second version is used for what the first cannot say, and for nothing else.
func TestVersionOfEachMessage(t *testing.T) {
	one := []Lease{{Point("k"), 3}}
	for _, c := range []struct {
		m       any
		version byte
	}{
		{&Renew{Leaving: true}, 1}, {&Renew{Groups: true}, 2}, {&Renew{Done: true}, 2},
		{&Grant{Leases: one, After: []Gen{1}}, 1}, {&Grant{Leases: one, After: []Gen{1}, Groups: []Group{nil}}, 2},
		{&Grant{Table: &Table{Slices: []Route{{Lease: one[0]}}}}, 1}, {&Grant{Table: &Table{Slices: []Route{{Lease: one[0], Copies: []GroupMember{{}}}}}}, 2},
		{&State{Slices: []Held{{Lease: one[0]}}}, 1}, {&State{Slices: []Held{{Lease: one[0], Copies: []GroupMember{{}}}}}, 2},
		{&State{Slices: []Held{{Lease: one[0], Want: 1}}}, 2}, {&State{Slices: []Held{{Lease: one[0], Pinned: true}}}, 2},
		{&Recall{Leases: one, Next: []string{""}}, 1}, {&Gave{Gens: []Gen{3}}, 1},
	} {
		if b := Append([]byte("before"), c.m); b[6] != c.version || string(b[:6]) != "before" {
			t.Errorf("%#v is written in version %d", c.m, b[6])
		}
	}
}
