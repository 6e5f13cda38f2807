package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/internal/packed"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/shard/lease"
)

// apart is a node of a process that has no assigner and has not begun. The process asks the assigner at an address.
func apart(t *testing.T, leaderAddr string) (*Process, *Node, *logged) {
	t.Helper()
	p, out := quiet(Config{Lease: time.Hour, Timeout: time.Second, Coordinator: "freshet://" + leaderAddr, MaxReplicas: 4})
	x := peer.New(peer.Options{Version: frameVersion, Message: func([]byte) {}, Request: func(context.Context, []byte) []byte { return nil }})
	t.Cleanup(x.Close)
	n := &Node{p: p, id: "n9", addr: "nine:1", incarnation: "n9/a", peers: x, log: p.log, begun: make(chan struct{})}
	p.nodes, p.cluster, p.failed, p.members, p.replaced = []*Node{n}, "the cluster", make(chan error, 1), map[string]applicant{}, map[string]string{}
	p.leaderAddr = func() string { return leaderAddr }
	return p, n, out
}

// An order of an operator that the assigner refuses, or that does not reach it, is answered with the reason.
func TestOrdersThatAreNotCarriedOut(t *testing.T) {
	ordered := func(n *Node, frame []byte) string {
		w := resp.NewWriter(2)
		n.order(t.Context(), frame, w)
		return strings.TrimSpace(string(w.Bytes()))
	}
	move := func(key, id string) []byte {
		return packed.AppendString(packed.AppendString([]byte{frameVersion, frameMove}, key), id)
	}
	_, n, _ := apart(t, "")
	if got := ordered(n, move("k", "n1")); got != "-TRYAGAIN nobody leads; an assigner is being elected" {
		t.Errorf("without an assigner: %s", got)
	}
	p, n, _ := apart(t, "127.0.0.1:1")
	if got := ordered(n, move("k", "n1")); !strings.HasPrefix(got, "-TRYAGAIN the assigner at 127.0.0.1:1 does not answer: ") {
		t.Errorf("with an assigner that is not reached: %s", got)
	}
	if got := string(p.obeyed(move("k", "n1"))); got != string(rune(answerError))+"TRYAGAIN no assigner is here" {
		t.Errorf("a process that has none: %q", got)
	}
	for answer, want := range map[string]string{
		"\x00": "+OK", "\x00more": "-ERR " + errFrame.Error(), "\x02no": "-no", "\x02": "-ERR " + errFrame.Error(), "": "-ERR " + errFrame.Error(), "\x01no": "-ERR " + errFrame.Error(),
	} {
		if standIn(t, n, "127.0.0.1:1", peer.Control, always([]byte(answer)...)); ordered(n, move("k", "n1")) != want {
			t.Errorf("the assigner answers %q, and the operator reads %s", answer, ordered(n, move("k", "n1")))
		}
	}
	p, mine, theirs := twoNodes(t, nil)
	c := dial(t, p.nodes[1].addr)
	for _, x := range [][2]string{
		{"FR.MOVE " + mine[0] + " nowhere", errNotMoved}, {"FR.MOVE " + mine[0] + " n1", errNotMoved}, {"FR.MOVE " + theirs[0] + " n2", errNotMoved}, {"FR.REPLICAS k many", "ERR FR.REPLICAS key n"},
		{"FR.REPLICAS k 65536", "ERR FR.REPLICAS key n"}, {"FR.REPLICAS k 65", "ERR not so many: a key has up to 4 replicas"}, {"FR.REPLICAS k 5", "ERR not so many"}, {"FR.SPLIT " + mine[0], "OK"},
	} {
		c.answers(x[1], strings.Fields(x[0])...)
	}
	for _, frame := range [][]byte{{frameVersion, frameMove}, {frameVersion, frameMove, 1, 'k'}, {frameVersion, frameMove, 1, 'k', 9}} {
		if got := p.obey(frame); got != "ERR "+errFrame.Error() {
			t.Errorf("%q: %s", frame, got)
		}
	}
}

// What a process says of the cluster depends on whether the assigner is there.
func TestAProcessWithoutTheAssignerSaysSo(t *testing.T) {
	p, n, _ := apart(t, "")
	for _, kind := range []byte{frameLiving, frameWho, frameMembers} {
		if got := string(n.asked(t.Context(), kind)); got != string(rune(answerError))+"ERR no assigner is here" {
			t.Errorf("%c is answered with %q", kind, got)
		}
	}
	if got := string(n.asked(t.Context(), frameHello)); got != string(rune(answerDone))+"the cluster" {
		t.Errorf("the cluster is called %q", got)
	}
	var s NodeState
	if b := n.asked(t.Context(), frameState); json.Unmarshal(b[1:], &s) != nil || b[0] != answerDone || s.ID != "n9" || s.Addr != "nine:1" || s.Ready || s.Draining {
		t.Errorf("its state is %q", b)
	}
	if p.leads() || p.assignerAnswers(t.Context()) {
		t.Error("it leads, or hears of a leader")
	}
	for answer, want := range map[string]bool{"\x00": true, "\x00name": true, "": false, "\x02no": false} {
		p.leaderAddr = func() string { return "leader:1" }
		standIn(t, n, "leader:1", peer.Control, always([]byte(answer)...))
		if p.assignerAnswers(t.Context()) != want {
			t.Errorf("a leader that answers %q: %v", answer, !want)
		}
	}
	p.leaderAddr = func() string { return "127.0.0.1:1" }
	if p.assignerAnswers(t.Context()) {
		t.Error("a leader that is not there answers")
	}
}

