package causal

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/store/journal"
	"github.com/freshet-cache/freshet/store/memory"
)

// kept is a connection that keeps what is sent on it.
type kept struct {
	Conn
	frames [][]byte
}

func (k *kept) Send(frame []byte) error {
	k.frames = append(k.frames, frame)
	return nil
}

// What waits goes in few frames, none of which is large, and in its order.
func TestWhatWaitsGoesTogether(t *testing.T) {
	conn := &kept{}
	c := &stream{conn: conn}
	value, sent := make([]byte, frameBytes/4), 0
	add := func(value []byte) {
		sent++
		c.add(mesh.Chain{View: 1, Head: 1, Write: &mesh.Write{Dot: mesh.Dot{Incarnation: 1, N: uint64(sent)}, Muts: []mesh.Mut{{Key: "k", Value: value}}}})
	}
	for range frameCount + 1 {
		add(nil)
	}
	c.sendAll()
	for range 5 {
		add(value)
	}
	c.sendAll()
	c.sendAll()
	if len(conn.frames) != 4 {
		t.Fatalf("%d frames", len(conn.frames))
	}
	var dec wire.Stream
	var got []mesh.Message
	for _, f := range conn.frames {
		var err error
		if got, err = dec.DecodeFrame(f[1:], got); err != nil || f[0] != frameMessages || len(f) > frameBytes+len(value) {
			t.Fatalf("a frame of %d bytes: %v", len(f), err)
		}
	}
	for i, m := range got {
		if n := m.(mesh.Chain).Write.Dot.N; n != uint64(i+1) {
			t.Fatalf("number %d came as number %d", n, i+1)
		}
	}
	if len(got) != sent {
		t.Fatalf("%d of %d messages", len(got), sent)
	}
}

// forgets counts the requests with which the store is told what it need not keep.
type forgets struct {
	nobody
	mu sync.Mutex
	n  int
}

func (f *forgets) StoreCall(kind StoreCall, _ time.Duration, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kind == CallTruncate {
		f.n++
	}
}

// The store is told now and then, and at once only when there is much to tell.
func TestTruncationIsSpread(t *testing.T) {
	db, f := memory.NewJournal(memory.Options{}), &forgets{}
	if err := db.Begin(t.Context(), 1, journal.NewName()); err != nil {
		t.Fatal(err)
	}
	s, err := NewServer(ServerOptions{Store: db, Incarnation: 1, View: View{Number: 1, Ring: []RingServer{{Incarnation: 1}}}, Settings: Settings{Round: time.Hour, Recorder: f}})
	if err != nil {
		t.Fatal(err)
	}
	beats := func(upto uint64, n, want int) {
		t.Helper()
		for range n {
			s.mu.Lock()
			s.settle.upto[1] = upto
			s.mu.Unlock()
			s.truncate()
			testkit.Eventually(t, func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return !s.settle.busy
			})
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.n != want {
			t.Fatalf("it was told %d times, not %d", f.n, want)
		}
	}
	beats(1, settleBeats-1, 0)
	beats(2, 1, 1)
	beats(2, 3*settleBeats, 1) // there is nothing to tell
	beats(3, 1, 2)             // long after
	beats(4, settleBeats-1, 2)
	beats(3+settleWrites, 1, 3)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A frame that is long goes in parts, which are one frame again at the other end, whatever
// bytes a part begins with.
func TestLongFramesGoInParts(t *testing.T) {
	for _, fill := range []byte{0, framePart, frameLast, frameMessages, frameAsk} {
		conn := &kept{}
		c := &stream{conn: conn}
		snap := mesh.Snapshot{View: 1}
		for i := range 5 {
			snap.Log = append(snap.Log, &mesh.Write{Dot: mesh.Dot{Incarnation: 1, N: uint64(i + 1)}, Muts: []mesh.Mut{{Key: "k", Value: bytes.Repeat([]byte{fill}, partBytes)}}})
		}
		c.add(snap)
		c.sendAll()
		if len(conn.frames) != 6 {
			t.Errorf("%d frames", len(conn.frames))
		}
		far := &stream{}
		for i, f := range conn.frames {
			if len(f) > partBytes+1 {
				t.Errorf("a frame has %d bytes", len(f))
			}
			all, ok, err := far.whole(f, func() int { return 6 * partBytes })
			if err != nil || ok != (i == len(conn.frames)-1) {
				t.Fatalf("frame %d of %q: %v, %v", i, fill, ok, err)
			}
			if !ok {
				continue
			}
			got, err := far.dec.DecodeFrame(all[1:], nil)
			if err != nil || len(got) != 1 || !bytes.Equal(got[0].(mesh.Snapshot).Log[4].Muts[0].Value, snap.Log[4].Muts[0].Value) || far.parts != nil {
				t.Fatalf("%d messages, %v", len(got), err)
			}
		}
	}
}

// Parts without end are refused, and so is a frame between the parts of another.
func TestPartsAreBounded(t *testing.T) {
	two := func() int { return 2 * partBytes }
	part := append([]byte{framePart}, make([]byte, partBytes)...)
	for what, frames := range map[string][][]byte{"parts without end": {part, part, part}, "a frame between parts": {part, {frameMessages}}, "an empty frame between parts": {part, nil}} {
		c := &stream{}
		var err error
		for _, f := range frames {
			if err == nil {
				_, _, err = c.whole(f, two)
			}
		}
		if err == nil {
			t.Errorf("%s are taken", what)
		}
	}
	for _, f := range [][]byte{nil, {frameAsk}, {frameMessages, 1}, {'?'}} {
		if all, ok, err := (&stream{}).whole(f, two); !ok || err != nil || !bytes.Equal(all, f) {
			t.Errorf("%q comes as %q, %v, %v", f, all, ok, err)
		}
	}
}
