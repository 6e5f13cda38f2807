package causal

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/leader"
	"github.com/freshet-cache/freshet/member"
	"github.com/freshet-cache/freshet/member/view"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/journal"
	"github.com/freshet-cache/freshet/store/memory"
	"github.com/freshet-cache/freshet/ticks"
)

// Options that cannot work are refused with what to do about them, by servers and by rings.
func TestOptionsThatCannotWork(t *testing.T) {
	db := memory.NewJournal(memory.Options{})
	one, two := View{Ring: []RingServer{{Incarnation: 1}}}, View{Ring: []RingServer{{Incarnation: 1}, {Incarnation: 2}}}
	dial := func(context.Context, RingServer, func([]byte)) (Conn, error) { return newSpoken(), nil }
	for says, o := range map[string]ServerOptions{
		"Options.Store is nil":                            {Incarnation: 1, View: one},
		"Options.Incarnation is 0":                        {Store: db, View: View{Ring: []RingServer{{}}}},
		"Options.Incarnation is 3":                        {Store: db, Incarnation: 3, View: two, Dial: dial},
		"Options.Dial is nil":                             {Store: db, Incarnation: 1, View: two},
		"Options.Joins is set":                            {Store: db, Incarnation: 1, View: one, Joins: true},
		"Options.Concurrent do not go together":           {Store: db, Incarnation: 1, View: one, Settings: Settings{Log: db, Concurrent: true}},
		"the store cannot merge":                          {Store: struct{ Store }{db}, Incarnation: 1, View: one, Settings: Settings{Log: db}},
		"Options.Timeout is -1ns":                         {Store: db, Incarnation: 1, View: one, Settings: Settings{Timeout: -1}},
		"Options.Round -1ns":                              {Store: db, Incarnation: 1, View: one, Settings: Settings{Round: -1}},
		"what was merged into the store":                  {Store: db, Incarnation: 1, View: one, Mark: []byte("damaged"), Settings: Settings{Log: db}},
		"which is not in the view's ring; an incarnation": {Store: db, Incarnation: 1},
	} {
		if s, err := NewServer(o); err == nil || s != nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
	ask := func(context.Context, []byte) ([]byte, error) { return nil, errors.New("nobody") }
	for what, o := range map[string]Options{"no store": {Addr: "a", Ask: ask}, "no address": {Store: db, Ask: ask}, "nobody to ask": {Store: db, Addr: "a"}, "a wrong server": {Store: db, Addr: "a", Ask: ask, Settings: Settings{Timeout: -1}}} {
		if r, err := Join(o); err == nil || r != nil {
			t.Errorf("%s: it is taken", what)
		}
	}
}

// Nothing that is not a hello of the predecessor in this view, whole and no more, opens a connection; nothing that is not
// a frame keeps one open.
func TestNoise(t *testing.T) {
	db := memory.NewJournal(memory.Options{})
	if err := db.Begin(t.Context(), 1, journal.NewName()); err != nil {
		t.Fatal(err)
	}
	operator := &said{}
	s, err := NewServer(ServerOptions{Store: db, Incarnation: 1, View: View{Number: 5, Ring: []RingServer{{Incarnation: 1}, {Incarnation: 2}, {Incarnation: 3}}, Newest: 3},
		Dial: func(context.Context, RingServer, func([]byte)) (Conn, error) {
			return nil, errors.New("nobody is there")
		}, Settings: Settings{Round: time.Hour, Logger: operator.logger()}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	whole := hello(5, 3)
	noise := map[string][]byte{"nothing": nil, "another version": {frameHello, helloVersion + 1, 5, 3}, "no hello": {frameAsk, helloVersion, 5, 3}, "more": append(hello(5, 3), 0),
		"a number that is too large": binary.AppendUvarint([]byte{frameHello, helloVersion, 5}, 1<<32+3), "a view without end": append([]byte{frameHello, helloVersion}, strings.Repeat("\xff", 12)...)}
	for i := range whole {
		noise["cut short"+string(rune('0'+i))] = whole[:i]
	}
	for what, frame := range noise {
		c := newSpoken()
		if s.Accept(c)(frame); !c.isBroken() || c.sent() > 0 {
			t.Errorf("a hello that is %s opens a connection", what)
		}
	}
	message := new(wire.Stream).AppendPart([]byte{frameMessages}, mesh.Chain{View: 5, Head: 2, Write: &mesh.Write{Dot: mesh.Dot{Incarnation: 2, N: 1}, Stamp: mesh.Stamp{Time: 1, Incarnation: 2}}})
	for what, frame := range map[string][]byte{"empty": {}, "of another kind": {'?'}, "another hello": whole, "cut short": message[:len(message)-1], "an ask of who is asked": {frameAsk}} {
		c := newSpoken()
		deliver := s.Accept(c)
		if deliver(whole); c.isBroken() {
			t.Fatal("a hello does not open a connection")
		}
		if deliver(frame); !c.isBroken() || !operator.has("sent what cannot be read") {
			t.Errorf("a frame that is %s keeps it open", what)
		}
	}
	s.Enter(View{Number: 6, Ring: []RingServer{{Incarnation: 2}, {Incarnation: 3}}, Departed: []uint32{1}, Newest: 3})
	for _, o := range []uint32{2, 3} {
		c := newSpoken()
		if s.Accept(c)(hello(6, o)); !c.isBroken() {
			t.Errorf("who is in no ring takes a connection of %d", o)
		}
	}
}

// A server that cannot tell whether it is a member reads from the store; what the store does not answer, or what cannot be
// read there, is an error, and the session is as it was. What was read comes with its causes.
func TestReadsPastTheServersFail(t *testing.T) {
	db := newShaky()
	serves := true
	c := gather(t, 2, memory.Options{}, func(o *ServerOptions) {
		o.Store, o.Round = db, time.Hour // nothing becomes visible
		if o.Incarnation == 2 {
			o.Serves = func() bool { return serves }
		}
		if err := db.Begin(t.Context(), o.Incarnation, journal.NewName()); err != nil {
			t.Fatal(err)
		}
	})
	ctx := t.Context()
	s := c.spaces[0].Begin()
	if err := errors.Join(s.Set(ctx, "cause", "1"), s.Set(ctx, "effect", "1")); err != nil {
		t.Fatal(err)
	}
	serves = false
	o := c.spaces[1].Begin()
	for _, request := range []string{"load", "fetch"} {
		db.lose(request, 1)
		if _, _, err := o.Get(ctx, "effect"); !errors.Is(err, ErrExpelled) || !strings.Contains(err.Error(), "the answer to "+request) || o.m.Time != 0 {
			t.Errorf("%s: %v, and the session is %+v", request, err, o.m)
		}
	}
	db.mend(1, []byte("damaged"))
	if _, _, err := o.Get(ctx, "cause"); !errors.Is(err, wire.ErrFormat) || o.m.Time != 0 {
		t.Errorf("a journal that cannot be read: %v", err)
	}
	db.unmend(1)
	if v, _, err := o.Get(ctx, "effect"); v != "1" || err != nil {
		t.Fatalf("%q, %v", v, err)
	}
	if !o.m.Knows(mesh.Dot{Incarnation: 1, N: 1}) || !o.m.Knows(mesh.Dot{Incarnation: 1, N: 2}) {
		t.Errorf("it has read an effect without its cause: %+v", o.m)
	}
	if err := o.Set(ctx, "k", "v"); !errors.Is(err, ErrExpelled) {
		t.Errorf("it writes: %v", err)
	}
}

// What has no answer of the store, or is given up, leaves the session as it was.
func TestGivingUp(t *testing.T) {
	block, free := make(chan struct{}, 10), make(chan struct{})
	_, server, sp := alone(t, memory.Options{Before: func(_ context.Context, c memory.Call) error {
		if c.Op == memory.OpLoad && c.Key == "slow" {
			block <- struct{}{}
			<-free
		}
		return nil
	}})
	cause := errors.New("the caller has gone")
	ended, end := context.WithCancelCause(t.Context())
	s := sp.Begin()
	told := make(chan error)
	go func() { _, _, err := s.Get(ended, "slow"); told <- err }()
	<-block
	end(cause)
	if err := <-told; !errors.Is(err, cause) || s.m.Time != 0 {
		t.Errorf("%v", err)
	}
	was := server.ops
	if _, _, err := s.Get(ended, "k"); !errors.Is(err, cause) {
		t.Errorf("who has gone reads: %v", err)
	}
	if err := s.Set(ended, "k", "v"); !errors.Is(err, cause) || errors.Is(err, ErrOutcomeUnknown) || server.ops != was {
		t.Errorf("who has gone writes: %v", err)
	}
	if err := server.Close(ended); !errors.Is(err, cause) { // the store has not answered yet
		t.Errorf("it does not say that it has not ended: %v", err)
	}
	close(free)
	if err := server.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// Who was left out once, and is in the ring again, waits until it is left out when it leaves.
func TestLeavingAfterHavingBeenLeftOut(t *testing.T) {
	emptyPools()
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, leaseLength, false)
		at := r.join(t)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		ring := r.rings[at]
		if _, err := ring.TokenKey(); !errors.Is(err, ErrJoining) || len(ring.View().Ring) != 0 {
			t.Errorf("before it has a place: %v, %+v", err, ring.View())
		}
		if err := ring.Keyed(ended); !errors.Is(err, ErrJoining) || !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		early := newSpoken()
		if ring.Accept(early)(hello(1, 1)); !early.isBroken() {
			t.Error("a connection to nobody is kept")
		}
		if err := ring.Keyed(t.Context()); err != nil {
			t.Error(err)
		}
		other := r.join(t)
		s := r.spaces[at].Begin()
		writes(t, s, "x", "1")
		if err := r.rings[other].Keyed(t.Context()); err != nil {
			t.Error(err)
		}
		a, errA := ring.TokenKey()
		b, errB := r.rings[other].TokenKey()
		if err := errors.Join(errA, errB); err != nil || string(a) != string(b) || len(a) == 0 {
			t.Errorf("one ring has two keys: %v", err)
		}
		if v := ring.View(); len(v.Ring) == 0 || v.Ring[0].Addr != "0" {
			t.Errorf("%+v", v)
		}
		r.setMute(at, true)
		testkit.Eventually(t, func() bool { v := r.throne.stored(t); return len(v.Ring) == 1 && v.Ring[0].Addr == "1" })
		r.setMute(at, false)
		testkit.Eventually(t, func() bool { return len(r.throne.stored(t).Ring) == 2 })
		writes(t, s, "x", "2")
		r.throne.crown(-1)
		time.Sleep(leadSlack) // nobody decides any more
		soon, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := ring.Leave(soon); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it has left, and nobody has decided so: %v", err)
		}
		r.throne.crown(0)
		if err := ring.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		if v := r.throne.stored(t); len(v.Ring) != 1 || v.Ring[0].Addr != "1" {
			t.Errorf("it has left, and is in %+v", v)
		}
		time.Sleep(5 * leaseLength)
		if v := r.throne.stored(t); len(v.Ring) != 1 || v.Ring[0].Addr != "1" {
			t.Errorf("it has left, and is back in %+v", v)
		}
		r.end(at, false)
		r.end(other, false)
	})
	emptyPools()
}

