package mesh_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
	"github.com/freshet-cache/freshet/sim"
)

// TestStories runs testdata/*.txt: what happens to a ring of servers numbered from 1, a
// store, and sessions that are named as they appear. The store answers at once unless it
// was told to be slow; connections hold what is sent until it is delivered. go test
// -rewrite fills in the answers.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &story{}
		datadriven.RunTest(t, path, s.run)
	})
}

// story is the world around the servers.
type story struct {
	servers  []*mesh.Server
	store    *sim.MeshStore
	down     []bool
	links    [][]mesh.Message // from each server to its successor
	linked   []uint64         // the view it was opened in; 0 if there is none
	view     mesh.View
	opt      mesh.Options
	held     []request
	slow     []string
	sessions map[string]*mesh.Session
	calls    map[mesh.Op]call
	txs      map[string]*mesh.Tx
	saw      map[string][]mesh.Dot // by session and key
	op       mesh.Op
	now      uint64
	out      strings.Builder
	loud     bool
}

// request is what a server asked of the store.
type request struct {
	server int
	out    mesh.Output
	kind   string
	answer mesh.Input // once the store has done it
}

type call struct {
	session string
	keys    []string
	tx      string // what a transaction asks for
}

func (s *story) open(t *testing.T, d *datadriven.TestData) {
	n, opt := 3, mesh.Options{}
	d.MaybeScanArgs(t, "servers", &n)
	d.MaybeScanArgs(t, "window", &opt.Window)
	d.MaybeScanArgs(t, "keys", &opt.Keys)
	d.MaybeScanArgs(t, "waits", &opt.Waits)
	d.MaybeScanArgs(t, "versions", &opt.Versions)
	opt.Concurrent = d.HasArg("concurrent")
	d.MaybeScanArgs(t, "batch", &opt.Batch)
	opt.Async = d.HasArg("async")
	*s = story{opt: opt, store: sim.NewMeshStore(), sessions: map[string]*mesh.Session{}, calls: map[mesh.Op]call{}, txs: map[string]*mesh.Tx{}, saw: map[string][]mesh.Dot{}}
	if opt.Concurrent {
		s.store.Concurrent()
	}
	s.view = mesh.View{Number: 1, Newest: mesh.Incarnation(n)}
	for i := range n {
		s.view.Ring = append(s.view.Ring, mesh.Incarnation(i+1))
	}
	for range n {
		s.add(nil)
	}
	for i := range n {
		s.connect(i)
	}
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	s.out.Reset()
	s.loud = d.HasArg("loud")
	at := 1
	d.MaybeScanArgs(t, "at", &at)
	at--
	key, who := arg(t, d, "key"), arg(t, d, "by")
	switch d.Cmd {
	case "ring":
		s.open(t, d)
	case "read":
		keys := list(d, "keys")
		if key != "" {
			s.begin(at, who, []string{key}, func(c *mesh.Session) mesh.Input { return c.Read(s.op, key) })
		} else {
			s.begin(at, who, keys, func(c *mesh.Session) mesh.Input { return c.ReadMany(s.op, keys...) })
		}
	case "put":
		muts := []mesh.Mut{{Key: key, Value: []byte(arg(t, d, "value")), Delete: d.HasArg("delete"), Supersedes: s.saw[who+key]}}
		s.begin(at, who, nil, func(c *mesh.Session) mesh.Input { return c.Put(s.op, muts...) })
	case "past": // past all servers, from the store alone
		s.past(who, list(d, "keys"))
	case "recall":
		s.begin(at, who, nil, func(c *mesh.Session) mesh.Input { return c.Recall(s.op) })
	case "fork":
		s.sessions[arg(t, d, "as")] = s.session(who).Fork()
	case "strip": // its token is too short for values
		c, err := wire.Resume(wire.Token(s.session(who), 0))
		if err != nil {
			t.Fatal(err)
		}
		s.sessions[who] = c
	case "meet":
		s.session(who).Join(s.session(arg(t, d, "with")))
	case "slow":
		s.slow = list(d, "what")
	case "execute": // the store does it, and the answer is on its way
		s.execute(s.find(t, d, at, false))
	case "answer":
		s.answer(t, d, at)
	case "deliver":
		s.deliver(t, d, at)
	case "outside":
		time := uint64(0)
		d.MaybeScanArgs(t, "time", &time)
		s.store.WriteExternally(key, arg(t, d, "value"), time)
	case "clock": // of all servers, in microseconds
		d.ScanArgs(t, "time", &s.now)
	case "show":
		s.show(t, d, at)
	default:
		s.change(t, d, at)
	}
	if s.out.Len() == 0 {
		return "nothing\n"
	}
	return s.out.String()
}

