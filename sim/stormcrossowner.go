package sim

import (
	"encoding/binary"
	"fmt"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/linear/crossowner"
	"github.com/freshet-cache/freshet/ticks"
)

// txCoordinator is a call that writes keys of several owners in a transaction of its own.
type txCoordinator struct {
	n           *stormNode
	incarnation int
	op          clink.Op
	id          clink.ID
	call        Call
	value       string
	machine     *crossowner.Coordinator
	heard       map[string]bool // which owners have answered Ask
}

// keyLock is a cross-owner write as its owner sees it.
type keyLock struct {
	b        *txCoordinator
	op       clink.Op
	keys     []string
	call     clink.Call // in flight; 0 if there is none
	resolved bool       // the coordinator has told, or the deadline has passed
	ended    bool       // the machine has answered
	outcome  crossowner.Outcome
	finding  bool // the coordinator waits to be told
	returned bool // it was locked at all
}

func (s *storm) patience() ticks.Tick { return 3 * max(s.plan.Config.Timeout, 4*s.plan.Config.Delay) }

// beginTx begins a transaction.
func (n *stormNode) beginTx(op clink.Op, c Call, value string) {
	b := &txCoordinator{n: n, incarnation: n.incarnations, op: op, call: c, value: value, heard: map[string]bool{}}
	binary.BigEndian.PutUint64(b.id[8:], uint64(op))
	b.id[0] = 0xff
	owners := map[string][]string{}
	for _, k := range c.Keys {
		o := n.s.owner(k).name
		owners[o] = append(owners[o], k)
	}
	if len(owners) > 1 {
		n.s.sometimes("a transaction has several owners")
	}
	machine, outs := crossowner.New(owners)
	b.machine = machine
	b.perform(outs)
}

func (b *txCoordinator) step(in crossowner.Input) { b.perform(b.machine.Step(in, nil)) }

func (b *txCoordinator) perform(outs []crossowner.Output) {
	for _, out := range outs {
		switch out := out.(type) {
		case crossowner.Lock:
			b.send(out.Owner, func(o *stormNode) { o.lockKeys(b, out.Keys) })
			b.n.later(b.n.s.patience(), func() {
				if !b.heard[out.Owner] {
					b.step(crossowner.Denied{Owner: out.Owner})
				}
			})
		case crossowner.Run:
			b.n.s.transact(b, out.Guards)
		case crossowner.Settle:
			b.send(out.Owner, func(o *stormNode) { o.resolveLock(b, out.Status) })
			if out.Status == crossowner.StatusUnknown {
				b.n.later(4*b.n.s.patience(), func() { b.step(crossowner.GivenUp{}) })
			}
		case crossowner.Reply:
			if _, waits := b.n.calls[b.op]; waits {
				b.n.s.answered(b.n, clink.Reply{Op: b.op, Outcome: [...]clink.Outcome{clink.Done, clink.NotSent, clink.NotSent, clink.Unknown}[out.Outcome]})
			}
		}
	}
}

// send carries something to the node of this name, if it is still the same incarnation; it may be
// lost, as when a link breaks.
func (b *txCoordinator) send(owner string, do func(o *stormNode)) {
	s := b.n.s
	// Another name of the stream would draw other numbers, and change every seed.
	r := s.rng("loans of " + b.n.name)
	for _, o := range s.nodes {
		if o.name == owner && !s.loses(b.n, o) {
			o.later(spread(r, s.plan.Config.Delay), func() { do(o) })
		}
	}
}

// back carries an answer to the coordinator.
func (b *txCoordinator) back(from *stormNode, in func() crossowner.Input) {
	s := b.n.s
	if b.n.incarnations != b.incarnation || s.loses(from, b.n) {
		return
	}
	b.n.later(spread(s.rng("lenders to "+b.n.name), s.plan.Config.Delay), func() { b.step(in()) })
}

func (s *storm) loses(a, b *stormNode) bool {
	if a != b && s.now < max(a.muted, b.muted) && chance(s.rng("links"), 30) {
		s.sometimes("a message of a locked write is lost")
		return true
	}
	return false
}

// lockKeys takes a coordinator's request.
func (n *stormNode) lockKeys(b *txCoordinator, keys []string) {
	n.s.crossOwner++
	l := &keyLock{b: b, op: clink.Op(1<<40 + n.s.crossOwner), keys: keys}
	n.locks[l.op] = l
	n.locked(func() { n.step(clink.Lock{Op: l.op, ID: b.id, Keys: keys}) })
}

