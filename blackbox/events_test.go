package blackbox

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/internal/eventlog"
)

// events returns the JSON lines in the log of a process.
func (p *process) events() (out []map[string]any) {
	for line := range strings.Lines(p.said()) {
		var e map[string]any
		if json.Unmarshal([]byte(line), &e) == nil {
			out = append(out, e)
		}
	}
	return out
}

// count counts the events with this name and these fields.
func (p *process) count(name string, fields ...any) (n int) {
	for _, e := range p.events() {
		ok := e["event"] == name
		for i := 0; i < len(fields); i += 2 {
			ok = ok && fmt.Sprint(e[fields[i].(string)]) == fmt.Sprint(fields[i+1])
		}
		if ok {
			n++
		}
	}
	return n
}

// tells waits until a process has logged an event.
func (p *process) tells(name string, fields ...any) {
	p.t.Helper()
	p.eventually(func() bool { return p.count(name, fields...) > 0 })
}

// A node is killed and comes back, PostgreSQL goes and returns, a node drains and
// leaves, the process with the assigner is killed: each is in the log, in the metrics, at
// /readyz and in the status of the others, once and with all fields, while the keys of
// the dead node cannot be written yet.
func TestEventsAreTold(t *testing.T) {
	c := gather(t, 3, "--lease", "4s", "--log-format", "json")
	n1, n2, n3 := c.procs[0], c.procs[1], c.procs[2]
	n1.tells("node_joined", "member", "n3")
	c.give(2, "key:1")
	n1.tells("slice_moved", "why", "operator", "to", "n3")

	_ = n3.ends(syscall.SIGKILL)
	lost := regexp.MustCompile(`freshet_member_lost\{member="n3",node="n[12]"\} 1`)
	unwritable := regexp.MustCompile(`freshet_slices_unwritable\{node="n[12]"\} [1-9]`)
	for _, p := range []*process{n1, n2} {
		p.tells("node_lost", "member", "n3")
		p.eventually(func() bool {
			code, ready := p.page(0, "/readyz")
			_, metrics := p.page(0, "/metrics")
			out, err := command(t, nil, "status", "--admin", p.admin[0])
			if p.count("slice_moved", "why", "lost") > 0 {
				t.Fatal("its keys can be written again, and it was named nowhere")
			}
			return code == 200 && strings.Contains(ready, "node n3 is lost") && lost.MatchString(metrics) && unwritable.MatchString(metrics) &&
				err == nil && strings.Contains(out, "LOST") && strings.Contains(out, "n3 (lost; no writes until ")
		})
		if code := p.get(0, "/api/v1/health"); code != 503 {
			t.Errorf("the cluster's health is %d", code)
		}
	}
	n1.tells("slice_moved", "why", "lost", "from", "n3")
	c.restart(2)
	n3 = c.procs[2]
	for _, p := range []*process{n1, n2} {
		p.tells("node_back", "member", "n3")
		p.eventually(func() bool { return p.get(0, "/api/v1/health") == 200 })
	}

	c.pg.Stop()
	for _, p := range c.procs {
		p.tells("store_away")
	}
	if err := c.pg.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range c.procs {
		p.tells("store_back")
	}

	c.give(1, "key:2")
	n2.eventually(func() bool { return n2.client(0).Do(t.Context(), "FR.DRAIN").Err() == nil })
	n2.tells("drain_done")
	n1.tells("slice_moved", "why", "drain", "from", "n2")
	if err := n2.ends(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	for _, p := range []*process{n1, n3} {
		p.tells("node_left", "member", "n2")
	}
	if err := n3.client(0).Do(t.Context(), "CONFIG", "SET", "log-level", "debug").Err(); err != nil {
		t.Error(err)
	}
	n3.tells("config_changed", "name", "log-level")
	_ = n1.ends(syscall.SIGKILL)
	n3.tells("node_lost", "member", "n1", "writable_at", "unknown")

	onceAndWhole(t, n1, n2, n3)
}

// onceAndWhole checks that each event was logged once, with all fields.
func onceAndWhole(t *testing.T, n1, n2, n3 *process) {
	t.Helper()
	once := map[*process][][]any{
		n1: {{"node_started"}, {"node_joined", "member", "n2"}, {"node_lost", "member", "n3"}, {"node_back", "member", "n3"}, {"node_left", "member", "n2"}, {"store_away"}, {"store_back"}},
		n2: {{"node_started"}, {"node_lost", "member", "n3"}, {"node_back", "member", "n3"}, {"drain_began"}, {"drain_done"}, {"store_away"}, {"store_back"}},
		n3: {{"node_started"}, {"node_left", "member", "n2"}, {"node_lost", "member", "n1"}, {"store_away"}, {"store_back"}, {"config_changed"}},
	}
	for i, p := range []*process{n1, n2, n3} {
		for _, e := range once[p] {
			if n := p.count(e[0].(string), e[1:]...); n != 1 && !(p == n2 && strings.HasPrefix(e[0].(string), "drain_") && n == 2) { // FR.DRAIN, and the stop
				t.Errorf("n%d logged %v %d times", i+1, e, n)
			}
		}
		p.complete(fmt.Sprint("n", i+1))
	}
}

// complete checks that every line has the required fields.
func (p *process) complete(node string) {
	p.t.Helper()
	kinds := eventlog.Kinds()
	for _, e := range p.events() {
		name, _ := e["event"].(string)
		fields := []string{"node", "cluster", "event", "time", "level", "msg"}
		if k := kinds[name]; k != nil {
			fields = append(fields, k.Fields...)
			if level := strings.ToUpper(k.Level.String()); e["level"] != level {
				p.t.Errorf("%v has not the level %s", e, level)
			}
		} else if name != "message" {
			p.t.Errorf("the event %q is in no catalogue", name)
		}
		for _, f := range fields {
			if _, ok := e[f]; !ok {
				p.t.Errorf("%v has no %s", e, f)
			}
		}
		if e["node"] != node {
			p.t.Errorf("%v is not of %s", e, node)
		}
		if at, ok := e["writable_at"].(string); ok && at != "unknown" {
			when, err := time.Parse(time.RFC3339Nano, at)
			said, _ := time.Parse(time.RFC3339Nano, fmt.Sprint(e["time"]))
			if err != nil || e["slices"] != 0.0 && !when.After(said) {
				p.t.Errorf("%v: the node was named when its keys could be written again: %v", e, err)
			}
		}
	}
	if i := slices.IndexFunc(p.events(), func(e map[string]any) bool { return e["cluster"] == "" }); i >= 0 {
		p.t.Errorf("%v has no cluster", p.events()[i])
	}
}

// Over etcd, the loss of any node is logged, even of the node with the assigner, which another one
// replaces.
func TestALostLeaderIsTold(t *testing.T) {
	c, _ := gatherOnEtcd(t, 3, "--lease", "3s", "--log-format", "json")
	for i := range 3 {
		watcher := c.procs[(i+1)%3]
		_ = c.procs[i].ends(syscall.SIGKILL)
		name := fmt.Sprint("n", i+1)
		watcher.tells("node_lost", "member", name)
		watcher.eventually(func() bool {
			_, ready := watcher.page(0, "/readyz")
			return strings.Contains(ready, "node "+name+" is lost")
		})
		if i == 0 { // who was first leads; started again at once, it might be elected again
			watcher.eventually(func() bool { return watcher.count("leader_changed") > 0 })
		}
		c.restart(i)
		watcher.tells("node_back", "member", name)
		watcher.eventually(func() bool { return watcher.get(0, "/api/v1/health") == 200 })
	}
	for i, p := range c.procs {
		p.complete(fmt.Sprint("n", i+1))
	}
}
