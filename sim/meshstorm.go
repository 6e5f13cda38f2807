package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
	"github.com/freshet-cache/freshet/check"
	"github.com/freshet-cache/freshet/shard/lease"
)

// MeshConfig is what a storm over package mesh is made of. All of it follows from the
// seed, so that every seed is another kind of weather.
type MeshConfig struct {
	Servers, Keys, Clients, Calls int
	Window, Capacity              int // of a server
	Delay, Disk, Beat             lease.Tick
	Crawl                         int // percent of messages between servers that take very long
	Breaks, Evictions             int // how many
	Lost                          int // percent of answers of the store
	Roam, Branch, Strip           int // percent of calls
	Outside                       bool
}

// NewMeshConfig draws a storm.
func NewMeshConfig(seed uint64) MeshConfig {
	r := newWorld(seed).rng("config")
	pick := func(vs ...int) int { return vs[r.IntN(len(vs))] }
	cfg := MeshConfig{
		Servers: pick(1, 2, 3, 3, 3, 4, 5), Keys: pick(1, 2, 3, 6), Clients: 2 + r.IntN(5), Calls: 60 + r.IntN(120),
		Window: pick(2, 5, 0), Capacity: pick(1, 2, 0, 0),
		Delay: lease.Tick(pick(100, 2_000, 20_000)), Disk: lease.Tick(pick(0, 1_000, 10_000)),
		Crawl: pick(0, 0, 5, 30), Breaks: pick(0, 0, 3, 10), Evictions: pick(0, 10, 60), Lost: pick(0, 5, 25),
		Roam: pick(10, 50, 100), Branch: pick(0, 5, 15), Strip: pick(0, 10, 50), Outside: r.IntN(10) == 0,
	}
	cfg.Beat = (cfg.Delay + cfg.Disk) * lease.Tick(pick(1, 4, 20))
	return cfg
}

// meshStorm is the world of causal: servers with the machines that ship, one store, a
// ring of connections, and clients that roam.
type meshStorm struct {
	*world
	cfg     MeshConfig
	store   *MeshStore
	servers []*mesh.Server
	links   []*meshLink
	clients []*meshClient
	open    map[mesh.Op]*meshCall
	ops     mesh.Op
	acts    []check.Act
	acted   map[string]bool // writes that stand in acts
	calls   int             // left
	frozen  bool            // nothing arrives between servers
	calm    bool            // no more faults
	res     Result
	logged  bool
}

// meshLink is the connection from a server to its successor.
type meshLink struct {
	conn      int        // the one that stands
	sends     int        // the one that the sender uses
	there     lease.Tick // when the last message arrives
	back      lease.Tick
	up        bool
	streams   map[int]*[2]wire.Stream // of every connection, what encodes and what decodes
	postponed []func()
}

// meshClient is a workflow, or a branch of one.
type meshClient struct {
	name    string
	session *mesh.Session
	last    int // act; -1 if none
	at      int
	busy    bool
	gone    bool
}

type meshCall struct {
	client *meshClient
	server int
	keys   []string
	muts   []mesh.Mut
	retry  func()
}

// RunMesh runs a storm to its end, and on until everything has settled.
func RunMesh(seed uint64, cfg MeshConfig, log bool) (res Result) {
	s := &meshStorm{world: newWorld(seed), cfg: cfg, store: NewMeshStore(), open: map[mesh.Op]*meshCall{}, acted: map[string]bool{}, calls: cfg.Calls, logged: log}
	s.res.Sometimes = map[string]int{}
	defer func() {
		if r := recover(); r != nil {
			s.fail(fmt.Errorf("panic: %v", r))
			res = s.res
		}
	}()
	s.begin()
	for s.res.Err == nil && s.calls > 0 && s.next(1<<50) {
		s.res.Events++
	}
	s.settle()
	s.res.At = s.now
	return s.res
}

func (s *meshStorm) begin() {
	view := mesh.View{Number: 1}
	for i := range s.cfg.Servers {
		view.Ring = append(view.Ring, mesh.Origin(i+1))
	}
	for range s.cfg.Servers {
		s.links = append(s.links, &meshLink{streams: map[int]*[2]wire.Stream{}})
	}
	floor := mesh.Stamp{}
	if s.cfg.Outside {
		floor.Time = 5
		s.store.Outside("a", "before", 5)
	}
	for i := range s.cfg.Servers {
		s.servers = append(s.servers, mesh.New(mesh.Options{Self: mesh.Origin(i + 1), View: view, Floor: floor, Window: s.cfg.Window, Keys: s.cfg.Capacity}))
	}
	for i := range s.servers {
		s.connect(i)
	}
	s.after(s.cfg.Beat, s.beat)
	for i := range s.cfg.Clients {
		c := &meshClient{name: fmt.Sprint("c", i), session: &mesh.Session{}, last: -1}
		s.clients = append(s.clients, c)
		s.think(c)
	}
	r := s.rng("faults")
	span := lease.Tick(s.cfg.Calls) * (s.cfg.Delay + s.cfg.Disk) / lease.Tick(s.cfg.Clients) * 3
	for range s.cfg.Breaks {
		i := r.IntN(len(s.links))
		s.after(lease.Tick(r.Int64N(int64(span))), func() { s.cut(i) })
	}
	for range s.cfg.Evictions {
		i, k := r.IntN(len(s.servers)), s.key(r)
		s.after(lease.Tick(r.Int64N(int64(span))), func() { s.step(i, mesh.Evicted{Key: k}) })
	}
}

