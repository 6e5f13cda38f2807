package wire

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"

	"github.com/freshet-cache/freshet/causal/dot"
	. "github.com/freshet-cache/freshet/causal/mesh"
)

// damages are encodings that differ from one in a byte or two, or in their length.
func damages(b []byte) (out [][]byte) {
	for i := range b {
		for _, v := range []byte{0, 1, 2, 3, 4, 0x7f, 0x80, 0xff, b[i] + 1, b[i] - 1} {
			d := bytes.Clone(b)
			d[i] = v
			out = append(out, d)
			if i+1 < len(b) {
				e := bytes.Clone(d)
				e[i+1] ^= 1
				out = append(out, e)
			}
		}
		out = append(out, append(bytes.Clone(b[:i]), b[i+1:]...), append(append(bytes.Clone(b[:i]), 0), b[i:]...), b[:i])
	}
	return append(out, append(bytes.Clone(b), 0), nil)
}

// siblingWrite is a write of a space that keeps concurrent ones.
func siblingWrite() *Write {
	return &Write{Dot: Dot{Incarnation: 1, N: 3}, Stamp: Stamp{Time: 7, Incarnation: 1}, Muts: []Mut{{Key: "k", Value: []byte("v"), Siblings: true, Supersedes: []Dot{{Incarnation: 2, N: 1}}}, {Key: "l", Delete: true, Siblings: true}}}
}

// Whatever becomes of an encoding on its way, it is refused, or is the encoding of something else: one thing has one
// encoding.
func TestDamage(t *testing.T) {
	s := &Session{Deps: someWrites()[2].Deps, Time: 1 << 50, Bare: []Dot{{Incarnation: 4, N: 9}}}
	s.Carried = []*Write{someWrites()[1], someWrites()[3]}
	beside := siblingWrite()
	for what, c := range map[string]struct {
		b     []byte
		again func(b []byte) ([]byte, error)
	}{
		"a session": {Token(s, 4096), func(b []byte) ([]byte, error) {
			s, err := Resume(b)
			if err != nil {
				return nil, err
			}
			return Token(s, MaxToken), nil
		}},
		"a transaction": {TxToken(someTx()), func(b []byte) ([]byte, error) {
			tx, err := ResumeTx(b)
			if err != nil {
				return nil, err
			}
			return TxToken(tx), nil
		}},
		"a write": {AppendWrite(nil, beside), func(b []byte) ([]byte, error) {
			w, err := DecodeWrite(b)
			if err != nil || w.Dot.Incarnation == External {
				return b, err
			}
			return AppendWrite(nil, w), nil
		}},
		"writes": {AppendWrites(nil, append(someWrites(), beside)), func(b []byte) ([]byte, error) {
			all, err := DecodeWrites(b)
			if err != nil {
				return nil, err
			}
			return AppendWrites(nil, all), nil
		}},
		"a set": {AppendSet(nil, someWrites()[2].Deps), func(b []byte) ([]byte, error) {
			f, err := DecodeSet(b)
			if err != nil || len(b) == 0 {
				return nil, err
			}
			return AppendSet(nil, f), nil
		}},
	} {
		if again, err := c.again(c.b); err != nil || !bytes.Equal(again, c.b) {
			t.Errorf("%s: %x came as %x, %v", what, c.b, again, err)
		}
		for _, b := range damages(c.b) {
			if again, err := c.again(b); err == nil && !bytes.Equal(again, b) && len(b) > 0 {
				t.Errorf("%s: %x is taken as %x", what, b, again)
			}
		}
	}
}

// The same of sets, and of what servers say to each other.
func TestDamagedMessages(t *testing.T) {
	beside := siblingWrite()
	deps := someWrites()[2].Deps
	if f, err := DecodeSet(AppendSet(nil, deps)); err != nil || !f.Equal(deps) {
		t.Errorf("%v came as %v, %v", deps, f, err)
	}
	if f, err := DecodeSet(nil); err != nil || f.Size() > 0 {
		t.Errorf("nothing is %v, %v", f, err)
	}
	for _, b := range [][]byte{{wireVersion, 99}, {wireVersion, 0}, append([]byte{wireVersion + 1}, new(Stream).Append(nil, Resync{})[1:]...)} {
		if m, err := new(Stream).Decode(b); err == nil {
			t.Errorf("%x is taken as %v", b, m)
		}
	}
	snapshot := Snapshot{View: 2, Visible: dot.NewFrontier(Dot{Incarnation: 1, N: 1}), Received: deps, Stable: dot.NewFrontier(Dot{Incarnation: 3, N: 1}), Durable: dot.NewFrontier(Dot{Incarnation: 4, N: 1}), Time: 9, Log: someWrites(), Elder: []Incarnation{7, 5}}
	round := StabilityRound{View: 3, Seen: deps, Stable: dot.NewFrontier(Dot{Incarnation: 1, N: 1}), Low: 99, Durable: dot.NewFrontier(Dot{Incarnation: 2, N: 1})}
	for _, m := range append(someMessages(), snapshot, round, Chain{View: 1, Head: 1, Write: beside}) {
		b := new(Stream).Append(nil, m)
		got, err := new(Stream).Decode(b)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%+v came as %+v, %v", m, got, err)
		}
		for _, d := range damages(b) {
			got, err := new(Stream).Decode(d)
			if err != nil {
				continue
			}
			if again, err := new(Stream).Decode(new(Stream).Append(nil, got)); err != nil || !reflect.DeepEqual(again, got) {
				t.Errorf("%x is taken as %+v, which comes as %+v, %v", d, got, again, err)
			}
		}
	}
}

