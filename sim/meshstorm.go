package sim

import (
	"fmt"
	"slices"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
	"github.com/freshet-cache/freshet/check"
	"github.com/freshet-cache/freshet/ticks"
)

// meshStorm is the simulated world of causal: servers with the machines that ship, one store, a
// ring of connections, and clients that move between servers.
type meshStorm struct {
	*world
	cfg       CausalConfig
	store     *MeshStore
	nodes     []*meshNode // every incarnation, by its number less one
	view      mesh.View   // the coordinator's latest
	clients   []*meshClient
	open      map[mesh.Op]*meshCall
	ops       mesh.Op
	acts      []check.Act
	acted     map[string]bool // writes that are in acts
	calls     int             // how many are left
	flying    int             // writes on their way between servers
	frozen    bool            // no message between servers arrives
	postponed []func()
	calm      bool // no more faults
	res       Result
	logged    bool
}

// meshNode is one incarnation of a server.
type meshNode struct {
	incarnation mesh.Incarnation
	m           *mesh.Server // nil until it has joined
	down        bool
	link        *meshLink
}

// meshLink is the connection from a server to its successor in a view.
type meshLink struct {
	from, to *meshNode
	view     uint64
	conn     int        // number of the latest connection
	sends    int        // number of the connection that the sender uses
	there    ticks.Tick // when the last message to the successor arrives
	back     ticks.Tick
	up       bool
	streams  map[int]*[2]wire.Stream // the encoder and the decoder of each connection
}

// meshClient is a workflow, or a branch of one.
type meshClient struct {
	name    string
	session *mesh.Session
	last    int // index of its last act; -1 if it has none
	at      *meshNode
	busy    bool
	gone    bool
	saw     map[string][]mesh.Dot // dots of the siblings that it read last, by key
}

type meshCall struct {
	client  *meshClient
	server  *meshNode
	keys    []string
	muts    []mesh.Mut
	retry   func()
	done    func(mesh.Reply) // takes the answer to a transaction's call
	view    mesh.View        // view of the server when it answered
	horizon uint64           // the store's Horizon when past read it
}

const mostMeshEvents = 1_000_000 // ten times what any seed has taken

// runCausal runs a plan to its end, and then until nothing is under way.
func runCausal(p CausalPlan, log bool) (res Result) {
	cfg := p.Config
	s := &meshStorm{world: newWorld(p.Seed), cfg: cfg, store: NewMeshStore(), open: map[mesh.Op]*meshCall{}, acted: map[string]bool{}, calls: cfg.Calls, logged: log}
	s.res.Sometimes = map[string]int{}
	if cfg.Concurrent {
		s.store.Concurrent()
	}
	defer func() {
		if r := recover(); r != nil {
			s.fail(fmt.Errorf("panic: %v", r))
			res = s.res
		}
	}()
	s.begin()
	for _, f := range p.Faults {
		s.after(f.At, func() { s.inject(f) })
	}
	for s.res.Err == nil && s.calls > 0 && s.next(1<<50) {
		if s.res.Events++; s.res.Events > mostMeshEvents {
			s.fail(fmt.Errorf("%d calls are left after %d events", s.calls, s.res.Events))
		}
	}
	s.settle()
	s.res.At = s.now
	return s.res
}

func (s *meshStorm) begin() {
	s.view = mesh.View{Number: 1, Newest: mesh.Incarnation(s.cfg.Servers)}
	for i := range s.cfg.Servers {
		s.view.Ring = append(s.view.Ring, mesh.Incarnation(i+1))
	}
	floor := mesh.Stamp{}
	if s.cfg.External {
		floor.Time = 5
		s.store.WriteExternally("a", "before", 5)
	}
	for _, o := range s.view.Ring {
		n := &meshNode{incarnation: o}
		s.nodes = append(s.nodes, n)
		opt := s.options(o)
		opt.Floor = floor
		n.m = mesh.New(opt)
	}
	for _, n := range s.nodes {
		s.enter(n)
	}
	s.after(s.cfg.Beat, s.beat)
	for i := range s.cfg.Clients {
		c := &meshClient{name: fmt.Sprint("c", i), session: &mesh.Session{}, last: -1}
		s.clients = append(s.clients, c)
		s.think(c)
	}
}

// options returns the options of an incarnation that begins now.
func (s *meshStorm) options(o mesh.Incarnation) mesh.Options {
	return mesh.Options{Incarnation: o, View: s.view, Window: s.cfg.Window, Keys: s.cfg.Capacity, Versions: s.cfg.Versions, Waits: s.cfg.Waits, Concurrent: s.cfg.Concurrent,
		Async: s.cfg.Async, Batch: s.cfg.Batch, Bytes: s.cfg.Bytes, WindowBytes: s.cfg.WindowBytes}
}

