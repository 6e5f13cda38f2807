package node

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/shard/lease"
)

// A node that the cluster refuses tells its process why, once. What it gets before it has begun, or cannot read, is
// lost and ends nothing.
func TestWhatANodeIsSent(t *testing.T) {
	p, n, out := apart(t, "")
	for _, frame := range []string{"", "\x05", "\x05N", "\x04Nold", "\x05L", "\x05Lnoise", "\x05K", "\x05Knoise", "\x05Xnoise"} {
		n.message([]byte(frame))
	}
	select {
	case err := <-p.Failed():
		t.Errorf("the process has failed: %v", err)
	default:
	}
	n.message(frameOf(frameNo, "first reason"))
	n.message(frameOf(frameNo, "second reason")) // nobody waits for it
	if err := <-p.Failed(); err.Error() != "refused by the cluster: first reason" {
		t.Errorf("the process has failed with %v", err)
	}
	if out.text() != "" {
		t.Errorf("the log says %q", out.text())
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if b := n.whenBegun(gone, frameOf(frameHello, "")); b != nil {
		t.Errorf("a node that has not begun answers %q over a broken link", b)
	}
	close(n.begun)
	if b := n.whenBegun(t.Context(), frameOf(frameHello, "")); string(b) != "\x00the cluster" {
		t.Errorf("a node that has begun answers %q", b)
	}
}

// What another node sends that cannot be read is logged, by what it was to be.
func TestUnreadableMessagesAreLogged(t *testing.T) {
	out := &logged{}
	p := start(t, func(c *Config) { c.LogOutput = out })
	n := p.nodes[0]
	for frame, says := range map[string]string{"Lnoise": "the assigner sent what cannot be read", "Knoise": "another node's message about a replicated key cannot be read"} {
		out.reset()
		if n.message(frameOf(frame[0], frame[1:])); !strings.Contains(out.text(), says) {
			t.Errorf("%s: the log says %q, want %q", frame, out.text(), says)
		}
	}
	out.reset()
	p.fromNode(frameOf(frameLease, "noise"), nil)
	if !strings.Contains(out.text(), "a node sent what cannot be read") {
		t.Errorf("the log says %q", out.text())
	}
	out.reset()
	for _, frame := range []string{"", "\x05", "\x05L"[:1], "\x04Lnoise", "\x05Xnoise"} {
		if p.fromNode([]byte(frame), nil); n.fromMember([]byte(frame)) {
			t.Errorf("%q is taken for a message about a replicated key", frame)
		}
	}
	if out.text() != "" {
		t.Errorf("of other messages the log says %q", out.text())
	}
	p.toNode("nobody/x", &lease.Recall{}) // which has no link
	c := dial(t, n.addr)
	c.answers("ERR this node speaks link version 5; run one version", "FR.LINK", "4")
	c.answers("ERR this node speaks link version 5", "FR.LINK", "4", "two:1", "space")
	c.answers(`ERR "nothing" is not open at this node; start all processes with the same --space flags`, "FR.LINK", "5", "two:1", "nothing")
	c.answers("OK", "FR.LINK", "5")
}

// A node that is about to go says so over every link that others have opened, also over those that come later.
func TestLinksOfANodeThatGoes(t *testing.T) {
	n := &Node{}
	var first, second, third link.Link
	if n.linked(&first, true) || n.linked(&second, true) || n.linked(&second, false) || len(n.links) != 1 || !n.links[&first] {
		t.Errorf("the links are %v, and the node goes: %v", n.links, n.parting)
	}
	n.linked(&first, false)
	if n.drainLinks(t.Context()); !n.linked(&third, true) || !n.linked(&third, false) || len(n.links) != 0 {
		t.Errorf("the links are %v, and the node goes: %v", n.links, n.parting)
	}
}

// A node that loses the assigner has its clients forget what they keep, and again when the assigner has it back. A link
// that stands makes nobody forget.
func TestClientsForgetWhenTheAssignerIsLost(t *testing.T) {
	p := start(t, nil)
	n := p.nodes[0]
	c := tracker(t, n.addr)
	c.do("GET", "k")
	n.again(true)
	c.hears()
	n.again(false)
	told := 0
	testkit.True(t, "the client is told twice", func() bool { told += len(c.told()); return told == 2 })
	c.do("GET", "k")
	c.hears()
}

// Processes share a coordinator of their own for each group of a space, unless they join another process.
func TestTheCoordinatorOfAGroup(t *testing.T) {
	dir := t.TempDir()
	for _, store := range []string{"memory:", "pebble:"} {
		p, n, _ := apart(t, "leader:1")
		p.host = "this process"
		seat, err := p.seat("causal/feeds")
		if err != nil || seat.Coordinator != nil || seat.Close != nil || seat.Self != n.addr || seat.Host != "this process" || seat.Leader() != "leader:1" {
			t.Errorf("a process that joins another one: %+v, %v", seat, err)
		}
		p.cfg.Coordinator, p.cfg.Store, p.cfg.Data = "embedded", store, dir
		for range 2 {
			if seat, err = p.seat("causal/feeds"); err != nil || seat.Coordinator == nil || seat.Host == "this process" || seat.Self != n.addr {
				t.Fatalf("%s: %+v, %v", store, seat, err)
			}
			if err := seat.Close(); err != nil {
				t.Error(err)
			}
		}
		if names := entries(t, dir); names != map[string]string{"memory:": "", "pebble:": "coordinator-causal-feeds"}[store] {
			t.Errorf("%s: the directory has %q", store, names)
		}
	}
	p, _, _ := apart(t, "")
	p.cfg.Coordinator = "etcd://h"
	if _, err := p.seat("causal/feeds"); err == nil || !strings.Contains(err.Error(), "is not HOST:PORT") {
		t.Errorf("an address that cannot be read: %v", err)
	}
	if err := p.coordinate(); err == nil || !strings.Contains(err.Error(), "is not HOST:PORT") {
		t.Errorf("an address that cannot be read: %v", err)
	}
}

// entries are the names of what a directory has.
func entries(t *testing.T, dir string) string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}
