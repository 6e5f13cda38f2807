package wire

import (
	"bytes"
	"math"
	"reflect"
	"testing"
)

// samples are messages of every kind.
var samples = []Message{
	Heartbeat{Beat: 1},
	Heartbeat{Beat: 7, Last: 300, Marks: 2, Server: math.MaxUint64, Hello: true, Echoes: []Echo{{Of: 1, Beat: 0}, {Of: 9, Beat: 1 << 40}}},
	Notice{Number: 4, Names: []string{"x", "", "tag"}},
	Notice{Number: 5, Closes: 4, Names: []string{"x"}},
	Missing{}, Missing{From: 3, To: 9},
	Snapshot{}, Snapshot{Last: 9, Marks: []Mark{{Number: 3, Names: []string{"x"}}, {Number: 9, Names: nil}}},
	Leave{Last: 12},
}

// decodes checks that what is taken comes back as it is.
func decodes(t testing.TB, b []byte) bool {
	from, msg, err := Decode(b)
	if err != nil {
		return false
	}
	again := Append(nil, from, msg)
	if !bytes.Equal(again, b) {
		t.Errorf("%x is taken as %+v, which is %x", b, msg, again)
	}
	if f, m, err := Decode(again); err != nil || f != from || !reflect.DeepEqual(m, msg) {
		t.Errorf("%+v comes back as %+v, %v", msg, m, err)
	}
	return true
}

// What is encoded is decoded, and what is cut or damaged is refused or says something that can be said.
func TestMessages(t *testing.T) {
	for _, msg := range samples {
		b := Append(nil, 1<<40, msg)
		if from, got, err := Decode(b); err != nil || from != 1<<40 || !reflect.DeepEqual(got, msg) {
			t.Errorf("%+v comes back as %+v of %d, %v", msg, got, from, err)
		}
		for i := range b {
			if decodes(t, b[:i]) {
				t.Errorf("%d bytes of %x are taken", i, b)
			}
			for v := range 256 {
				d := bytes.Clone(b)
				d[i] = byte(v)
				decodes(t, d)
			}
		}
		if decodes(t, append(bytes.Clone(b), 0)) {
			t.Errorf("more than %x is taken", b)
		}
	}
}

// What no node says is refused.
func TestWhatNobodySays(t *testing.T) {
	for what, b := range map[string][]byte{
		"a message of nobody":                    Append(nil, 0, Leave{Last: 1}),
		"an incarnation beyond all":              Append(nil, 1<<63, Leave{Last: 1}),
		"a number beyond all":                    Append(nil, 1, Leave{Last: 1 << 62}),
		"no heartbeat":                           Append(nil, 1, Heartbeat{}),
		"more marks than notices":                Append(nil, 1, Heartbeat{Beat: 1, Last: 1, Marks: 2}),
		"echoes out of order":                    Append(nil, 1, Heartbeat{Beat: 1, Echoes: []Echo{{Of: 3, Beat: 1}, {Of: 2, Beat: 1}}}),
		"an echo twice":                          Append(nil, 1, Heartbeat{Beat: 1, Echoes: []Echo{{Of: 3, Beat: 1}, {Of: 3, Beat: 1}}}),
		"notice 0":                               Append(nil, 1, Notice{}),
		"a notice that closes a later one":       Append(nil, 1, Notice{Number: 3, Closes: 3}),
		"a request that ends before it begins":   Append(nil, 1, Missing{From: 4, To: 3}),
		"a request from nothing":                 Append(nil, 1, Missing{From: 0, To: 3}),
		"a snapshot with a mark above its end":   Append(nil, 1, Snapshot{Last: 3, Marks: []Mark{{Number: 4, Names: nil}}}),
		"a snapshot with a mark twice":           Append(nil, 1, Snapshot{Last: 3, Marks: []Mark{{Number: 2, Names: nil}, {Number: 2, Names: nil}}}),
		"a snapshot with mark 0":                 Append(nil, 1, Snapshot{Last: 3, Marks: []Mark{{Number: 0, Names: nil}}}),
		"another kind":                           {99, 1},
		"nothing":                                {},
		"a heartbeat that counts a billion more": {heartbeatKind, 1, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 3},
	} {
		if _, msg, err := Decode(b); err == nil {
			t.Errorf("%s is taken: %+v", what, msg)
		}
	}
}

// A heartbeat takes at most 40 bytes, and 16 for each incarnation.
func TestHeartbeatsAreSmall(t *testing.T) {
	h := Heartbeat{Beat: 1<<42 - 1, Last: 1<<62 - 1, Marks: 1024, Hello: true, Server: math.MaxUint64}
	for n := range 100 {
		if b := Append(nil, 1<<63-1, h); len(b) > 40+16*n {
			t.Fatalf("a heartbeat to %d takes %d bytes", n, len(b))
		}
		h.Echoes = append(h.Echoes, Echo{Of: 1<<63 - 200 + Incarnation(n), Beat: 1<<42 - 1})
	}
}

// A token comes back, takes at most 33 bytes, and is refused if it is damaged.
func TestTokens(t *testing.T) {
	tokens := []Token{nil, {{Of: 1, Beat: 0, Elsewhere: false}}, {{Of: 1, Beat: 2, Elsewhere: true}, {Of: 3, Beat: 4, Elsewhere: false}}, {{Of: 1<<35 - 1, Beat: 1<<34 - 1, Elsewhere: true}, {Of: 1<<35 - 2, Beat: 1<<34 - 1, Elsewhere: true}, {Of: 1<<35 - 3, Beat: 1<<34 - 1, Elsewhere: false}}}
	for _, want := range tokens {
		b := AppendToken(nil, want)
		if got, err := DecodeToken(b); err != nil || !reflect.DeepEqual(got, want) || len(b) > 33 {
			t.Errorf("%v takes %d bytes and comes back as %v, %v", want, len(b), got, err)
		}
	}
	for what, b := range map[string][]byte{
		"an incarnation twice":  AppendToken(nil, Token{{Of: 1, Beat: 2, Elsewhere: true}, {Of: 1, Beat: 3, Elsewhere: false}}),
		"four moments":          AppendToken(nil, Token{{Of: 1, Beat: 2, Elsewhere: true}, {Of: 2, Beat: 3, Elsewhere: false}, {Of: 3, Beat: 3, Elsewhere: false}, {Of: 4, Beat: 3, Elsewhere: false}}),
		"a moment of nobody":    AppendToken(nil, Token{{Of: 0, Beat: 2, Elsewhere: true}}),
		"half a moment":         {1},
		"a heartbeat too large": {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
	} {
		if got, err := DecodeToken(b); err == nil {
			t.Errorf("%s is taken: %v", what, got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, msg := range samples {
		f.Add(Append(nil, 3, msg))
	}
	f.Fuzz(func(t *testing.T, b []byte) { decodes(t, b) })
}

func FuzzToken(f *testing.F) {
	f.Add(AppendToken(nil, Token{{Of: 1, Beat: 2, Elsewhere: true}, {Of: 3, Beat: 4, Elsewhere: false}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if token, err := DecodeToken(b); err == nil && !bytes.Equal(AppendToken(nil, token), b) {
			t.Errorf("%x is %v", b, token)
		}
	})
}