func (s *meshStorm) beat() {
	for _, n := range s.nodes {
		if n.m != nil && n.m.View().Ring[0] == n.incarnation {
			s.step(n, mesh.Beat{})
		}
	}
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
		s.res.Log = append(s.res.Log, fmt.Sprintf("%12s  ", showMicros(s.now))+fmt.Sprintf(format, a...))
	}
}

// step gives a server an input, carries out its outputs, and judges the whole world.
func (s *meshStorm) step(n *meshNode, in mesh.Input) {
	if n.down || n.m == nil {
		return
	}
	s.log("server %d: %T %+v", n.incarnation, in, in)
	outs := n.m.Step(uint64(s.now)/1000, in, nil)
	n.m.Check()
	for _, out := range outs {
		s.perform(n, out)
	}
	s.checkRing()
	s.fail(s.store.Judge(n.m))
	if s.cfg.Async {
		s.partial(n)
	}
}

func (s *meshStorm) checkRing() {
	var members, others []*mesh.Server
	for _, n := range s.nodes {
		switch {
		case n.m == nil || n.down:
		case slices.Contains(s.view.Ring, n.incarnation):
			members = append(members, n.m)
		default:
			others = append(others, n.m)
		}
	}
	mesh.CheckRing(members, others...)
}

var meshEvents = [mesh.EventKinds]string{mesh.Hit: "a hit", mesh.Missed: "a miss", mesh.CarriedMiss: "a miss is carried", mesh.Journaled: "the journal is asked",
	mesh.Injected: "a write goes round for another", mesh.Retried: "a persist is tried again", mesh.Voided: "a write is void", mesh.Throttled: "a caller is throttled",
	mesh.FellBehind: "a server is behind", mesh.StaleMessage: "a message is stale", mesh.Resent: "a write is sent again", mesh.Extended: "a snapshot moves", mesh.Aborted: "a transaction is aborted",
	mesh.Drained: "a batch reaches the rows", mesh.GaveBack: "a write is given back"}

// RareMesh lists the events that every campaign must have seen at least once.
func RareMesh() (out []string) {
	for k, name := range meshEvents {
		if k := mesh.EventKind(k); k < mesh.EventKinds {
			out = append(out, name)
		}
	}
	return append(out, "tombstones are collected", "a fork", "a join", "a client crashes", "a token is short", "a persist arrives late", "a load fails", "a connection breaks",
		"a server crashes", "a server is suspected", "a server joins", "an incarnation is retired", "a journal is recovered", "a snapshot comes too late", "a transaction commits", "a transaction branches",
		"concurrent writes are read", "a transaction reads concurrent writes", "a row is written externally",
		"a log is found", "a log is released", "a claim is too late", "the store is read past the servers", "the journal has truncated what is read past the servers", "a batch arrives again", "a partial entry", "all servers crash")
}

func (s *meshStorm) sometimes(what string) { s.res.Sometimes[what]++ }

func (s *meshStorm) perform(n *meshNode, out mesh.Output) {
	s.log("server %d does %T %+v", n.incarnation, out, out)
	switch out := out.(type) {
	case mesh.Load:
		s.ask(n, func() mesh.Input { return mesh.Loaded{Call: out.Call, Row: s.store.Load(out.Key)} }, mesh.Loaded{Call: out.Call, Status: mesh.StatusUnknown})
	case mesh.Fetch:
		s.ask(n, func() mesh.Input { return mesh.Fetched{Call: out.Call, Writes: s.store.Fetch(out.Dots)} }, mesh.Fetched{Call: out.Call, Status: mesh.StatusUnknown})
	case mesh.Persist:
		if s.cfg.Async {
			s.ask(n, func() mesh.Input { return mesh.Persisted{Call: out.Call, Status: s.store.Log(out.Write, out.With)} }, mesh.Persisted{Call: out.Call, Status: mesh.StatusUnknown})
			return
		}
		s.ask(n, func() mesh.Input { return mesh.Persisted{Call: out.Call, Status: s.store.Persist(out.Write)} }, mesh.Persisted{Call: out.Call, Status: mesh.StatusUnknown})
	case mesh.Recover:
		s.ask(n, func() mesh.Input {
			s.sometimes("a journal is recovered")
			s.end(out.Incarnations)
			if s.cfg.Async {
				return mesh.Recovered{View: out.View, Back: s.store.Back(out.Incarnations)}
			}
			return mesh.Recovered{View: out.View, Writes: s.store.Recover(out.Incarnations)}
		}, mesh.Recovered{View: out.View, Status: mesh.StatusUnknown})
	case mesh.Poll:
		s.ask(n, func() mesh.Input { return mesh.Polled{View: out.View, Writes: s.store.Poll(out.After)} }, mesh.Polled{View: out.View})
	case mesh.Claim, mesh.Flush, mesh.Release:
		s.drain(n, out)
	case mesh.Retire:
		s.retire(out.Incarnation)
	case mesh.Truncate:
		forget := s.store.Truncate
		if s.cfg.Async && out.Incarnation == n.incarnation {
			forget = s.store.Trim
		}
		s.after(s.disk(), func() { forget(out.Incarnation, out.Upto) })
	case mesh.CollectTombstones:
		s.sometimes("tombstones are collected")
		s.after(s.disk(), func() { s.store.CollectTombstones(out.Before) })
	case mesh.Send:
		s.send(n, out)
	case mesh.Reply:
		s.replied(out)
	case mesh.Event:
		if in := slices.Contains(s.view.Ring, n.incarnation); out.Kind == mesh.FellBehind && in && n.m.View().Number == s.view.Number && !s.owed() {
			s.fail(fmt.Errorf("server %d is behind a session, in the current ring", n.incarnation))
		}
		s.sometimes(meshEvents[out.Kind])
	}
}

