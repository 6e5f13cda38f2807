package causal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
	"github.com/freshet-cache/freshet/codec"
	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/store/journal"
	"github.com/freshet-cache/freshet/store/memory"
)

// spoken is a connection that keeps what is sent on it, and on which nothing can be sent if it is deaf.
type spoken struct {
	kept
	deaf    bool
	broken  chan struct{}
	once    sync.Once
	mu      sync.Mutex
	deliver func(frame []byte) // if it was dialed
}

func newSpoken() *spoken { return &spoken{broken: make(chan struct{})} }

func (c *spoken) Send(frame []byte) error {
	if c.deaf {
		return errors.New("nobody hears")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept.Send(frame)
}

func (c *spoken) sent() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.frames)
}

func (c *spoken) Done() <-chan struct{} { return c.broken }
func (c *spoken) Break()                { c.once.Do(func() { close(c.broken) }) }

func (c *spoken) isBroken() bool {
	select {
	case <-c.broken:
		return true
	default:
		return false
	}
}

// A server takes what its predecessor of its view says on the latest connection, and nothing else.
func TestConnectionsOfNoUse(t *testing.T) {
	db := memory.NewJournal(memory.Options{})
	if err := db.Begin(t.Context(), 1, journal.NewName()); err != nil {
		t.Fatal(err)
	}
	out := newSpoken()
	s, err := NewServer(ServerOptions{Store: db, Incarnation: 1, View: View{Number: 5, Ring: []RingServer{{Incarnation: 1}, {Incarnation: 2}, {Incarnation: 3}}, Newest: 3},
		Dial: func(context.Context, RingServer, func([]byte)) (Conn, error) { return out, nil }, Settings: Settings{Round: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	received := func() uint64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.machine.Received().Upto(2)
	}
	chain := func(n uint64) []byte {
		w := &mesh.Write{Dot: mesh.Dot{Incarnation: 2, N: n}, Stamp: mesh.Stamp{Time: n, Incarnation: 2}}
		return new(wire.Stream).AppendPart([]byte{frameMessages}, mesh.Chain{View: 5, Head: 2, Write: w})
	}
	for what, frame := range map[string][]byte{
		"a hello of another view": hello(4, 3), "of the next view": hello(6, 3), "of the successor": hello(5, 2), "of nobody": hello(5, 9), "no hello": chain(1),
	} {
		c := newSpoken()
		deliver := s.Accept(c)
		if deliver(frame); !c.isBroken() || len(c.frames) > 0 {
			t.Errorf("%s is taken", what)
		}
		if deliver(chain(1)); received() != 0 {
			t.Fatalf("%s: what follows is taken", what)
		}
	}
	first, second := newSpoken(), newSpoken()
	old := s.Accept(first)
	old(hello(5, 3))
	old(chain(1))
	if first.isBroken() || received() != 1 || len(first.frames) != 1 {
		t.Fatalf("a predecessor is not heard: %d, %d", received(), len(first.frames))
	}
	now := s.Accept(second)
	if now(hello(5, 3)); !first.isBroken() || second.isBroken() || len(second.frames) != 1 {
		t.Error("a new connection does not take the place of the old one")
	}
	if old(chain(2)); received() != 1 {
		t.Error("a frame of an old connection is taken")
	}
	if now(chain(2)); received() != 2 {
		t.Error("a frame of the new connection is not taken")
	}
	if now([]byte{frameAsk}); !second.isBroken() {
		t.Error("a predecessor that asks is heard")
	}
	third := newSpoken()
	s.Accept(third)(hello(5, 3))
	testkit.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.ring.out != nil })
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if !out.isBroken() || !third.isBroken() {
		t.Error("a server that is closed keeps its connections")
	}
	late := newSpoken()
	if s.Accept(late)(hello(5, 3)); !late.isBroken() {
		t.Error("a server that is closed takes a connection")
	}
}

// On a connection that is opened again nothing is sent before the successor has said what it has: what was lost with the
// last one would come after what depends on it.
func TestNothingIsSentBeforeAResync(t *testing.T) {
	db := memory.NewJournal(memory.Options{})
	if err := db.Begin(t.Context(), 1, journal.NewName()); err != nil {
		t.Fatal(err)
	}
	opened := make(chan *spoken, 10)
	s, err := NewServer(ServerOptions{Store: db, Incarnation: 1, View: View{Number: 1, Ring: []RingServer{{Incarnation: 1}, {Incarnation: 2}}, Newest: 2},
		Dial: func(_ context.Context, _ RingServer, deliver func([]byte)) (Conn, error) {
			c := newSpoken()
			c.deliver = deliver
			opened <- c
			return c, nil
		}, Settings: Settings{Round: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	space, err := NewSpace(s, SpaceOptions[string]{Codec: codec.String(), Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	session := space.Begin()
	for round := range 3 {
		c := <-opened
		testkit.Eventually(t, func() bool { return c.sent() == 1 }) // the hello
		if err := session.Set(t.Context(), "k", fmt.Sprint(round)); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		waits := s.ring.out.frame != nil || s.ring.added
		s.mu.Unlock()
		if waits || c.sent() > 1 {
			t.Fatalf("round %d: something is sent before the successor has said what it has", round)
		}
		c.deliver(new(wire.Stream).AppendPart([]byte{frameMessages}, mesh.Resync{View: 1}))
		testkit.Eventually(t, func() bool { return c.sent() > 1 })
		var dec wire.Stream
		got, err := dec.DecodeFrame(c.frames[1][1:], nil)
		if err != nil || len(got) != round+1 {
			t.Fatalf("round %d: it is told of %d writes, %v", round, len(got), err)
		}
		c.Break()
	}
}

// What cannot be sent breaks the connection: what follows would not be in order.
func TestNothingIsSentOutOfOrder(t *testing.T) {
	conn := newSpoken()
	conn.deaf = true
	c := &stream{conn: conn}
	c.send(hello(1, 1))
	if !conn.isBroken() {
		t.Error("a connection goes on without a frame")
	}
}
