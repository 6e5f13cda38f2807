package sim

import (
	"encoding/binary"
	"fmt"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/linear/loan"
	"github.com/freshet-cache/freshet/shard/lease"
)

// borrower is a call that writes keys of several owners in a transaction of its own.
type borrower struct {
	n       *stormNode
	life    int
	op      clink.Op
	id      clink.ID
	call    Call
	value   string
	machine *loan.Borrower
	heard   map[string]bool // which owners have answered Ask
}

// lend is a loan as its owner sees it.
type lend struct {
	b        *borrower
	op       clink.Op
	keys     []string
	call     clink.Call // in flight; 0 if there is none
	settled  bool       // the borrower has told, or the deadline has passed
	over     bool       // the machine has answered
	outcome  loan.Outcome
	finding  bool // the borrower waits to be told
	returned bool // it was lent at all
}

func (s *storm) patience() lease.Tick { return 3 * max(s.plan.Config.Timeout, 4*s.plan.Config.Delay) }

// borrow begins a transaction.
func (n *stormNode) borrow(op clink.Op, c Call, value string) {
	b := &borrower{n: n, life: n.lives, op: op, call: c, value: value, heard: map[string]bool{}}
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
	machine, outs := loan.New(owners)
	b.machine = machine
	b.perform(outs)
}

func (b *borrower) step(in loan.Input) { b.perform(b.machine.Step(in, nil)) }

func (b *borrower) perform(outs []loan.Output) {
	for _, out := range outs {
		switch out := out.(type) {
		case loan.Ask:
			b.send(out.Owner, func(o *stormNode) { o.lend(b, out.Keys) })
			b.n.later(b.n.s.patience(), func() {
				if !b.heard[out.Owner] {
					b.step(loan.Denied{Owner: out.Owner})
				}
			})
		case loan.Run:
			b.n.s.transact(b, out.Guards)
		case loan.Settle:
			b.send(out.Owner, func(o *stormNode) { o.settleLoan(b, out.Status) })
			if out.Status == loan.Lost {
				b.n.later(4*b.n.s.patience(), func() { b.step(loan.GivenUp{}) })
			}
		case loan.Reply:
			if _, waits := b.n.calls[b.op]; waits {
				b.n.s.answered(b.n, clink.Reply{Op: b.op, Outcome: [...]clink.Outcome{clink.Done, clink.NotSent, clink.NotSent, clink.Unknown}[out.Outcome]})
			}
		}
	}
}

// send carries something to the node of this name, if it still lives; it may be
// lost, as when a link breaks.
func (b *borrower) send(owner string, do func(o *stormNode)) {
	s := b.n.s
	r := s.rng("loans of " + b.n.name)
	for _, o := range s.nodes {
		if o.name == owner && !s.loses(b.n, o) {
			o.later(spread(r, s.plan.Config.Delay), func() { do(o) })
		}
	}
}

// back carries an answer to the borrower.
func (b *borrower) back(from *stormNode, in func() loan.Input) {
	s := b.n.s
	if b.n.lives != b.life || s.loses(from, b.n) {
		return
	}
	b.n.later(spread(s.rng("lenders to "+b.n.name), s.plan.Config.Delay), func() { b.step(in()) })
}

func (s *storm) loses(a, b *stormNode) bool {
	if a != b && s.now < max(a.muted, b.muted) && chance(s.rng("links"), 30) {
		s.sometimes("a message of a loan is lost")
		return true
	}
	return false
}

// lend takes a borrower's request.
func (n *stormNode) lend(b *borrower, keys []string) {
	n.s.loans++
	l := &lend{b: b, op: clink.Op(1<<40 + n.s.loans), keys: keys}
	n.lends[l.op] = l
	n.locked(func() { n.step(clink.Lend{Op: l.op, ID: b.id, Keys: keys}) })
}

// lent: the keys are the borrower's until it tells, or the deadline.
func (n *stormNode) lent(out clink.Lent) {
	l := n.lends[out.Op]
	l.call, l.returned = out.Call, true
	n.later(n.s.patience(), func() {
		if !l.settled {
			n.s.sometimes("a loan is not settled in time")
			n.stored(l, clink.Lost)
		}
	})
	if l.settled { // it gave up meanwhile
		n.later(0, func() { n.stored(l, clink.Refused) })
		return
	}
	in := loan.Lent{Owner: n.name}
	for _, g := range out.Guards {
		in.Guards = append(in.Guards, loan.Token(g))
	}
	l.b.back(n, func() loan.Input { l.b.heard[n.name] = true; return in })
}

func (n *stormNode) stored(l *lend, status clink.Status) {
	if l.settled = true; l.call != 0 {
		call := l.call
		l.call = 0
		n.locked(func() { n.step(clink.Stored{Call: call, Status: status}) })
	}
}

// settleLoan takes what a borrower tells of its transaction.
func (n *stormNode) settleLoan(b *borrower, status loan.Status) {
	for _, op := range sortedOps(n.lends) {
		l := n.lends[op]
		switch {
		case l.b != b:
		case !l.returned && !l.over:
			l.settled = true
			n.locked(func() { n.step(clink.Abandoned{Op: l.op}) })
		default:
			l.finding = status == loan.Lost
			if !l.settled {
				n.stored(l, [...]clink.Status{clink.OK, clink.Mismatch, clink.Refused, clink.Lost}[status])
			}
			n.tellFound(l)
		}
	}
}

// replied: the machine has answered a loan.
func (n *stormNode) replied(l *lend, outcome clink.Outcome) {
	l.over = true
	if !l.returned {
		l.b.back(n, func() loan.Input { l.b.heard[n.name] = true; return loan.Denied{Owner: n.name, Sure: true} })
		return
	}
	switch outcome {
	case clink.Done:
		l.outcome = loan.Done
	case clink.Unknown:
		l.outcome = loan.Unknown
	default:
		l.outcome = loan.Again
	}
	n.tellFound(l)
}

func (n *stormNode) tellFound(l *lend) {
	if l.over && l.finding {
		n.s.sometimes(fmt.Sprintf("an owner finds out: %d", l.outcome))
		l.b.back(n, func() loan.Input { return loan.Found{Owner: n.name, Outcome: l.outcome} })
	}
}

// transact reads what is there, writes something decided from it, and commits if
// the guards stand.
func (s *storm) transact(b *borrower, guards map[string]loan.Token) {
	r, c := s.rng("transactions"), s.plan.Config
	answered := false
	tell := func(status loan.Status) {
		b.n.later(spread(r, c.Delay), func() {
			if !answered {
				answered = true
				b.step(loan.Ran{Status: status})
			}
		})
	}
	b.n.later(c.Timeout, func() {
		if !answered {
			answered = true
			b.step(loan.Ran{Status: loan.Lost})
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
			a := &asked{n: b.n, life: b.life, closed: true, done: func(status clink.Status) {
				if s.now < b.n.muted && chance(r, 50) {
					s.sometimes("the end of a transaction is not heard of")
					return
				}
				tell(map[clink.Status]loan.Status{clink.OK: loan.OK, clink.Mismatch: loan.Mismatch}[status])
			}}
			s.commit(a, clink.Store{ID: b.id, Muts: muts})
		})
	})
}
