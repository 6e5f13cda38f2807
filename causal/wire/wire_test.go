package wire

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/freshet-cache/freshet/causal/dot"
	. "github.com/freshet-cache/freshet/causal/mesh"
)

func someWrites() []*Write {
	deps := dot.NewFrontier(Dot{Incarnation: 1, N: 1}, Dot{Incarnation: 1, N: 2}, Dot{Incarnation: 3, N: 1})
	more := dot.NewFrontier(Dot{Incarnation: 1, N: 1}, Dot{Incarnation: 1, N: 2}, Dot{Incarnation: 1, N: 3}, Dot{Incarnation: 3, N: 1}, Dot{Incarnation: 3, N: 5}, Dot{Incarnation: 4, N: 1})
	return []*Write{
		{Dot: Dot{Incarnation: 1, N: 3}, Stamp: Stamp{Time: 7, Incarnation: 1}, Deps: deps, Muts: []Mut{{Key: "k", Value: []byte("v")}}},
		{Dot: Dot{Incarnation: 1, N: 4}, Stamp: Stamp{Time: 8, Incarnation: 1}, Deps: deps, After: []Dot{{Incarnation: 1, N: 3}}, Muts: []Mut{{Key: "k", Delete: true}, {Key: "", Value: []byte("w")}}},
		{Dot: Dot{Incarnation: 3, N: 2}, Stamp: Stamp{Time: 9, Incarnation: 3}, Deps: more},
		{Dot: Dot{Incarnation: 2, N: 1}, Stamp: Stamp{Time: 10, Incarnation: 2}, Deps: dot.NewFrontier(Dot{Incarnation: 1, N: 1})},
	}
}

func someMessages() (out []Message) {
	for i, w := range someWrites() {
		out = append(out, Chain{View: 3, Head: Incarnation(i), Write: w})
	}
	w := someWrites()[2]
	return append(out, Named{View: 3, Dot: Dot{Incarnation: 2, N: 300}}, Snapshot{View: 2, Visible: dot.NewFrontier(Dot{Incarnation: 1, N: 1}), Received: w.Deps, Time: 9, Log: someWrites()},
		StabilityRound{View: 3, Seen: w.Deps, Stable: dot.NewFrontier(Dot{Incarnation: 1, N: 1}), Low: 99}, Resync{View: 1 << 40, Received: w.Deps}, Resync{})
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
	for o := range Incarnation(100) {
		many.Add(Dot{Incarnation: o + 1, N: 1})
	}
	var s Stream
	w := &Write{Dot: Dot{Incarnation: 1, N: 2}, Stamp: Stamp{Time: 5, Incarnation: 1}, Deps: many, Muts: []Mut{{Key: "k", Value: []byte("v")}}}
	first, second := len(s.Append(nil, Chain{View: 1, Head: 1, Write: w})), len(s.Append(nil, Chain{View: 1, Head: 1, Write: w}))
	if first < 200 || second > 20 {
		t.Fatalf("it took %d bytes, and then %d", first, second)
	}
}

func TestTokens(t *testing.T) {
	s := &Session{Deps: someWrites()[2].Deps, Time: 1 << 50}
	s.Carried = []*Write{someWrites()[1], someWrites()[3]}
	full := Token(s, 4096)
	got, err := Resume(full)
	if err != nil || got.String() != s.String() || len(got.Bare) > 0 {
		t.Fatalf("%v came back as %v, %v", s, got, err)
	}
	short := Token(s, 10)
	got, err = Resume(short)
	if err != nil || len(short) >= len(full) || len(got.Bare) != len(s.Carried) || len(got.Bare) == 0 || !got.Deps.Equal(s.Deps) || got.Time != s.Time {
		t.Fatalf("%v came back as %v, %v", s, got, err)
	}
	again, err := Resume(Token(got, 4096))
	if err != nil || again.String() != got.String() {
		t.Fatalf("%v came back as %v, %v", got, again, err)
	}
	for i := range full {
		if _, err := Resume(full[:i]); err == nil {
			t.Fatalf("half a token of %d bytes was taken", i)
		}
	}
}