// A process asks the assigner who is there, adds the owners that it knows of, and goes on with these if the assigner
// does not say anything that can be read.
func TestWhoIsThere(t *testing.T) {
	all := start(t, func(c *Config) { c.Lease = time.Hour })
	real := all.nodes[0].addr
	if !all.assignerAnswers(t.Context()) {
		t.Error("the assigner of a process does not answer it")
	}
	p, n, _ := apart(t, "leader:1")
	n.shard = all.nodes[0].shard
	p.members["n5/a"], p.members["n6/a"] = applicant{addr: "five:1", seen: time.Now()}, applicant{addr: "six:1", seen: time.Now().Add(-2 * time.Hour)}
	for answer, want := range map[string][]string{
		"\x00two:1\none:1\ntwo:1\nnine:1": {"nine:1", "one:1", "two:1", real}, "\x00one:1": {"one:1", real}, "\x00": {real}, "\x02no": {real}, "": {real},
	} {
		standIn(t, n, "leader:1", peer.Control, always([]byte(answer)...))
		slices.Sort(want)
		if got := p.who(t.Context()); !slices.Equal(got, want) {
			t.Errorf("%q: there are %q, want %q", answer, got, want)
		}
		living := map[string]bool{real: false}
		for _, addr := range want {
			living[addr] = addr != real
		}
		if len(want) == 1 { // this process knows better
			living["five:1"] = true
		}
		delete(living, "nine:1")
		if got := p.living(t.Context(), n); !maps.Equal(got, living) {
			t.Errorf("%q: alive are %v, want %v", answer, got, living)
		}
	}
	for answer, want := range map[string]bool{"\x00{\"members\":[{\"id\":\"n1\"}]}": true, "\x00{": false, "\x00": false, "\x02{}": false, "": false} {
		standIn(t, n, "leader:1", peer.Control, always([]byte(answer)...))
		if m, ok := p.askMembers(t.Context(), "leader:1"); ok != want || (len(m.Members) == 1) != want {
			t.Errorf("%q is read as %+v, %v", answer, m, ok)
		}
	}
}

// Slices can be handed over to a node of another process that answers, is not lost, and does not leave itself.
func TestWhoStays(t *testing.T) {
	all := start(t, nil)
	p, n, _ := apart(t, "leader:1")
	n.shard = all.nodes[0].shard
	n.draining.Store(true)
	all.nodes[0].draining.Store(true)
	defer all.nodes[0].draining.Store(false)
	standIn(t, n, "leader:1", peer.Control, always([]byte("\x00two:1")...))
	for answer, want := range map[string]bool{
		`{"id":"n2"}`: true, `{"id":"n2","ready":true}`: true, `{"id":"n2","draining":true}`: false, `{"id":"n2","lost":true}`: false, `{"id":"?"}`: false, `{`: false, ``: false,
	} {
		standIn(t, n, "two:1", peer.Control, always(append([]byte{answerDone}, answer...)...))
		if p.othersStay(t.Context()) != want {
			t.Errorf("a node that says %s stays: %v; %+v", answer, !want, p.State(t.Context()).Nodes)
		}
	}
	standIn(t, n, "two:1", peer.Control, always(append([]byte{answerDone}, `{"id":"n2","addr":"wrong","entries":7}`...)...))
	s := p.State(t.Context())
	if got := fmt.Sprintf("%d %s %s %d %s %s", len(s.Nodes), s.Nodes[1].ID, s.Nodes[1].Addr, s.Nodes[1].Entries, s.Nodes[2].ID, s.Nodes[2].Addr); got != "3 n2 two:1 7 n9 nine:1" {
		t.Errorf("the state is %s, %+v", got, s.Nodes)
	}
	if s.Nodes[0].Slices != len(s.Slices) || s.Nodes[2].Slices != 0 || s.Slices[0].Node != "n1" || s.Gen != s.Slices[0].Gen || s.Gen == 0 || s.Version != Version || s.Cluster != "the cluster" {
		t.Errorf("the state is %+v", s)
	}
}

// The assigner knows a bounded number of nodes: of more it takes no renewals, and it goes on to take those of the others.
func TestTheNumberOfNodesIsBounded(t *testing.T) {
	p, _, _ := apart(t, "")
	var l link.Link
	admit := func(i int) bool {
		return p.admit(&lease.Renew{Node: fmt.Sprint("x", i, "/a"), Addr: fmt.Sprint("x", i, ":1")}, &l)
	}
	for i := range maxMembers {
		if !admit(i) {
			t.Fatalf("node %d is refused", i)
		}
	}
	if admit(maxMembers) || !admit(0) || !admit(maxMembers-1) || len(p.members) != maxMembers {
		t.Errorf("%d nodes are known", len(p.members))
	}
	most := 0
	for i := range 2 * maxMembers { // one is started again and again
		if p.admit(&lease.Renew{Node: fmt.Sprint("x0/b", i), Addr: "x0:1"}, &l); len(p.members) != maxMembers {
			t.Fatalf("%d nodes are known", len(p.members))
		}
		most = max(most, len(p.replaced))
	}
	if most != maxMembers {
		t.Errorf("%d incarnations are remembered whose names others have", most)
	}
	p.forget(new(link.Link))
	if len(p.members) != maxMembers {
		t.Errorf("a link that nobody had breaks, and %d nodes are known", len(p.members))
	}
	if p.forget(&l); len(p.members) != 0 {
		t.Errorf("the link broke, and %d nodes are known", len(p.members))
	}
}