// What a trigger has left of a write is taken as it is, and nothing that none has left.
func TestExternalWrites(t *testing.T) {
	entry := func(n, time uint64, key, rest string) []byte {
		b := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64([]byte{externalVersion}, n), time)
		return append(append(binary.BigEndian.AppendUint32(b, uint32(len(key))), key...), rest...)
	}
	for _, c := range []struct {
		b    []byte
		want *Mut
	}{
		{entry(5, 9, "key", "\x01value"), &Mut{Key: "key", Value: []byte("value")}}, {entry(5, 9, "k", "\x01"), &Mut{Key: "k", Value: []byte{}}},
		{entry(5, 9, "key", "\x00"), &Mut{Key: "key", Delete: true}},
		{entry(0, 9, "key", "\x00"), nil}, {entry(5, 9, "", "\x00"), nil}, {entry(5, 9, "key", ""), nil}, {entry(5, 9, "key", "\x02"), nil},
		{entry(5, 9, "key", "\x00v"), nil}, {entry(5, 9, "key", "\x01v")[:21], nil}, {entry(5, 9, "key", "\x01v")[:20], nil}, {[]byte{externalVersion}, nil},
	} {
		w, err := DecodeWrite(c.b)
		switch {
		case c.want == nil && err == nil:
			t.Errorf("%x is taken as %v", c.b, w)
		case c.want == nil:
		case err != nil || !reflect.DeepEqual(w, &Write{Dot: Dot{Incarnation: External, N: 5}, Stamp: Stamp{Time: 9, Incarnation: External}, Muts: []Mut{*c.want}}):
			t.Errorf("%x is taken as %v, %v", c.b, w, err)
		}
	}
}

// How much a token carries is bounded to the byte, and what it may not be is refused.
func TestBoundsOfTokens(t *testing.T) {
	s := &Session{Time: 5, Carried: someWrites()[:2], Bare: []Dot{{Incarnation: 9, N: 9}}}
	n := len(Token(s, MaxToken)) - len(dot.AppendDots(nil, s.Bare))
	for limit, names := range map[int]int{n: 1, n - 1: 3} {
		if got, err := Resume(Token(s, limit)); err != nil || len(got.Bare) != names {
			t.Errorf("a token of %d bytes has %d names where %d bytes may have values: %v", n, len(got.Bare), limit, err)
		}
	}
	one := &Session{Time: 5, Carried: someWrites()[:1]}
	if got, err := Resume(Token(one, 0)); err != nil || len(got.Bare) != 1 || len(got.Carried) != 0 {
		t.Errorf("one write is carried as %+v, %v", got, err)
	}
	long := func(size int) []byte {
		w := &Write{Dot: Dot{Incarnation: 1, N: 1}, Stamp: Stamp{Time: 1, Incarnation: 1}, Muts: []Mut{{Key: "k", Value: []byte{}}}}
		empty := len(Token(&Session{Carried: []*Write{w}}, size))
		w.Muts[0].Value = make([]byte, size-empty-2) // its length takes three bytes instead of one
		return Token(&Session{Carried: []*Write{w}}, size)
	}
	for size, ok := range map[int]bool{MaxToken: true, MaxToken + 1: false} {
		if b := long(size); len(b) != size {
			t.Fatalf("a token of %d bytes, not %d", len(b), size)
		} else if _, err := Resume(b); (err == nil) != ok {
			t.Errorf("a token of %d bytes: %v", size, err)
		}
	}
	tx := &Tx{}
	for tx.Set(Mut{Key: "k", Value: nil}); ; tx.Buffer[0].Value = make([]byte, len(tx.Buffer[0].Value)+2*MaxToken-len(TxToken(tx))) {
		if n := len(TxToken(tx)); n == 2*MaxToken {
			break
		}
	}
	if _, err := ResumeTx(TxToken(tx)); err != nil {
		t.Errorf("the longest token of a transaction: %v", err)
	}
	tx.Buffer[0].Value = append(tx.Buffer[0].Value, 0)
	if _, err := ResumeTx(TxToken(tx)); err == nil {
		t.Error("a longer token of a transaction is taken")
	}
	at := func(time uint64) *Write {
		return &Write{Dot: Dot{Incarnation: 1, N: time}, Stamp: Stamp{Time: time, Incarnation: 1}}
	}
	for what, c := range map[string]struct {
		s  *Session
		ok bool
	}{
		"a large time":            {&Session{Time: mostTime - 1}, true},
		"too large a time":        {&Session{Time: mostTime}, false},
		"a write of a large time": {&Session{Carried: []*Write{at(mostTime - 1)}}, true},
		"of too large a time":     {&Session{Carried: []*Write{at(mostTime)}}, false},
		"causes first":            {&Session{Carried: []*Write{at(1), at(2), at(3)}}, true},
		"effects first":           {&Session{Carried: []*Write{at(2), at(1)}}, false},
		"one write twice":         {&Session{Carried: []*Write{at(1), at(1)}}, false},
		"the last one first":      {&Session{Carried: []*Write{at(1), at(3), at(2)}}, false},
	} {
		if _, err := Resume(Token(c.s, MaxToken)); (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, c := range map[string]struct {
		seen []Seen
		ok   bool
	}{
		"keys in order": {[]Seen{{Key: "a"}, {Key: "b"}, {Key: "c", Siblings: 3}}, true}, "a key twice": {[]Seen{{Key: "a"}, {Key: "a"}}, false}, "keys in another order": {[]Seen{{Key: "b"}, {Key: "a"}}, false},
	} {
		if got, err := ResumeTx(TxToken(&Tx{Seen: c.seen})); (err == nil) != c.ok || c.ok && !reflect.DeepEqual(got.Seen, c.seen) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}