// change is what happens to servers and connections.
func (s *story) change(t *testing.T, d *datadriven.TestData, at int) {
	switch d.Cmd {
	case "round":
		s.step(0, mesh.Beat{})
		s.flush()
	case "beat":
		s.step(at, mesh.Beat{})
	case "break":
		s.links[at], s.linked[at] = nil, 0
		s.step(at, mesh.Broken{})
	case "connect":
		s.connect(at)
	case "crash":
		s.down[at], s.links[at] = true, nil
	case "view":
		s.decide(t, d)
	case "outage": // all servers end, and a ring of new ones finds only the store
		for i := range s.servers {
			s.down[i], s.links[i] = true, nil
		}
		lost := s.view.Ring
		s.decide(t, d)
		s.view.Departed = append(s.view.Departed, lost...)
		if s.opt.Async {
			s.store.Claim(s.view.Number)
		}
		s.opt.Truncated, s.opt.Floor = s.store.Left()
		for range s.view.Ring {
			s.add(nil)
		}
		s.relink()
	case "tell":
		s.tell(at)
	case "join":
		s.step(s.before(at), mesh.Asked{From: mesh.Incarnation(at + 1), View: s.view.Number})
	case "evict":
		s.step(at, mesh.Evicted{Key: arg(t, d, "key")})
	case "found":
		s.found(t, d, at)
	default:
		s.transact(t, d, at)
	}
}

func (s *story) say(format string, a ...any) { fmt.Fprintf(&s.out, format+"\n", a...) }

func (s *story) session(name string) *mesh.Session {
	if s.sessions[name] == nil {
		s.sessions[name] = &mesh.Session{}
	}
	return s.sessions[name]
}

func (s *story) begin(at int, who string, keys []string, in func(*mesh.Session) mesh.Input) {
	s.op++
	s.calls[s.op] = call{session: who, keys: keys}
	s.step(at, in(s.session(who)))
}

// add lets another server be, which begins with a copy or with nothing.
func (s *story) add(c *mesh.Snapshot) {
	opt := s.opt
	opt.Incarnation, opt.View, opt.Copy = mesh.Incarnation(len(s.servers)+1), s.view, c
	s.servers = append(s.servers, mesh.New(opt))
	s.links, s.linked, s.down = append(s.links, nil), append(s.linked, 0), append(s.down, false)
}

// decide makes the coordinator decide on a view: ring= and lost= are numbers, and the
// servers hear of it at once, or with silent when they are told.
func (s *story) decide(t *testing.T, d *datadriven.TestData) {
	s.view.Number++
	s.view.Ring, s.view.Departed = incarnations(t, d, "ring"), incarnations(t, d, "lost")
	s.view.Newest = max(s.view.Newest, slices.Max(s.view.Ring))
	for i := range s.servers {
		if !d.HasArg("silent") {
			s.tell(i)
		}
	}
}

func (s *story) tell(i int) {
	s.step(i, mesh.Viewed{View: s.view})
	s.relink()
}

// relink opens the connections between neighbours that are in one view.
func (s *story) relink() {
	for i, m := range s.servers {
		j := s.after(i)
		if v := m.View().Number; j < len(s.servers) && s.servers[j].View().Number == v && s.linked[i] < v && slices.Contains(m.View().Ring, mesh.Incarnation(j+1)) {
			s.connect(i)
		}
	}
}

// after and before are the neighbours of a server.
func (s *story) after(i int) int {
	ring := s.servers[i].View().Ring
	return int(ring[(slices.Index(ring, mesh.Incarnation(i+1))+1)%len(ring)]) - 1
}

