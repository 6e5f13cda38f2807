package node

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/freshet-cache/freshet/redis"
	"github.com/freshet-cache/freshet/resp"
)

// Health is how the cluster is, in one word, as one process sees it.
type Health struct {
	// Status is SAFE if every slice takes writes and no node is lost, and else WAITING.
	Status     string          `json:"status"`
	Unwritable int             `json:"unwritable_slices"`
	Writable   time.Time       `json:"writable_at,omitzero"` // when all take writes again; zero: now, or not known
	Lost       []ClusterMember `json:"lost"`
	StoreAway  bool            `json:"store_away"`
}

// Health is how the cluster is.
func (p *Process) Health() Health {
	h := Health{Status: "SAFE", Lost: []ClusterMember{}, StoreAway: p.watch.store.away.Load()}
	if m := p.watch.membership.Load(); m != nil {
		h.Unwritable, h.Writable = m.Unwritable, m.Writable
		for _, x := range m.Members {
			if x.Lost {
				h.Lost = append(h.Lost, x)
			}
		}
	}
	if h.Unwritable > 0 || len(h.Lost) > 0 || h.StoreAway {
		h.Status = "WAITING"
	}
	return h
}

// String says it in lines.
func (h Health) String() string {
	var b strings.Builder
	for _, m := range h.Lost {
		b.WriteString(lostText(m) + "\n")
	}
	if h.Unwritable > 0 {
		fmt.Fprintf(&b, "%d slices take no writes\n", h.Unwritable)
	}
	if h.StoreAway {
		b.WriteString("the store does not answer\n")
	}
	return b.String()
}

// readyz answers whether this node serves; the rest of the cluster is named, and does
// not count: the other nodes' clients must not lose this node too.
func (n *Node) readyz(w http.ResponseWriter, _ *http.Request) {
	if !n.ready() {
		http.Error(w, "not ready: draining, or some keys have no owner yet", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprint(w, "ready\n", n.p.Health())
}

// lost is the state of nodes that are lost, for those that did not answer.
func (p *Process) lost(nodes []NodeState) []NodeState {
	m := p.watch.membership.Load()
	if m == nil {
		return nodes
	}
	for _, x := range m.Members {
		if !x.Lost {
			continue
		}
		s := NodeState{ID: x.ID, Addr: x.Addr, Lost: true, Since: x.Since, Writable: x.Writable, Slices: x.Slices}
		i := slices.IndexFunc(nodes, func(o NodeState) bool { return o.Addr == x.Addr })
		switch {
		case i < 0:
			nodes = append(nodes, s)
		case nodes[i].ID == "?":
			nodes[i] = s
		}
	}
	return nodes
}

// setting answers CONFIG SET.
func (n *Node) setting(c *resp.Conn, args [][]byte, w *resp.Writer) {
	if len(args) < 4 || len(args)%2 == 1 {
		w.Error("ERR wrong number of arguments for 'config|set' command")
		return
	}
	for i := 2; i < len(args); i += 2 {
		if err := n.p.setLog(redis.Lower(args[i]), redis.Lower(args[i+1]), c.RemoteAddr()); err != nil {
			w.Error("ERR CONFIG SET: " + err.Error())
			return
		}
	}
	w.SimpleString("OK")
}
