package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/internal/eventlog"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/store"
)

// logged is a log that tests read while nodes write it.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// lines returns the lines of an event that have all of the fields.
func (l *logged) lines(event string, fields ...string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		ok := strings.Contains(line, "event="+event+" ")
		for _, f := range fields {
			ok = ok && strings.Contains(strings.TrimSpace(line)+" ", " "+f+" ")
		}
		if ok {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

func (l *logged) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// quiet is a process of no nodes that only logs.
func quiet(cfg Config) (*Process, *logged) {
	out := &logged{}
	p := &Process{cfg: cfg}
	p.events, _ = eventlog.New(eventlog.Options{Out: out})
	p.log = slog.New(p.events)
	return p, out
}

// The log says why a slice has changed hands, and for how long nobody took writes: since it was
// asked back, or since its owner was lost.
func TestTheLogSaysWhySlicesMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := quiet(Config{})
		own := &Node{p: p, id: "n9", incarnation: "n9/a"}
		p.nodes = []*Node{own}
		own.draining.Store(true)
		p.watch.roster.all = map[string]*standing{
			"n1/a": {}, "n2/a": {ClusterMember: ClusterMember{Lost: true, Since: time.Now().Add(-3 * time.Second)}}, "n3/a": {ClusterMember: ClusterMember{Leaving: true}},
		}
		p.watch.asksBack(&lease.Recall{Leases: []lease.Lease{{Gen: 7}}})
		p.watch.orders("ordered")
		time.Sleep(2 * time.Second)
		p.watch.asksBack(&lease.Recall{Leases: []lease.Lease{{Gen: 7}}}) // again: the first one counts
		time.Sleep(time.Second)
		for _, c := range []struct {
			from, to string
			gen      lease.Gen
			low      string
			why      string
			ms       int64
		}{
			{"n1/a", "n1/b", 7, "a", "restart", 3000},
			{"n1/a", "n2/a", 7, "a", "load", 3000},
			{"n1/a", "n2/a", 8, "a", "load", 0},
			{"n1/a", "n2/a", 7, "o", "operator", 3000},
			{"n2/a", "n1/a", 7, "o", "lost", 6000},
			{"n3/a", "n1/a", 7, "a", "drain", 3000},
			{"n3/a", "n1/a", 7, "o", "drain", 3000},
			{"n4/a", "n1/a", 8, "a", "lost", 0},
			{"n9/a", "n1/a", 7, "a", "drain", 3000},
		} {
			old := lease.Held{Lease: lease.Lease{Gen: c.gen}, Node: c.from}
			fresh := lease.Held{Lease: lease.Lease{Range: lease.Range{Low: c.low, High: c.low + "z"}, Gen: 9}, Node: c.to}
			if why, ms := p.whyMoved(old, fresh); why != c.why || ms != c.ms {
				t.Errorf("from %s to %s at %s: %s after %d ms, want %s after %d ms", c.from, c.to, c.low, why, ms, c.why, c.ms)
			}
		}
	})
}

// The log tells of a slice that has changed hands, also of one that was cut out of another one, and
// of a key that has another number of replicas. It is silent about slices that only have another
// lease, or that nobody owned.
func TestTheLogTellsOfSlices(t *testing.T) {
	slice := func(low, high string, gen lease.Gen, node string, copies int) lease.Held {
		return lease.Held{Lease: lease.Lease{Range: lease.Range{Low: low, High: high}, Gen: gen}, Node: node, Copies: make([]lease.GroupMember, copies)}
	}
	one, two := slice("", "k", 1, "n1/a", 0), slice("k", "", 2, "n2/a", 0)
	for _, c := range []struct {
		what string
		to   []lease.Held
		says []string
	}{
		{"nothing has changed", []lease.Held{one, two}, nil},
		{"another lease", []lease.Held{slice("", "k", 3, "n1/a", 0), two}, nil},
		{"another owner", []lease.Held{one, slice("k", "", 3, "n1/a", 0)}, []string{"range=[k,end) from=n2 to=n1 why=lost ms=0 generation=3"}},
		{"both change", []lease.Held{slice("", "k", 4, "n3/a", 0), slice("k", "", 3, "n1/a", 0)}, []string{"range=[,k) from=n1 to=n3", "range=[k,end) from=n2 to=n1"}},
		{"a piece moves", []lease.Held{one, slice("k", "m", 3, "n2/a", 0), slice("m", "", 4, "n1/a", 0)}, []string{"range=[m,end) from=n2 to=n1"}},
		{"nobody owns it", []lease.Held{one, slice("k", "", 3, "", 0)}, nil},
		{"one replica", []lease.Held{one, slice("k", "", 3, "n2/a", 1)}, []string{"slice=[k,end) n=1 rate=500"}},
		{"replicas of another range", []lease.Held{one, slice("k", "m", 3, "n2/a", 1), slice("m", "", 4, "n2/a", 0)}, nil},
	} {
		p, out := quiet(Config{LogKeys: true})
		p.watch.loads([]lease.Load{{Gen: 2, Rate: 500}, {Gen: 3, Rate: 40}})
		p.compare(lease.State{Slices: []lease.Held{one, two}}, lease.State{Slices: c.to})
		if strings.Count(out.text(), "\n") != len(c.says) {
			t.Errorf("%s: the log says %q", c.what, out.text())
		}
		for _, s := range c.says {
			if !strings.Contains(out.text(), s) {
				t.Errorf("%s: the log says %q, want %q", c.what, out.text(), s)
			}
		}
	}
	p, out := quiet(Config{})
	p.compare(lease.State{Slices: []lease.Held{slice("", "", 1, "", 0)}}, lease.State{Slices: []lease.Held{slice("", "", 2, "n1/a", 0)}})
	p.compare(lease.State{Slices: []lease.Held{two}}, lease.State{Slices: []lease.Held{one, two}})
	if out.text() != "" {
		t.Errorf("of a slice that nobody owned the log says %q", out.text())
	}
}