func (s *story) before(i int) int {
	ring := s.view.Ring
	return int(ring[(slices.Index(ring, mesh.Incarnation(i+1))+len(ring)-1)%len(ring)]) - 1
}

func (s *story) connect(i int) {
	s.links[i], s.linked[i] = nil, s.servers[i].View().Number
	s.step(s.after(i), mesh.Opened{View: s.linked[i]})
}

// step gives a server an input and carries out what it asks.
func (s *story) step(i int, in mesh.Input) {
	if s.down[i] {
		return
	}
	before := mesh.Event{Kind: mesh.EventKinds}
	outs := s.servers[i].Step(s.now, in, []mesh.Output{before})
	s.servers[i].Check()
	if len(outs) == 0 || outs[0] != before {
		s.say("BROKEN at %d: what was to be done before %T is lost", i+1, in)
		return
	}
	for _, out := range outs[1:] {
		s.perform(i, out)
	}
	var members, others []*mesh.Server
	for j, m := range s.servers {
		switch {
		case s.down[j]:
		case slices.Contains(s.view.Ring, mesh.Incarnation(j+1)):
			members = append(members, m)
		default:
			others = append(others, m)
		}
	}
	mesh.CheckRing(members, others...)
	if err := s.store.Judge(s.servers[i]); err != nil {
		s.say("BROKEN at %d: %v", i+1, err)
	}
}

func (s *story) perform(i int, out mesh.Output) {
	switch out := out.(type) {
	case mesh.Load:
		s.ask(request{server: i, out: out, kind: "load"})
	case mesh.Fetch:
		s.ask(request{server: i, out: out, kind: "fetch"})
	case mesh.Persist:
		s.ask(request{server: i, out: out, kind: "persist"})
	case mesh.Send:
		switch m := out.Message.(type) {
		case mesh.Resync:
			s.step(int(out.To)-1, mesh.Received{Message: m})
			return
		case mesh.Snapshot:
			s.say("%d begins with visible %v received %v log %v", out.To, m.Visible, m.Received, m.Log)
			s.add(&m)
			s.relink()
			return
		}
		if s.loud {
			s.say("%d sends %s", i+1, messageText(out.Message))
		}
		s.links[i] = append(s.links[i], out.Message)
	case mesh.Recover:
		s.ask(request{server: i, out: out, kind: "recovery"})
	case mesh.Retire:
		s.say("%d may be retired", out.Incarnation)
	case mesh.Claim:
		s.ask(request{server: i, out: out, kind: "claim"})
	case mesh.Flush:
		s.ask(request{server: i, out: out, kind: "flush"})
	case mesh.Release:
		s.release(out.Incarnation)
	case mesh.Truncate:
		if s.opt.Async && out.Incarnation != mesh.External {
			s.say("the log of %d drops up to %d", out.Incarnation, out.Upto)
			s.store.Trim(out.Incarnation, out.Upto)
			return
		}
		s.say("the journal drops %d up to %d", out.Incarnation, out.Upto)
		s.store.Truncate(out.Incarnation, out.Upto)
	case mesh.CollectTombstones:
		s.say("tombstones before %d are collected", out.Before)
		s.store.CollectTombstones(out.Before)
	case mesh.Reply:
		s.replied(out)
	case mesh.Event:
		if text := eventNames[out.Kind]; text != "" {
			s.say("%d counts %s", i+1, text)
		}
	}
}

// ask lets the store answer, if it is not slow with this.
func (s *story) ask(r request) {
	what := r.kind
	if l, ok := r.out.(mesh.Load); ok {
		what += " of " + l.Key
	}
	if f, ok := r.out.(mesh.Fetch); ok {
		what += fmt.Sprintf(" of %v", f.Dots)
	}
	if f, ok := r.out.(mesh.Flush); ok {
		what += fmt.Sprintf(" of %v", f.Writes)
	}
	if p, ok := r.out.(mesh.Persist); ok && s.loud {
		what += " of " + p.Write.String()
	}
	if !slices.Contains(s.slow, r.kind) {
		if r.kind != "persist" || s.loud {
			s.say("%d asks for a %s", r.server+1, what)
		}
		s.execute(&r)
		s.step(r.server, r.answer)
		return
	}
	s.say("%d waits for a %s", r.server+1, what)
	s.held = append(s.held, r)
}