func (s *meshStorm) key(r *rand.Rand) string { return string(rune('a' + r.IntN(s.cfg.Keys))) }

func (s *meshStorm) beat() {
	s.step(0, mesh.Beat{})
	s.after(s.cfg.Beat, s.beat)
}

func (s *meshStorm) fail(err error) {
	if s.res.Err == nil && err != nil {
		s.res.Err, s.res.At = err, s.now
		s.log("BROKEN: %v", err)
	}
}

func (s *meshStorm) log(format string, a ...any) {
	if s.logged {
		s.res.Log = append(s.res.Log, fmt.Sprintf("%9s  ", show(s.now))+fmt.Sprintf(format, a...))
	}
}

// step gives a server an input, carries out what it asks, and looks at the whole world.
func (s *meshStorm) step(i int, in mesh.Input) {
	m := s.servers[i]
	s.log("server %d: %T %+v", i+1, in, in)
	outs := m.Step(uint64(s.now)/1000, in, nil)
	m.Check()
	mesh.CheckRing(s.servers)
	for _, out := range outs {
		s.perform(i, out)
	}
	s.fail(s.store.Judge(m))
}

var meshEvents = [mesh.EventKinds]string{mesh.Hit: "a hit", mesh.Missed: "a miss", mesh.CarriedMiss: "a miss is carried", mesh.Journaled: "the journal is asked",
	mesh.Injected: "a write goes round for another", mesh.Retried: "a persist is tried again", mesh.Voided: "a write is void", mesh.Throttled: "a caller is throttled",
	mesh.FellBehind: "a server is behind", mesh.StaleMessage: "a message is stale", mesh.Resent: "a write is sent again"}

// RareMesh lists what every campaign must have seen at least once.
func RareMesh() (out []string) {
	for k, name := range meshEvents {
		if k := mesh.EventKind(k); k != mesh.FellBehind && k != mesh.StaleMessage {
			out = append(out, name)
		}
	}
	return append(out, "tombstones are buried", "a fork", "a join", "a client crashes", "a token is short", "a persist arrives late", "a load fails", "a connection breaks")
}

func (s *meshStorm) sometimes(what string) { s.res.Sometimes[what]++ }

func (s *meshStorm) perform(i int, out mesh.Output) {
	s.log("server %d does %T %+v", i+1, out, out)
	switch out := out.(type) {
	case mesh.Load:
		s.ask(i, func() mesh.Input { return mesh.Loaded{Call: out.Call, Row: s.store.Load(out.Key)} }, mesh.Loaded{Call: out.Call, Status: mesh.Lost})
	case mesh.Fetch:
		s.ask(i, func() mesh.Input { return mesh.Fetched{Call: out.Call, Writes: s.store.Fetch(out.Dots)} }, mesh.Fetched{Call: out.Call, Status: mesh.Lost})
	case mesh.Persist:
		s.ask(i, func() mesh.Input { return mesh.Persisted{Call: out.Call, Status: s.store.Persist(out.Write)} }, mesh.Persisted{Call: out.Call, Status: mesh.Lost})
	case mesh.Forget:
		s.after(s.disk(), func() { s.store.Forget(out.Origin, out.Upto) })
	case mesh.Bury:
		s.sometimes("tombstones are buried")
		s.after(s.disk(), func() { s.store.Bury(out.Before) })
	case mesh.Send:
		s.send(i, out)
	case mesh.Reply:
		s.replied(out)
	case mesh.Event:
		if out.Kind == mesh.FellBehind {
			s.fail(fmt.Errorf("server %d is behind a session, in a ring that never changed", i+1))
		}
		s.sometimes(meshEvents[out.Kind])
	}
}

func (s *meshStorm) disk() lease.Tick { return spread(s.rng("disk"), s.cfg.Disk) }

// ask lets the store do something and answer. The answer may be lost, and what was to be
// done as well, or it is done late.
func (s *meshStorm) ask(i int, do func() mesh.Input, lost mesh.Input) {
	r := s.rng("store")
	if s.calm || !chance(r, s.cfg.Lost) {
		s.after(s.disk(), func() {
			in := do()
			s.after(s.disk(), func() { s.step(i, in) })
		})
		return
	}
	if _, ok := lost.(mesh.Loaded); ok {
		s.sometimes("a load fails")
	}
	switch r.IntN(3) {
	case 0: // never
	case 1:
		s.after(s.disk(), func() { do() })
	case 2:
		s.sometimes("a persist arrives late")
		s.after(20*s.disk(), func() { do() })
	}
	s.after(2*s.disk(), func() { s.step(i, lost) })
}