// What is remembered of slices does not grow: of those that are gone, and of moves that were asked
// for long ago, nothing is kept, and of states that nobody has looked at, the latest.
func TestWhatIsRememberedOfSlicesIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := quiet(Config{Lease: time.Second})
		w := &p.watch
		w.asksBack(&lease.Recall{Leases: []lease.Lease{{Gen: 1}, {Gen: 2}}})
		w.loads([]lease.Load{{Gen: 1, Rate: 10}, {Gen: 2, Rate: 20}})
		w.orders("early")
		time.Sleep(1500 * time.Millisecond)
		w.orders("late")
		time.Sleep(600 * time.Millisecond)
		p.lookAtSlices() // no state: nothing is known to be gone
		if len(w.recalled) != 2 || len(w.rates) != 2 || len(w.ordered) != 2 {
			t.Errorf("without a state, %v, %v and %v are left", w.recalled, w.rates, w.ordered)
		}
		held := []lease.Held{{Lease: lease.Lease{Gen: 2}, Copies: make([]lease.GroupMember, 1)}}
		for i := range maxPending + 5 {
			p.changed(lease.State{Gen: lease.Gen(i), Slices: held})
		}
		held[0].Gen, held[0].Copies[0].Node = 1, "n2/a" // the assigner uses its memory again
		if len(w.states) != maxPending || w.states[0].Gen != 5 {
			t.Errorf("%d states wait, the first of generation %d", len(w.states), w.states[0].Gen)
		}
		p.lookAtSlices()
		_, recalled := w.recalled[2]
		if len(w.recalled) != 1 || !recalled || len(w.rates) != 1 || w.rates[2] != 20 || len(w.ordered) != 1 || w.ordered["late"].IsZero() {
			t.Errorf("%v, %v and %v are left", w.recalled, w.rates, w.ordered)
		}
		if w.assigned.Gen != maxPending+4 || w.assigned.Slices[0].Copies[0].Node != "" || len(w.states) != 0 {
			t.Errorf("the last state is %+v", w.assigned)
		}
		for i := range maxOrdered + 1 {
			w.orders(fmt.Sprint(i))
		}
		if len(w.ordered) > maxOrdered {
			t.Errorf("%d moves are remembered", len(w.ordered))
		}
	})
}

// The log tells when another process assigns slices, and names both. It does not tell of the first
// one, nor of a time without any.
func TestTheLogTellsOfAnotherLeader(t *testing.T) {
	p, out := quiet(Config{})
	p.nodes = []*Node{{p: p, id: "n1", addr: "one:1"}, {p: p, id: "n2", addr: "two:1"}}
	p.watch.membership.Store(&Membership{Members: []ClusterMember{{ID: "n3", Addr: "three:1"}}})
	leader := ""
	p.leaderAddr = func() string { return leader }
	for _, c := range []struct{ leader, says string }{
		{"", ""}, {"one:1", ""}, {"one:1", ""}, {"", ""}, {"three:1", "from=n1 to=n3"}, {"", ""}, {"three:1", ""}, {"four:1", "from=n3 to=four:1"}, {"two:1", "from=four:1 to=n2"},
	} {
		out.reset()
		p.watch.missing = time.Unix(1, 0)
		before := p.watch.leaderAddr
		leader = c.leader
		p.lookAtLeader()
		if got := out.text(); strings.Count(got, "\n") != min(1, len(c.says)) || !strings.Contains(got, c.says) {
			t.Errorf("leader %q: the log says %q, want %q", c.leader, got, c.says)
		}
		if other := c.leader != "" && c.leader != before; p.watch.missing.IsZero() != other || other && p.watch.leaderAddr != c.leader {
			t.Errorf("leader %q: it has been missing since %v", c.leader, p.watch.missing)
		}
	}
}