func (s *meshStorm) disk() ticks.Tick { return spread(s.rng("disk"), s.cfg.Disk) }

// ask lets the store carry out a request and answer. The answer may be lost. The request may then
// be lost too, or be carried out late.
func (s *meshStorm) ask(n *meshNode, do func() mesh.Input, lost mesh.Input) {
	r := s.rng("store")
	if s.calm || !chance(r, s.cfg.Unanswered) {
		s.after(s.disk(), func() {
			in := do()
			s.after(s.disk(), func() { s.step(n, in) })
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
	s.after(2*s.disk(), func() { s.step(n, lost) })
}

// settle first delivers nothing between servers and lets only the store answer. Every call must get
// an answer, because no server waits for another. Then settle delivers everything, and demands that
// all servers and the store agree.
func (s *meshStorm) settle() {
	s.calm, s.frozen = true, true
	end := s.now + 10_000*(s.cfg.Delay+s.cfg.Disk+1)
	for s.res.Err == nil && len(s.open) > 0 && s.next(end) {
	}
	if n := len(s.open); n > 0 && s.res.Err == nil {
		s.fail(fmt.Errorf("%d calls have no answer while nothing arrives between servers", n))
	}
	s.frozen = false
	for _, do := range s.postponed {
		do()
	}
	s.postponed = nil
	end = s.now + 400*(s.cfg.Delay*20*ticks.Tick(len(s.view.Ring)+1)+s.cfg.Beat+s.cfg.Disk*10)
	for s.res.Err == nil && !s.rested() && s.next(end) {
		s.res.Events++
	}
	if s.res.Err == nil && !s.rested() {
		s.fail(fmt.Errorf("it never comes to rest: %+v, journal %d", s.view, s.store.Journal()))
	}
	for _, n := range s.nodes {
		if s.res.Err == nil && slices.Contains(s.view.Ring, n.incarnation) && !s.cfg.External {
			s.fail(s.store.Agree(n.m))
		}
		if s.res.Err == nil && slices.Contains(s.view.Ring, n.incarnation) {
			if f := n.m.Visible().Without(func(o mesh.Incarnation) bool { return o == mesh.External || slices.Contains(s.view.Ring, o) }); f.Size() > 0 {
				s.fail(fmt.Errorf("server %d names %v, of incarnations that are retired", n.incarnation, f))
			}
		}
	}
	for d, w := range s.store.truth { // every committed write, acknowledged or not, must be visible everywhere
		for _, o := range s.view.Ring {
			if s.res.Err == nil && !s.nodes[o-1].m.Shows(d) {
				s.fail(fmt.Errorf("server %d has lost %v", o, w))
			}
		}
		s.wrote(w, nil, "nobody")
	}
	if s.cfg.Concurrent { // every read was compared with the writes that its session had seen
		return
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

// rested reports whether every write is visible everywhere and truncated, in a ring that all
// members have entered and that lists no departed incarnation.
func (s *meshStorm) rested() bool {
	if s.store.Journal() > 0 || len(s.view.Departed) > 0 || s.flying > 0 {
		return false
	}
	first := s.nodes[s.view.Ring[0]-1].m
	for _, o := range s.view.Ring {
		n := s.nodes[o-1]
		if n.down || n.m == nil || first == nil || n.m.View().Number != s.view.Number || !n.m.Idle() ||
			!n.m.Visible().Equal(first.Visible()) || !n.m.Stable().Equal(n.m.Received()) || !n.m.Received().Equal(n.m.Visible()) {
			return false
		}
	}
	return true
}

// wrote adds a write to the histories, once. A client may be gone before it learns of its own
// write.
func (s *meshStorm) wrote(w *mesh.Write, after []int, session string, reads ...check.Cell) bool {
	name := w.Dot.String()
	if s.acted[name] {
		return false
	}
	s.acted[name] = true
	a := check.Act{Session: session, After: after, Reads: reads}
	for _, m := range w.Muts {
		a.Writes = append(a.Writes, check.Cell{Key: m.Key, Write: w.Stamp.String(), Gone: m.Delete})
	}
	s.acts = append(s.acts, a)
	return true
}