func (s *meshStorm) send(i int, out mesh.Send) {
	r, d := s.rng("net"), spread(s.rng("net"), s.cfg.Delay)
	if chance(r, s.cfg.Crawl) && !s.calm {
		d *= 20
	}
	n := len(s.servers)
	l, to, conn := s.links[i], (i+1)%n, s.links[i].sends
	at := &l.there
	if _, ok := out.Message.(mesh.Greeting); ok {
		l, to = s.links[(i+n-1)%n], (i+n-1)%n
		at, conn = &l.back, l.conn
	}
	*at = max(*at, s.now+d)
	if _, ok := out.Message.(mesh.Greeting); ok {
		b := new(wire.Stream).Append(nil, out.Message)
		s.after(*at-s.now, func() { s.arrive(l, conn, to, new(wire.Stream), b) })
		return
	}
	if l.streams[conn] == nil {
		l.streams[conn] = &[2]wire.Stream{}
	}
	b, in := l.streams[conn][0].Append(nil, out.Message), &l.streams[conn][1]
	s.after(*at-s.now, func() { s.arrive(l, conn, to, in, b) })
}

func (s *meshStorm) arrive(l *meshLink, conn, to int, in *wire.Stream, b []byte) {
	if s.frozen {
		l.postponed = append(l.postponed, func() { s.arrive(l, conn, to, in, b) })
		return
	}
	if conn != l.conn {
		return
	}
	m, err := in.Decode(b)
	if s.fail(err); err != nil {
		return
	}
	if _, ok := m.(mesh.Greeting); ok {
		l.sends, l.up = conn, true
	}
	s.step(to, mesh.Received{Message: m})
}

// cut breaks a connection; its sender notices later, and opens another.
func (s *meshStorm) cut(i int) {
	l := s.links[i]
	if s.calm || !l.up {
		return
	}
	s.sometimes("a connection breaks")
	l.conn++
	l.up = false
	s.after(spread(s.rng("net"), s.cfg.Delay), func() {
		s.step(i, mesh.Broken{})
		s.after(spread(s.rng("net"), 3*s.cfg.Delay), func() { s.connect(i) })
	})
}

func (s *meshStorm) connect(i int) {
	s.links[i].conn++
	conn := s.links[i].conn
	s.after(spread(s.rng("net"), s.cfg.Delay), func() {
		if s.links[i].conn == conn {
			s.step((i+1)%len(s.servers), mesh.Opened{View: 1})
		}
	})
}

// settle first lets only the store answer: whoever asked a server must be answered,
// for no server waits for another. Then everything else comes to rest, and everybody
// must agree.
func (s *meshStorm) settle() {
	s.calm, s.frozen = true, true
	end := s.now + 10_000*(s.cfg.Delay+s.cfg.Disk+1)
	for s.res.Err == nil && len(s.open) > 0 && s.next(end) {
	}
	if n := len(s.open); n > 0 && s.res.Err == nil {
		s.fail(fmt.Errorf("%d calls have no answer while nothing arrives between servers", n))
	}
	s.frozen = false
	for _, l := range s.links {
		for _, do := range l.postponed {
			do()
		}
		l.postponed = nil
	}
	end = s.now + 200*(s.cfg.Delay*50*lease.Tick(len(s.servers)+1)+s.cfg.Beat+s.cfg.Disk*10)
	for s.res.Err == nil && !s.rested() && s.next(end) {
		s.res.Events++
	}
	if s.res.Err == nil && !s.rested() {
		s.fail(fmt.Errorf("it never comes to rest: received %v, stable %v, journal %d", s.servers[0].Received(), s.servers[0].Stable(), s.store.Journal()))
	}
	for i, m := range s.servers {
		if s.res.Err != nil {
			return
		}
		if err := s.store.Agree(m); err != nil && !s.cfg.Outside {
			s.fail(fmt.Errorf("server %d: %w", i+1, err))
		}
	}
	for _, w := range s.store.truth {
		s.wrote(w, nil, "nobody")
	}
	if v := check.Causal(s.acts); !v.OK {
		s.fail(fmt.Errorf("the histories of the sessions: %s\n%s", v.Reason, joinLines(v.Witness)))
	}
}

func joinLines(lines []string) (out string) {
	for _, l := range lines {
		out += "\t" + l + "\n"
	}
	return out
}

// rested reports whether every write has been shown everywhere and forgotten.
func (s *meshStorm) rested() bool {
	if s.store.Journal() > 0 {
		return false
	}
	for _, m := range s.servers {
		if !m.Idle() || !m.Visible().Equal(s.servers[0].Visible()) || !m.Stable().Equal(m.Received()) || !m.Received().Equal(m.Visible()) {
			return false
		}
	}
	return true
}

// wrote puts a write into the histories, once: a client may be gone before it learns of
// its own.
func (s *meshStorm) wrote(w *mesh.Write, after []int, session string) bool {
	name := w.Dot.String()
	if s.acted[name] {
		return false
	}
	s.acted[name] = true
	a := check.Act{Session: session, After: after}
	for _, m := range w.Muts {
		a.Writes = append(a.Writes, check.Cell{Key: m.Key, Write: w.Stamp.String(), Gone: m.Delete})
	}
	s.acts = append(s.acts, a)
	return true
}
