package node

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/internal/eventlog"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
)

// A roster says who is lost: whose link has been broken for a while, or who has been
// silent; who has left; who is back under another incarnation, whose former slices wait.
func TestRoster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r roster
		var first, second link.Link
		endings := map[string]shard.Ending{"n1/a": {Slices: 1}, "n2/a": {Slices: 2, Left: 9 * time.Second}, "n3/a": {Slices: 3, Left: 5 * time.Second}}
		own := map[string]bool{"n1/a": true}
		renew := func(node string, l *link.Link, leaving bool) {
			r.renewed(&lease.Renew{Node: node, Addr: node, Leaving: leaving}, l)
		}
		look := func() string {
			m := r.survey(time.Now(), 3*time.Second, endings, own)
			var out []string
			for _, x := range m.Members {
				out = append(out, fmt.Sprintf("%s:%v:%d", x.Incarnation, x.Lost, x.Slices))
			}
			return fmt.Sprint(strings.Join(out, " "), " unwritable ", m.Unwritable)
		}
		is := func(want string) {
			t.Helper()
			if got := look(); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		alive := func(for_ time.Duration, nodes ...string) {
			for end := time.Now().Add(for_); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
				for _, n := range nodes {
					renew(n, &first, false)
				}
			}
		}
		renew("n1/a", nil, false)
		renew("n3/a", &second, false)
		alive(time.Second, "n2/a", "n3/a")
		is("n1/a:false:1 n2/a:false:2 n3/a:false:3 unwritable 0")
		renew("n3/a", &second, false)
		r.broken(&second)
		is("n1/a:false:1 n2/a:false:2 n3/a:false:3 unwritable 0") // it may dial again
		alive(600*time.Millisecond, "n2/a")
		is("n1/a:false:1 n2/a:false:2 n3/a:true:3 unwritable 3")
		renew("n3/a", &second, false)
		is("n1/a:false:1 n2/a:false:2 n3/a:false:3 unwritable 0")
		alive(4*time.Second, "n2/a") // n3 says nothing
		is("n1/a:false:1 n2/a:false:2 n3/a:true:3 unwritable 3")
		renew("n3/b", &second, false) // it was restarted; its former leases last
		is("n1/a:false:1 n2/a:false:2 n3/b:false:0 unwritable 3")
		endings["n3/b"] = endings["n3/a"]
		delete(endings, "n3/a")
		is("n1/a:false:1 n2/a:false:2 n3/b:false:3 unwritable 0")
		renew("n2/a", &first, true)
		delete(endings, "n2/a")
		r.broken(&first)
		is("n1/a:false:1 n3/b:false:3 unwritable 0") // it has left
		alive(4*time.Second, "n2/c")
		delete(endings, "n3/b") // others have its slices
		alive(2*forgetAfter, "n2/c")
		is("n1/a:false:1 n2/c:false:0 n3/b:true:0 unwritable 0")
		alive(2*forgetAfter, "n2/c")
		is("n1/a:false:1 n2/c:false:0 unwritable 0") // it is forgotten
		endings["n2/c"] = shard.Ending{Slices: 4, Left: time.Second}
		is("n1/a:false:1 n2/c:false:4 unwritable 0")
		renew("n2/d", &second, false) // restarted so quickly that nobody has missed it
		is("n1/a:false:1 n2/d:false:0 unwritable 4")
	})
}

// A change of the members is told once, by what it is.
func TestMembersAreTold(t *testing.T) {
	var out bytes.Buffer
	p := &Process{}
	p.events, _ = eventlog.New(eventlog.Options{Out: &out})
	p.log = slog.New(p.events)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	a, b := ClusterMember{ID: "n2", Incarnation: "n2/a", Slices: 2}, ClusterMember{ID: "n2", Incarnation: "n2/b"}
	lost := a
	lost.Lost, lost.Since, lost.Writable = true, at, at.Add(time.Second)
	for _, c := range []struct {
		old, fresh []ClusterMember
		says       string
	}{
		{nil, []ClusterMember{a}, "event=node_joined"},
		{[]ClusterMember{a}, []ClusterMember{a}, ""},
		{[]ClusterMember{a}, []ClusterMember{lost}, "event=node_lost"},
		{nil, []ClusterMember{lost}, "writable_at=2026-01-02T03:04:06Z"},
		{[]ClusterMember{lost}, []ClusterMember{lost}, ""},
		{[]ClusterMember{lost}, []ClusterMember{a}, "event=node_back"},
		{[]ClusterMember{lost}, []ClusterMember{b}, "ms=2000"},
		{[]ClusterMember{a}, []ClusterMember{b}, "event=node_back"},
		{[]ClusterMember{a}, nil, "event=node_left"},
	} {
		out.Reset()
		p.tellMembers(c.old, c.fresh, at.Add(2*time.Second))
		if got := out.String(); !strings.Contains(got, c.says) || strings.Count(got, "\n") != min(1, len(c.says)) {
			t.Errorf("from %v to %v it says %q, want %q", c.old, c.fresh, got, c.says)
		}
	}
}
