package node

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/freshet-cache/freshet/redis"
	"github.com/freshet-cache/freshet/resp"
)

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