func (s *story) execute(r *request) {
	if r.answer != nil {
		return
	}
	switch out := r.out.(type) {
	case mesh.Load:
		r.answer = mesh.Loaded{Call: out.Call, Row: s.store.Load(out.Key)}
	case mesh.Fetch:
		r.answer = mesh.Fetched{Call: out.Call, Writes: s.store.Fetch(out.Dots)}
	case mesh.Recover: // their leases have ended
		for _, o := range out.Incarnations {
			s.down[o-1] = true
		}
		r.answer = mesh.Recovered{View: out.View, Writes: s.store.Recover(out.Incarnations), Back: s.store.Back(out.Incarnations)}
	case mesh.Persist:
		r.answer = mesh.Persisted{Call: out.Call, Status: s.persist(out)}
	default:
		r.answer = s.merge(r)
	}
}

// find is the oldest request of a server to a slow store, of a kind if one is given.
func (s *story) find(t *testing.T, d *datadriven.TestData, at int, take bool) *request {
	what := arg(t, d, "what")
	for i := range s.held {
		if r := s.held[i]; r.server == at && (what == "" || r.kind == what) {
			if take {
				s.held = slices.Delete(s.held, i, i+1)
				return &r
			}
			return &s.held[i]
		}
	}
	d.Fatalf(t, "server %d waits for nothing of the kind", at+1)
	return nil
}

func (s *story) answer(t *testing.T, d *datadriven.TestData, at int) {
	r := s.find(t, d, at, true)
	if d.HasArg("lost") { // the store may have done it, if it was told to before
		switch out := r.out.(type) {
		case mesh.Load:
			r.answer = mesh.Loaded{Call: out.Call, Status: mesh.StatusUnknown}
		case mesh.Fetch:
			r.answer = mesh.Fetched{Call: out.Call, Status: mesh.StatusUnknown}
		case mesh.Persist:
			r.answer = mesh.Persisted{Call: out.Call, Status: mesh.StatusUnknown}
		case mesh.Flush:
			r.answer = mesh.Flushed{Call: out.Call, Status: mesh.StatusUnknown}
		case mesh.Claim:
			r.answer = mesh.Claimed{Call: out.Call, Status: mesh.StatusUnknown}
		case mesh.Recover:
			r.answer = mesh.Recovered{View: out.View, Status: mesh.StatusUnknown}
		}
	}
	s.execute(r)
	s.step(r.server, r.answer)
}

// deliver lets messages arrive: n of one connection, or all of all.
func (s *story) deliver(t *testing.T, d *datadriven.TestData, at int) {
	n := 1 << 20
	d.MaybeScanArgs(t, "n", &n)
	if !d.HasArg("at") {
		s.flush()
		return
	}
	for ; n > 0 && len(s.links[at]) > 0; n-- {
		s.arrive(at)
	}
}

func (s *story) arrive(i int) {
	m := s.links[i][0]
	s.links[i] = s.links[i][1:]
	s.step(s.after(i), mesh.Received{Message: m})
}

func (s *story) flush() {
	for {
		i := slices.IndexFunc(s.links, func(l []mesh.Message) bool { return len(l) > 0 })
		if i < 0 {
			return
		}
		s.arrive(i)
	}
}

func (s *story) show(t *testing.T, d *datadriven.TestData, at int) {
	switch {
	case d.HasArg("session"):
		s.say("%v", s.session(arg(t, d, "session")))
	case d.HasArg("store"):
		s.out.WriteString(s.store.Dump())
	case d.HasArg("at"):
		s.out.WriteString(s.servers[at].Dump())
	default:
		for i, m := range s.servers {
			s.say("%d: visible %v received %v stable %v", i+1, m.Visible(), m.Received(), m.Stable())
		}
	}
}