// office is a coordinator that lets one leader lead, and says which processes have ended.
type office struct {
	mu    sync.Mutex
	state []byte
	gone  string
	fails bool
}

func (o *office) Lead(ctx context.Context) (leader.Leadership, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return leader.Leadership{Term: 1, State: o.state, Gone: func(host string) bool { return host == o.gone }}, ctx.Err()
}

func (o *office) Save(_ context.Context, _ uint64, state []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fails {
		return store.ErrUnavailable
	}
	o.state = state
	return nil
}

func (o *office) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

// A leader leaves out at once who lived in a process that its coordinator has seen end, and nobody else; it does not lead
// over a state that cannot be read, and says so; what is not stored is said again, and does not keep it from closing.
func TestLeaderAndItsCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := view.View{Number: 3, Newest: 2, Ring: []view.Place{{Incarnation: 1, Name: "a", Host: "one"}, {Incarnation: 2, Name: "b", Host: "two"}}, Key: []byte("key")}
		o, operator := &office{state: []byte("damaged"), gone: "two"}, &said{}
		k := member.StartLeader(o, member.LeaderOptions{Options: view.Options{Length: ticks.Tick(time.Hour)}, Beat: time.Second, Logger: operator.logger()})
		request := view.AppendRenew(nil, view.Renew{Name: "a", Host: "one", Incarnation: 1, Seq: 1, Knows: true, View: 3, Sum: v.Sum()})
		time.Sleep(time.Minute)
		if k.Answer(request) != nil || !operator.has("cannot be read; restore it") {
			t.Errorf("it leads over a state that cannot be read: %s", &operator.text)
		}
		o.set(func() { o.state = view.AppendView(nil, v) })
		time.Sleep(3 * time.Second)
		if got := k.View(); len(got.Ring) != 1 || got.Ring[0].Name != "a" || len(got.Departed) != 1 {
			t.Errorf("behind the end of a process the ring is %+v", got)
		} else {
			got.Ring[0].Name, got.Departed[0] = "changed", 9
		}
		if got := k.View(); got.Ring[0].Name != "a" || got.Departed[0] != 2 {
			t.Errorf("who is told of the ring changes it: %+v", got)
		}
		if g, err := view.DecodeGrant(k.Answer(request)); err != nil || g.Incarnation != 1 {
			t.Errorf("%+v, %v", g, err)
		}
		o.set(func() { o.fails = true })
		join := view.AppendRenew(nil, view.Renew{Name: "c", Host: "three", Seq: 1})
		if k.Answer(join) == nil {
			t.Error("it does not answer")
		}
		time.Sleep(time.Minute)
		if got := k.View(); len(got.Ring) != 1 || !operator.has("coordinator does not save") {
			t.Errorf("what is not stored is told: %+v", got)
		}
		o.set(func() { o.fails = false })
		time.Sleep(2 * time.Second)
		if got := k.View(); len(got.Ring) != 2 {
			t.Errorf("it is not said again: %+v", got)
		}
		o.set(func() { o.fails = true })
		k.Answer(view.AppendRenew(nil, view.Renew{Name: "d", Host: "four", Seq: 1}))
		time.Sleep(time.Minute)
		operator.mu.Lock()
		operator.text.Reset()
		operator.mu.Unlock()
		if k.Close(); operator.has("does not lead") {
			t.Errorf("it was closed, and says %s", &operator.text)
		}
	})
}

