package sim

import (
	"fmt"
	"slices"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
	"github.com/freshet-cache/freshet/check"
)

// transaction is a workflow that reads from one cut and writes one batch, at whichever servers it
// asks. In the histories it is one act.
type transaction struct {
	s      *meshStorm
	client *meshClient
	tx     *mesh.Tx
	branch *mesh.Tx // while it is open
	steps  int      // steps that are left
	reads  []check.Cell
	wrote  []string // keys that were written to the buffer
	saw    map[string]mesh.Item
}

func (s *meshStorm) transact(c *meshClient) {
	x := &transaction{s: s, client: c, tx: &mesh.Tx{Session: *c.session}, steps: 1 + s.rng("transactions").IntN(6), saw: map[string]mesh.Item{}}
	x.call(func(op mesh.Op) mesh.Input { return x.tx.Begin(op) }, func(r mesh.Reply) {
		if x.tx.Began(r) {
			x.next()
		} else {
			x.abort()
		}
	})
}

// call sends an operation to a server, perhaps another one each time.
func (x *transaction) call(in func(mesh.Op) mesh.Input, done func(mesh.Reply)) {
	s, c := x.s, x.client
	if s.calm {
		x.abort()
		return
	}
	for c.at == nil || c.at.down || c.at.m == nil || chance(s.rng("transactions"), s.cfg.Roam/2) {
		c.at = s.nodes[s.rng("transactions").IntN(len(s.nodes))]
	}
	s.call(c, &meshCall{done: done}, in)
}

// abort ends the transaction. What it has read must still be one cut.
func (x *transaction) abort() {
	x.s.acts = append(x.s.acts, check.Act{Session: x.client.name + " aborted", After: x.after(), Reads: x.reads})
	x.client.busy = false
	if x.client.at != nil && !slices.Contains(x.s.view.Ring, x.client.at.incarnation) {
		x.client.at = nil
	}
	x.s.think(x.client)
}

func (x *transaction) after() []int {
	if x.client.last < 0 {
		return nil
	}
	return []int{x.client.last}
}

// next makes the next step: a read, a write into the buffer, the begin or the end of a branch, or
// at last the commit.
func (x *transaction) next() {
	s, r := x.s, x.s.rng("transactions")
	if chance(r, s.cfg.Strip) { // as a token, on its way to the next step of the workflow
		tx, err := wire.ResumeTx(wire.TxToken(x.tx))
		if s.fail(err); err == nil {
			x.tx = tx
		}
	}
	tx := x.tx
	if x.branch != nil && r.IntN(2) == 0 {
		tx = x.branch
	}
	switch x.steps--; {
	case x.steps < 0:
		x.commit()
		return
	case r.IntN(4) == 0:
		k := s.cfg.key(r)
		tx.Set(mesh.Mut{Key: k, Value: fmt.Appendf(nil, "t%d.%d", s.ops, x.steps), Delete: r.IntN(8) == 0, Supersedes: x.saw[k].Dots()})
		x.wrote = append(x.wrote, k)
		x.next()
		return
	case x.branch == nil && r.IntN(5) == 0:
		s.sometimes("a transaction branches")
		x.branch = x.tx.Fork()
	case x.branch != nil && r.IntN(3) == 0:
		x.tx.Join(x.branch)
		x.branch, tx = nil, x.tx
	}
	keys := []string{s.cfg.key(r)}
	if r.IntN(3) == 0 {
		keys = append(keys, s.cfg.key(r))
	}
	x.call(func(op mesh.Op) mesh.Input { return tx.Look(op, keys...) }, func(reply mesh.Reply) {
		items, outcome := tx.Looked(reply, keys...)
		if outcome != mesh.Done {
			x.abort()
			return
		}
		s.fail(s.store.Snapshot(tx))
		for i, k := range keys {
			if !slices.Contains(x.wrote, k) {
				x.saw[k] = items[i]
				x.reads = append(x.reads, cells([]string{k}, items[i:i+1])...)
			}
		}
		x.judge(tx)
		x.next()
	})
}

// judge compares what a transaction has read with its snapshot, in a space that keeps siblings.
func (x *transaction) judge(tx *mesh.Tx) {
	for k, it := range x.saw {
		if !x.s.cfg.Concurrent {
			return
		}
		if len(it.Siblings) > 1 {
			x.s.sometimes("a transaction reads concurrent writes")
		}
		x.s.fail(x.s.store.Same(k, it, func(d mesh.Dot) bool {
			return tx.At.Has(d) || slices.ContainsFunc(tx.Carried, func(w *mesh.Write) bool { return w.Dot == d })
		}))
	}
}

func (x *transaction) commit() {
	if x.branch != nil {
		x.tx.Join(x.branch)
	}
	if len(x.wrote) == 0 {
		x.ended(check.Act{Session: x.client.name, After: x.after(), Reads: x.reads})
		return
	}
	x.call(func(op mesh.Op) mesh.Input { return x.tx.Commit(op) }, func(r mesh.Reply) {
		if r.Outcome != mesh.Done {
			x.abort()
			return
		}
		x.s.sometimes("a transaction commits")
		x.tx.Took(r)
		if x.s.wrote(r.Write, x.after(), x.client.name, x.reads...) {
			x.client.last = len(x.s.acts) - 1
		}
		*x.client.session = x.tx.Session
		x.client.busy = false
		x.s.think(x.client)
	})
}

// ended ends a transaction that only reads.
func (x *transaction) ended(a check.Act) {
	x.client.last = len(x.s.acts)
	x.s.acts = append(x.s.acts, a)
	*x.client.session = x.tx.Session
	x.client.busy = false
	x.s.think(x.client)
}
