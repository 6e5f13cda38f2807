package shard

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// diary is a watcher that writes down what it is told, in order, and what is sent.
type diary struct {
	lines []string
	last  *Handle
}

func (d *diary) add(format string, args ...any) {
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) Acquired(h *Handle, after lease.Gen) {
	d.last = h
	d.add("acquired %d after %d", h.Gen, after)
}
func (d *diary) Extended(h *Handle) { d.add("extended %d", h.Gen) }
func (d *diary) Revoked(h *Handle) {
	d.add("revoked %d, valid %v, lapsed %v", h.Gen, h.Valid(), h.Lapsed)
}
func (d *diary) HandedOver(h *Handle, over lease.Range, under lease.Gen, next string) {
	d.add("handed over %v of %d to %s under %d", over, h.Gen, next, under)
}
func (d *diary) Shared(h *Handle)   { d.last = h; d.add("shared %d", h.Gen) }
func (d *diary) Unshared(h *Handle) { d.add("unshared %d, lapsed %v", h.Gen, h.Lapsed) }

// send writes acknowledgements down; renewals come at every beat.
func (d *diary) send(msg any) {
	if g, ok := msg.(*lease.Gave); ok {
		d.add("says that %v is given up", g.Gens)
	}
}

// What is asked back is handed over only if the lease holds at that moment: memory of a
// lease that lapsed may be older than what the next owner has. Nobody hears that it is
// given up before the watcher knows.
func TestWhatLapsedIsNotHandedOver(t *testing.T) {
	const length = 10 * time.Second
	all := lease.Range{}
	part := lease.Range{Low: "b", High: "c"}
	primary, replica := lease.Group{{Node: "n1"}, {Node: "n2"}}, lease.Group{{Node: "n2"}, {Node: "n1"}}
	for name, c := range map[string]struct {
		after time.Duration // when it is asked back
		group lease.Group
		next  string
		want  []string
	}{
		"just in time": {length - 1, nil, "n2", []string{"acquired 5 after 3", "revoked 5, valid false, lapsed false", "handed over [b,c) of 5 to n2 under 5", "says that [5] is given up"}},
		"too late":     {length, nil, "n2", []string{"acquired 5 after 3", "revoked 5, valid false, lapsed true", "says that [5] is given up"}},
		"to nobody":    {length / 2, nil, "", []string{"acquired 5 after 3", "revoked 5, valid false, lapsed false", "says that [5] is given up"}},
		"as a primary": {length / 2, primary, "n2", []string{"acquired 5 after 3", "revoked 5, valid false, lapsed false", "handed over [b,c) of 5 to n2 under 5", "says that [5] is given up"}},
		"as a replica": {length / 2, replica, "n2", []string{"shared 5", "unshared 5, lapsed false", "says that [5] is given up"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &diary{}
				n := StartNode(NodeOptions{NodeOptions: lease.NodeOptions{Node: "n1", Groups: true}, Beat: time.Hour, Watch: d, Send: d.send})
				defer n.Close()
				synctest.Wait() // the first renewal, from which the lease counts
				grant := &lease.Grant{Node: "n1", Seq: 1, Length: ticks.Tick(length), Leases: []lease.Lease{{Range: all, Gen: 5}}, After: []lease.Gen{3}}
				if c.group != nil {
					grant.Groups = []lease.Group{c.group}
				}
				n.Deliver(grant)
				if h := d.last; !h.Valid() || h.Copy != !c.group.Primary("n1") || len(h.Group) != len(c.group) {
					t.Errorf("handle %+v of group %v", h.Lease, h.Group)
				}
				if h := n.Acquire("b"); (h == nil) != (name == "as a replica") {
					t.Errorf("it owns %v", h)
				}
				time.Sleep(c.after)
				n.Deliver(&lease.Recall{Node: "n1", Leases: []lease.Lease{{Range: part, Gen: 5}}, Next: []string{c.next}})
				if !slices.Equal(d.lines, c.want) {
					t.Errorf("%q\nwant %q", d.lines, c.want)
				}
				if n.Acquire("b") != nil {
					t.Error("it owns what it has given up")
				}
			})
		})
	}
}

// A watcher that comes later hears of what is held, and then of the same as the first.
func TestWatchersHearTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := &diary{}, &diary{}
		n := StartNode(NodeOptions{NodeOptions: lease.NodeOptions{Node: "n1", Groups: true}, Beat: 4 * time.Second, Watch: first, Send: first.send})
		synctest.Wait()
		grant := &lease.Grant{Node: "n1", Seq: 1, Length: 10e9, Leases: []lease.Lease{{Range: lease.Range{High: "m"}, Gen: 5}, {Range: lease.Range{Low: "m"}, Gen: 6}}, After: []lease.Gen{3, 0},
			Groups: []lease.Group{nil, {{Node: "n2"}, {Node: "n1"}}}}
		n.Deliver(grant)
		n.Watch(second)
		time.Sleep(5 * time.Second)
		grant.Seq = 2
		n.Deliver(grant)
		n.Deliver(grant) // again, and nothing new
		grant.Seq = 1
		n.Deliver(grant) // late
		n.Close()
		end := func(lines []string) []string { return slices.Sorted(slices.Values(lines[len(lines)-2:])) }
		over := []string{"revoked 5, valid false, lapsed false", "unshared 6, lapsed false"}
		if want := []string{"acquired 5 after 3", "shared 6", "extended 5"}; !slices.Equal(first.lines[:3], want) || len(first.lines) != 5 || !slices.Equal(end(first.lines), over) {
			t.Errorf("%q", first.lines)
		}
		if want := []string{"acquired 5 after 0", "shared 6", "extended 5"}; !slices.Equal(second.lines[:3], want) || len(second.lines) != 5 || !slices.Equal(end(second.lines), over) {
			t.Errorf("%q", second.lines)
		}
		n.Deliver(grant)
		if n.Acquire("a") != nil || len(first.lines) != 5 {
			t.Error("a node that is closed takes leases")
		}
	})
}