// Keys stand in the log as digits of their hash unless --log-keys is given. Ranges show where they
// end.
func TestKeysInTheLog(t *testing.T) {
	hidden, shown := &Process{}, &Process{cfg: Config{LogKeys: true}}
	for _, c := range []struct {
		r             lease.Range
		hidden, shown string
	}{
		{lease.Range{}, "[,end)", "[,end)"},
		{lease.Range{Low: "a"}, "[#ca978112ca1b,end)", "[a,end)"},
		{lease.Range{Low: "a", High: "b"}, "[#ca978112ca1b,#3e23e8160039)", "[a,b)"},
		{lease.Range{High: "b"}, "[,#3e23e8160039)", "[,b)"},
	} {
		if a, b := hidden.hashedRange(c.r), shown.hashedRange(c.r); a != c.hidden || b != c.shown {
			t.Errorf("%v stands in the log as %s and %s", c.r, a, b)
		}
	}
}

// A write whose outcome is unknown is logged with its command and the hash of its key; other answers
// are not, nor is an earlier one of the same connection.
func TestTheLogTellsOfUnknownOutcomes(t *testing.T) {
	set := &job{cmds: [][][]byte{{[]byte("SeT"), []byte("a")}}}
	for _, c := range []struct {
		before, answer string
		j              *job
		says           string
	}{
		{"", "UNKNOWN it may have happened", set, "key_hash=ca978112ca1b request=set"},
		{"", "UNKNOWN it may have happened", &job{multi: true, cmds: set.cmds}, "key_hash=ca978112ca1b request=exec"},
		{"", "TRYAGAIN nothing was written", set, ""},
		{"", "UNKNOWNS", set, ""},
		{"UNKNOWN an earlier one", "TRYAGAIN nothing was written", set, ""},
		{"TRYAGAIN an earlier one", "UNKNOWN it may have happened", set, "request=set"},
	} {
		p, out := quiet(Config{}) // anew, because an event that repeats is only counted for a while
		n := &Node{p: p, log: p.log}
		w := resp.NewWriter(2)
		if c.before != "" {
			w.Error(c.before)
		}
		before := len(w.Bytes())
		w.Error(c.answer)
		n.uncertain(c.j, []string{"a"}, w, before)
		if got := out.text(); strings.Count(got, "\n") != min(1, len(c.says)) || !strings.Contains(got, c.says) {
			t.Errorf("%q and %q: the log says %q, want %q", c.before, c.answer, got, c.says)
		}
	}
	p, out := quiet(Config{})
	n, w := &Node{p: p, log: p.log}, resp.NewWriter(2)
	if n.uncertain(set, []string{"a"}, w, 5); out.text() != "" { // the answer was sent meanwhile
		t.Errorf("of an answer that is gone the log says %q", out.text())
	}
}

// A command that took a second is logged with the size of its arguments and its client, which the
// work of the node itself does not have.
func TestTheLogTellsOfSlowCommands(t *testing.T) {
	out := &logged{}
	p := start(t, func(c *Config) { c.LogOutput = out })
	n := p.nodes[0]
	c := dial(t, n.addr)
	id := int64(0)
	fmt.Sscan(c.do("CLIENT", "ID").Text, &id)
	args := [][]byte{[]byte("SET"), []byte("key"), []byte("value")}
	n.slow(nil, "set", args, slowCommand-1)
	if got := out.lines("slow_command"); len(got) != 0 {
		t.Errorf("of a command that was not slow the log says %q", got)
	}
	n.slow(nil, "del", args[1:2], slowCommand)
	n.slow(n.server.Conn(id), "set", args, 2500*time.Millisecond)
	if got := out.lines("slow_command", "name=del", "ms=1000", "bytes=3", `client=""`); len(got) != 1 {
		t.Errorf("the log says %q", out.lines("slow_command"))
	}
	if got := out.lines("slow_command", "name=set", "ms=2500", "bytes=11", "client="+c.nc.LocalAddr().String()); len(got) != 1 {
		t.Errorf("the log says %q", out.lines("slow_command"))
	}
}

// A process that must not use the data it finds says so in the log; one that only cannot reach its
// store or coordinator does not.
func TestTheLogTellsOfRefusedData(t *testing.T) {
	for _, c := range []struct {
		err  error
		says bool
	}{
		{nil, false}, {errors.New("the data belongs to another cluster"), true}, {fmt.Errorf("open: %w", store.ErrUnavailable), false},
		{fmt.Errorf("open: %w", context.DeadlineExceeded), false}, {fmt.Errorf("open: %w", &net.OpError{Op: "dial", Err: errors.New("no route")}), false},
	} {
		p, out := quiet(Config{})
		if got := p.refused(c.err); got != c.err || (len(out.lines("data_refused")) == 1) != c.says || c.says && !strings.Contains(out.text(), c.err.Error()) {
			t.Errorf("%v: %v is returned, and the log says %q", c.err, got, out.text())
		}
	}
}
