package fanout

import (
	"bytes"
	"math"
	"reflect"
	"testing"

	"github.com/freshet-cache/freshet/ticks"
)

// samples are messages of every kind.
var samples = []Message{
	Heartbeat{Beat: 1},
	Heartbeat{Beat: 7, Last: 300, Marks: 2, Server: math.MaxUint64, Hello: true, Echoes: []Echo{{1, 0}, {9, 1 << 40}}},
	Notice{Number: 4, Names: []string{"x", "", "tag"}},
	Notice{Number: 5, Closes: 4, Names: []string{"x"}, Counter: 77},
	Missing{}, Missing{3, 9},
	Snapshot{}, Snapshot{Last: 9, Marks: []Mark{{3, []string{"x"}}, {9, nil}}},
	Leave{12},
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
		"a message of nobody":                    Append(nil, 0, Leave{1}),
		"an incarnation beyond all":              Append(nil, 1<<63, Leave{1}),
		"a number beyond all":                    Append(nil, 1, Leave{1 << 62}),
		"no heartbeat":                           Append(nil, 1, Heartbeat{}),
		"more marks than notices":                Append(nil, 1, Heartbeat{Beat: 1, Last: 1, Marks: 2}),
		"echoes out of order":                    Append(nil, 1, Heartbeat{Beat: 1, Echoes: []Echo{{3, 1}, {2, 1}}}),
		"an echo twice":                          Append(nil, 1, Heartbeat{Beat: 1, Echoes: []Echo{{3, 1}, {3, 1}}}),
		"notice 0":                               Append(nil, 1, Notice{}),
		"a notice that closes a later one":       Append(nil, 1, Notice{Number: 3, Closes: 3}),
		"a request that ends before it begins":   Append(nil, 1, Missing{4, 3}),
		"a request from nothing":                 Append(nil, 1, Missing{0, 3}),
		"a snapshot with a mark above its end":   Append(nil, 1, Snapshot{Last: 3, Marks: []Mark{{4, nil}}}),
		"a snapshot with a mark twice":           Append(nil, 1, Snapshot{Last: 3, Marks: []Mark{{2, nil}, {2, nil}}}),
		"a snapshot with mark 0":                 Append(nil, 1, Snapshot{Last: 3, Marks: []Mark{{0, nil}}}),
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
		h.Echoes = append(h.Echoes, Echo{1<<63 - 200 + Incarnation(n), 1<<42 - 1})
	}
}

// A token comes back, takes at most 33 bytes, and is refused if it is damaged.
func TestTokens(t *testing.T) {
	tokens := []Token{nil, {{1, 0, false}}, {{1, 2, true}, {3, 4, false}}, {{1<<35 - 1, 1<<34 - 1, true}, {1<<35 - 2, 1<<34 - 1, true}, {1<<35 - 3, 1<<34 - 1, false}}}
	for _, want := range tokens {
		b := AppendToken(nil, want)
		if got, err := DecodeToken(b); err != nil || !reflect.DeepEqual(got, want) || len(b) > 33 {
			t.Errorf("%v takes %d bytes and comes back as %v, %v", want, len(b), got, err)
		}
	}
	for what, b := range map[string][]byte{
		"an incarnation twice":  AppendToken(nil, Token{{1, 2, true}, {1, 3, false}}),
		"four moments":          AppendToken(nil, Token{{1, 2, true}, {2, 3, false}, {3, 3, false}, {4, 3, false}}),
		"a moment of nobody":    AppendToken(nil, Token{{0, 2, true}}),
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
	f.Add(AppendToken(nil, Token{{1, 2, true}, {3, 4, false}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if token, err := DecodeToken(b); err == nil && !bytes.Equal(AppendToken(nil, token), b) {
			t.Errorf("%x is %v", b, token)
		}
	})
}

// A hit's check allocates nothing.
func TestFreshAllocatesNothing(t *testing.T) {
	g := Grant{Started: 5}
	if n := testing.AllocsPerRun(100, func() { _ = Fresh(7, 9, 1, g) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	for _, c := range []struct {
		now, vouched ticks.Tick
		g            Grant
		want         bool
	}{
		{10, 0, Grant{Started: 8}, true}, {11, 0, Grant{Started: 8}, false}, {11, 11, Grant{Started: 8}, true}, {12, 11, Grant{Started: 8}, false},
		{10, 0, Grant{8, true}, true}, {11, 11, Grant{8, true}, false}, {0, 0, Grant{Started: NeverYoung}, true}, {1, 0, Grant{Started: NeverYoung}, false},
	} {
		if got := Fresh(c.now, c.vouched, 2, c.g); got != c.want {
			t.Errorf("at %d, vouched until %d, %+v is served: %v", c.now, c.vouched, c.g, got)
		}
	}
}