// Every request to the store ends in its time, whatever it is for.
func TestRequestsToTheStoreEndInTime(t *testing.T) {
	var mu sync.Mutex
	asked := map[memory.Op]int{}
	_, _, sp := alone(t, memory.Options{Before: func(ctx context.Context, c memory.Call) error {
		if c.Key == "" && c.Op == memory.OpPersist { // the test's own
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if asked[c.Op]++; ctx == nil {
			t.Errorf("%s without a context", c.Op)
		} else if at, ok := ctx.Deadline(); !ok || time.Until(at) > 5*time.Second {
			t.Errorf("%s may take until %v, %v", c.Op, at, ok)
		}
		return nil
	}})
	ctx, s := t.Context(), sp.Begin()
	if err := errors.Join(s.Set(ctx, "k", "v"), s.Delete(ctx, "k")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Get(ctx, "other"); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return asked[memory.OpLoad] > 0 && asked[memory.OpPersist] > 0 && asked[memory.OpTruncate] > 0 && asked[memory.OpFetch] > 0
	})
}

// A branch of a transaction reads what its snapshot had though the key was written a few times since, without an option.
func TestFormerValuesAreKept(t *testing.T) {
	_, _, sp := alone(t, memory.Options{})
	ctx, s := t.Context(), sp.Begin()
	if err := s.Set(ctx, "k", "was"); err != nil {
		t.Fatal(err)
	}
	tx, err := s.BeginTx(ctx)
	if err != nil {
		t.Fatal(err)
	}
	branch := tx.Fork()
	for i := range 7 {
		if err := s.Set(ctx, "k", string(rune('a'+i))); err != nil {
			t.Fatal(err)
		}
		if v, _, err := branch.Get(ctx, "k"); v != "was" || err != nil {
			t.Errorf("behind %d writes it is %q, %v", i+1, v, err)
		}
	}
	if err := s.Set(ctx, "k", "z"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := branch.Get(ctx, "k"); !errors.Is(err, ErrStale) {
		t.Errorf("what nobody remembers is %v", err)
	}
}