func someTx() *Tx {
	t := &Tx{Session: Session{Deps: someWrites()[2].Deps, Time: 7}, Open: 2, Branch: true}
	t.Carried = []*Write{someWrites()[1]}
	t.At = Snap{Set: t.Deps, View: &View{Number: 4, Ring: []Incarnation{1, 3}, Departed: []Incarnation{2}, Newest: 3}}
	t.Seen = []Seen{{Key: "a", Stamp: Stamp{Time: 3, Incarnation: 1}}, {Key: "b"}}
	t.Set(Mut{Key: "k", Value: []byte("v")})
	t.Set(Mut{Key: "l", Delete: true})
	return t
}

func TestTransactionsTravel(t *testing.T) {
	for _, tx := range []*Tx{someTx(), {}} {
		token := TxToken(tx)
		got, err := ResumeTx(token)
		if err != nil || !reflect.DeepEqual(got, tx) {
			t.Fatalf("%+v came back as %+v, %v", tx, got, err)
		}
		for i := range token {
			if _, err := ResumeTx(token[:i]); err == nil {
				t.Fatalf("half a token of %d bytes was taken", i)
			}
		}
	}
}

func FuzzResumeTx(f *testing.F) {
	f.Add(TxToken(someTx()))
	f.Add(TxToken(&Tx{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		tx, err := ResumeTx(b)
		if err != nil {
			return
		}
		if again := TxToken(tx); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
		server := New(Options{Incarnation: 1, View: View{Number: 1, Ring: []Incarnation{1, 2}}})
		server.Step(0, tx.Begin(1), nil)
		server.Step(0, tx.Look(2, "a", "b"), nil)
		server.Step(0, tx.Commit(3), nil)
	})
}

func FuzzResume(f *testing.F) {
	s := &Session{Deps: someWrites()[2].Deps, Time: 12}
	s.Carried = []*Write{someWrites()[1], someWrites()[3]}
	f.Add(Token(s, 4096))
	f.Add(Token(s, 0))
	f.Add(Token(&Session{}, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Resume(b)
		if err != nil {
			return
		}
		if again := Token(s, 1<<20); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
		s.Fork().Join(s) // and it is of use: nothing panics
		server := New(Options{Incarnation: 1, View: View{Number: 1, Ring: []Incarnation{1, 2}}})
		server.Step(0, s.Put(1, Mut{Key: "k"}), nil)
		server.Step(0, s.Recall(2), nil)
		server.Step(0, s.ReadMany(3, "a", "b"), nil)
	})
}

func someFrame() []byte {
	var s Stream
	var b []byte
	for _, m := range someMessages() {
		b = s.AppendPart(b, m)
	}
	return b
}

// A frame comes back in its order, and half a frame not at all.
func TestFramesComeBack(t *testing.T) {
	b := someFrame()
	var in Stream
	got, err := in.DecodeFrame(b, nil)
	if err != nil || !reflect.DeepEqual(got, someMessages()) {
		t.Fatalf("it came back as %+v, %v", got, err)
	}
	ends := map[int]bool{}
	var s Stream
	whole := []byte{}
	for _, m := range someMessages() {
		whole = s.AppendPart(whole, m)
		ends[len(whole)] = true
	}
	for i := range b {
		var in Stream
		if got, err := in.DecodeFrame(b[:i], nil); (err == nil) != ends[i] || err != nil && got != nil {
			t.Fatalf("%d bytes of a frame were taken as %+v, %v", i, got, err)
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(someFrame())
	f.Add(new(Stream).AppendPart(nil, Resync{}))
	f.Add([]byte{})
	f.Add([]byte{0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		var in, out, in2 Stream
		all, err := in.DecodeFrame(b, nil)
		if err != nil {
			return
		}
		var again []byte
		for _, m := range all {
			again = out.AppendPart(again, m)
		}
		got, err := in2.DecodeFrame(again, nil)
		if err != nil || !reflect.DeepEqual(got, all) {
			t.Fatalf("%+v became %+v, %v", all, got, err)
		}
	})
}

func FuzzMessages(f *testing.F) {
	var s Stream
	for _, m := range someMessages() {
		f.Add(s.Append(nil, m))
	}
	f.Add(AppendWrite(nil, someWrites()[1]))
	f.Add([]byte{1, 2, 1, 0x30, 0x30, 0x30, 0, 0, 0x30, 0x30, 0x30, 0x30, 0}) // a write without a name
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