// keysLocked: the keys are the coordinator's until it tells, or the deadline.
func (n *stormNode) keysLocked(out clink.Locked) {
	l := n.locks[out.Op]
	l.call, l.returned = out.Call, true
	n.later(n.s.patience(), func() {
		if !l.resolved {
			n.s.sometimes("a locked write is not settled in time")
			n.stored(l, clink.StatusUnknown)
		}
	})
	if l.resolved { // it gave up meanwhile
		n.later(0, func() { n.stored(l, clink.Refused) })
		return
	}
	in := crossowner.Locked{Owner: n.name}
	for _, g := range out.Guards {
		in.Guards = append(in.Guards, crossowner.Token(g))
	}
	l.b.back(n, func() crossowner.Input { l.b.heard[n.name] = true; return in })
}

func (n *stormNode) stored(l *keyLock, status clink.Status) {
	if l.resolved = true; l.call != 0 {
		call := l.call
		l.call = 0
		n.locked(func() { n.step(clink.Stored{Call: call, Status: status}) })
	}
}

// resolveLock takes what a coordinator tells of its transaction.
func (n *stormNode) resolveLock(b *txCoordinator, status crossowner.Status) {
	for _, op := range sortedOps(n.locks) {
		l := n.locks[op]
		switch {
		case l.b != b:
		case !l.returned && !l.ended:
			l.resolved = true
			n.locked(func() { n.step(clink.Abandoned{Op: l.op}) })
		default:
			l.finding = status == crossowner.StatusUnknown
			if !l.resolved {
				n.stored(l, [...]clink.Status{clink.OK, clink.Mismatch, clink.Refused, clink.StatusUnknown}[status])
			}
			n.tellFound(l)
		}
	}
}

// replied: the machine has answered a cross-owner write.
func (n *stormNode) replied(l *keyLock, outcome clink.Outcome) {
	l.ended = true
	if !l.returned {
		l.b.back(n, func() crossowner.Input { l.b.heard[n.name] = true; return crossowner.Denied{Owner: n.name, Sure: true} })
		return
	}
	switch outcome {
	case clink.Done:
		l.outcome = crossowner.Done
	case clink.Unknown:
		l.outcome = crossowner.Unknown
	default:
		l.outcome = crossowner.Again
	}
	n.tellFound(l)
}

func (n *stormNode) tellFound(l *keyLock) {
	if l.ended && l.finding {
		n.s.sometimes(fmt.Sprintf("an owner finds out: %d", l.outcome))
		l.b.back(n, func() crossowner.Input { return crossowner.Found{Owner: n.name, Outcome: l.outcome} })
	}
}

// transact reads the stored value, writes something decided from it, and commits if
// the guards stand.
func (s *storm) transact(b *txCoordinator, guards map[string]crossowner.Token) {
	r, c := s.rng("transactions"), s.plan.Config
	answered := false
	tell := func(status crossowner.Status) {
		b.n.later(spread(r, c.Delay), func() {
			if !answered {
				answered = true
				b.step(crossowner.Ran{Status: status})
			}
		})
	}
	b.n.later(c.Timeout, func() {
		if !answered {
			answered = true
			b.step(crossowner.Ran{Status: crossowner.StatusUnknown})
		}
	})
	s.after(spread(r, c.Delay), func() {
		var muts []clink.Mut
		for _, k := range b.call.Keys {
			v := Written(b.value, k, b.call.Keys)
			muts = append(muts, clink.Mut{Key: k, Value: []byte(v), Guard: clink.Token(guards[k])})
			if s.store.rows[k].expires == 0 { // else it may end before the commit
				s.belief[v] = s.judge.current(k)
			}
		}
		s.after(spread(r, c.Delay), func() { // and only now are the guards looked at
			a := &asked{n: b.n, incarnation: b.incarnation, closed: true, done: func(status clink.Status) {
				if s.now < b.n.muted && chance(r, 50) {
					s.sometimes("the end of a transaction is not heard of")
					return
				}
				tell(map[clink.Status]crossowner.Status{clink.OK: crossowner.OK, clink.Mismatch: crossowner.Mismatch}[status])
			}}
			s.commit(a, clink.Store{ID: b.id, Muts: muts})
		})
	})
}
