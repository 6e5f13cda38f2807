package mesh

import (
	"bytes"
	"reflect"
	"testing"
)

func someWrites() []*Write {
	deps := NewFrontier(Dot{1, 1}, Dot{1, 2}, Dot{3, 1})
	more := NewFrontier(Dot{1, 1}, Dot{1, 2}, Dot{1, 3}, Dot{3, 1}, Dot{3, 5}, Dot{4, 1})
	return []*Write{
		{Dot: Dot{1, 3}, Stamp: Stamp{7, 1}, Deps: deps, Muts: []Mut{{Key: "k", Value: []byte("v")}}},
		{Dot: Dot{1, 4}, Stamp: Stamp{8, 1}, Deps: deps, After: []Dot{{1, 3}}, Muts: []Mut{{Key: "k", Delete: true}, {Key: "", Value: []byte("w")}}},
		{Dot: Dot{3, 2}, Stamp: Stamp{9, 3}, Deps: more},
		{Dot: Dot{2, 1}, Stamp: Stamp{10, 2}, Deps: NewFrontier(Dot{1, 1})},
	}
}

func someMessages() (out []Message) {
	for i, w := range someWrites() {
		out = append(out, Chain{View: 3, Head: Origin(i), Write: w})
	}
	w := someWrites()[2]
	return append(out, Lap{View: 3, Seen: w.Deps, Stable: NewFrontier(Dot{1, 1}), Low: 99}, Greeting{View: 1 << 40, Received: w.Deps}, Greeting{})
}

func TestMessagesComeBack(t *testing.T) {
	var out, in Stream
	for _, m := range someMessages() {
		b := out.Append(nil, m)
		got, err := in.Decode(b)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Fatalf("%+v came back as %+v, %v", m, got, err)
		}
	}
	for _, w := range someWrites() {
		if got, err := DecodeWrite(AppendWrite(nil, w)); err != nil || !reflect.DeepEqual(got, w) {
			t.Fatalf("%v came back as %v, %v", w, got, err)
		}
	}
}

// A write whose causes are those of the last one costs no more for having many.
func TestStreamsTellWhatChanged(t *testing.T) {
	var many Frontier
	for o := range Origin(100) {
		many.add(Dot{o + 1, 1})
	}
	var s Stream
	w := &Write{Dot: Dot{1, 2}, Stamp: Stamp{5, 1}, Deps: many, Muts: []Mut{{Key: "k", Value: []byte("v")}}}
	first, second := len(s.Append(nil, Chain{1, 1, w})), len(s.Append(nil, Chain{1, 1, w}))
	if first < 200 || second > 20 {
		t.Fatalf("it took %d bytes, and then %d", first, second)
	}
}

func TestTokens(t *testing.T) {
	s := &Session{deps: someWrites()[2].Deps, time: 1 << 50}
	s.carry(someWrites()[1], someWrites()[3])
	full := s.Token(4096)
	got, err := Resume(full)
	if err != nil || got.String() != s.String() || got.Bare() {
		t.Fatalf("%v came back as %v, %v", s, got, err)
	}
	short := s.Token(10)
	got, err = Resume(short)
	if err != nil || len(short) >= len(full) || len(got.bare) != len(s.carried) || !got.Bare() || !got.deps.Equal(s.deps) || got.time != s.time {
		t.Fatalf("%v came back as %v, %v", s, got, err)
	}
	again, err := Resume(got.Token(4096))
	if err != nil || again.String() != got.String() {
		t.Fatalf("%v came back as %v, %v", got, again, err)
	}
	for i := range full {
		if _, err := Resume(full[:i]); err == nil {
			t.Fatalf("half a token of %d bytes was taken", i)
		}
	}
}

func FuzzResume(f *testing.F) {
	s := &Session{deps: someWrites()[2].Deps, time: 12}
	s.carry(someWrites()[1], someWrites()[3])
	f.Add(s.Token(4096))
	f.Add(s.Token(0))
	f.Add((&Session{}).Token(0))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Resume(b)
		if err != nil {
			return
		}
		if again := s.Token(1 << 20); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
		s.Fork().Join(s) // and it is of use: nothing panics
		server := New(Options{Self: 1, View: View{1, []Origin{1, 2}}})
		server.Step(0, s.Put(1, Mut{Key: "k"}), nil)
		server.Step(0, s.Recall(2), nil)
		server.Step(0, s.ReadMany(3, "a", "b"), nil)
	})
}

func FuzzMessages(f *testing.F) {
	var s Stream
	for _, m := range someMessages() {
		f.Add(s.Append(nil, m))
	}
	f.Add(AppendWrite(nil, someWrites()[1]))
	f.Fuzz(func(t *testing.T, b []byte) {
		if w, err := DecodeWrite(b); err == nil {
			if again := AppendWrite(nil, w); !bytes.Equal(again, b) {
				t.Fatalf("%x became %x", b, again)
			}
		}
		var in, out, in2 Stream
		m, err := in.Decode(b)
		if err != nil {
			return
		}
		again, err := in2.Decode(out.Append(nil, m)) // what is told as a change may have been told in full
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
	})
}
