package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/linear/replica"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// stormNode is one node, through all its incarnations. Each incarnation has machines of its
// own; what was meant for an earlier one is lost.
type stormNode struct {
	s            *storm
	index        int
	incarnations int
	name         string // of this incarnation
	up           bool
	clock        clock
	lease        *lease.Node
	pod          *clink.Pod
	handles      map[lease.Gen]handle
	entries      map[string]clink.Keep
	successors   map[lease.Gen][]clink.Retag // under which leases goes on what is kept
	calls        map[clink.Op]Call
	locks        map[clink.Op]*keyLock // to others, and to itself
	layered      map[clink.Op]*layeredRead
	member       member // of groups that share a key

	paused   ticks.Tick // stands still until then
	busy     bool       // somebody holds the lock
	waiting  []func()   // who waits for it
	draining bool
	cutOff   [2]ticks.Tick // from each assigner, until then
	muted    ticks.Tick    // towards the store, until then
}

type handle struct {
	lease.Range
	until ticks.Tick
}

// boot begins an incarnation.
func (n *stormNode) boot() {
	s := n.s
	n.incarnations++
	n.name = fmt.Sprintf("n%d.%d", n.index, n.incarnations)
	n.up, n.busy, n.waiting, n.paused, n.draining = true, false, nil, 0, false
	n.clock = newClock(s.rng("clock "+n.name), s.plan.Config.Drift)
	n.handles, n.entries, n.calls, n.locks = map[lease.Gen]handle{}, map[string]clink.Keep{}, map[clink.Op]Call{}, map[clink.Op]*keyLock{}
	n.layered, n.successors = map[clink.Op]*layeredRead{}, map[lease.Gen][]clink.Retag{}
	n.lease = lease.NewNode(lease.NodeOptions{Node: n.name, Addr: n.name, Host: n.name, Drift: max(1, s.plan.Config.Drift), Groups: true})
	n.member = newMember(n.name, max(1, s.plan.Config.Drift))
	n.pod = clink.NewPod(clink.Options{
		Incarnation: uint64(n.index+1)<<32 | uint64(n.incarnations), Drift: max(1, s.plan.Config.Drift), Queue: s.plan.Config.Queue, Tags: s.plan.Config.Tags,
		Entry: func(k string) (clink.Keep, bool) { e, ok := n.entries[k]; e.Gen = n.stands(k, e.Gen); return e, ok },
	})
	n.beat()
	if s.plan.Config.Groups {
		n.remind()
	}
}

// crash ends an incarnation; another begins after d.
func (n *stormNode) crash(d ticks.Tick) {
	if !n.up {
		return
	}
	s := n.s
	n.up = false
	n.handles, n.entries, n.member = nil, nil, member{}
	for _, op := range slices.Sorted(maps.Keys(n.calls)) { // their callers lost the connection
		c := n.calls[op]
		delete(s.open, int(op))
		if c.Kind.reads() {
			_ = s.judge.Answered(int(op), clink.Failed, clink.Row{})
		} else {
			s.fail(s.judge.Answered(int(op), clink.Unknown, clink.Row{}))
			s.sometimes("a node crashes with a write under way")
		}
	}
	s.after(d, n.boot)
}

// pause stops a node, but not its clock.
func (n *stormNode) pause(d ticks.Tick) {
	if n.up {
		n.paused = max(n.paused, n.s.now+d)
	}
}

// awake does something in this incarnation as soon as the node is not paused.
func (n *stormNode) awake(do func()) {
	incarnation := n.incarnations
	switch {
	case !n.up:
	case n.s.now < n.paused:
		n.s.after(n.paused-n.s.now, func() {
			if n.incarnations == incarnation {
				n.awake(do)
			}
		})
	default:
		do()
	}
}

// later does something d from now by real time, if this incarnation lasts.
func (n *stormNode) later(d ticks.Tick, do func()) {
	incarnation := n.incarnations
	n.s.after(d, func() {
		if n.up && n.incarnations == incarnation {
			n.awake(do)
		}
	})
}

// locked does something that steps a machine when nobody else does.
func (n *stormNode) locked(do func()) {
	if n.busy {
		n.waiting = append(n.waiting, do)
		return
	}
	n.busy = true
	do()
}

// carry carries out outputs in order, perhaps with pauses in between, during
// which entries are served but no machine is stepped; then it releases the lock.
func (n *stormNode) carry(outs []func()) {
	r := n.s.rng("lag " + n.name)
	for i, out := range outs {
		if i > 0 && chance(r, n.s.plan.Config.Lag) {
			n.later(spread(r, n.s.plan.Config.Delay), func() { n.carry(outs[i:]) })
			return
		}
		out()
	}
	n.busy = false
	if len(n.waiting) > 0 {
		next := n.waiting[0]
		n.waiting = n.waiting[1:]
		n.locked(next)
	}
}

// beat renews the leases.
func (n *stormNode) beat() {
	n.awake(func() {
		n.locked(func() { n.carry(n.leases(n.lease.Beat(n.now(), nil, nil), nil)) })
		n.later(n.s.plan.Config.Beat, n.beat)
	})
}

func sortedOps(m map[clink.Op]*keyLock) []clink.Op { return slices.Sorted(maps.Keys(m)) }

func (n *stormNode) now() ticks.Tick { return n.clock.read(n.s.now) }

// drain asks to be relieved, and ends when that is done or took too long.
func (n *stormNode) drain(d ticks.Tick) {
	if !n.up || n.draining {
		return
	}
	n.draining = true
	n.lease.Leave()
	var wait func(left int)
	wait = func(left int) {
		if left == 0 || !n.lease.Holds() && len(n.calls) == 0 {
			if left > 0 {
				n.s.sometimes("a drain completes")
			}
			n.release(d)
			return
		}
		n.later(n.s.plan.Config.Beat, func() { wait(left - 1) })
	}
	n.later(n.s.plan.Config.Beat, func() { wait(1 + n.s.rng("patience "+n.name).IntN(50)) })
}

// release gives up what the node still holds, and ends a little later.
func (n *stormNode) release(d ticks.Tick) {
	n.awake(func() {
		n.locked(func() {
			if n.lease.Holds() {
				n.s.sometimes("leases are given up by who stops")
			}
			n.carry(n.leases(n.lease.Beat(n.now(), nil, n.lease.Release(nil)), nil))
		})
		n.later(spread(n.s.rng("end "+n.name), n.s.plan.Config.Delay), func() { n.crash(d) })
	})
}

// fromAssigner takes a message.
func (n *stormNode) fromAssigner(msg any) {
	n.locked(func() {
		var outs []lease.NodeOutput
		switch m := msg.(type) {
		case *lease.Grant:
			outs = n.lease.Granted(n.now(), *m, nil)
		case *lease.Recall:
			outs = n.lease.Recalled(n.now(), *m, nil)
		}
		n.lease.Check()
		n.carry(n.leases(outs, nil))
	})
}

// leases are the outputs of the lease machine, as things to do.
func (n *stormNode) leases(outs []lease.NodeOutput, do []func()) []func() {
	for _, out := range outs {
		do = append(do, func() {
			switch out := out.(type) {
			case lease.SendRenew:
				n.s.coord.hear(n, &out.Renew)
			case lease.SendGave:
				n.s.coord.hear(n, &out.Gave)
			case lease.Acquire:
				n.acquire(out)
			case lease.Extend:
				n.extend(out)
			case lease.Revoke:
				n.revoke(out)
			}
		})
	}
	return do
}

// handOver offers the next owner what is in memory under a lease that was
// recalled; an offer may be lost, or arrive much later.
func (n *stormNode) handOver(r lease.Revoke) {
	rng := n.s.rng("offers of " + n.name)
	for _, k := range sorted(n.entries) {
		e := n.entries[k]
		if n.stands(k, e.Gen) != r.Gen || e.Until != 0 || !r.Range.Contains(k) {
			continue
		}
		for _, to := range n.s.nodes {
			if to.name != r.Next || chance(rng, 10) {
				continue
			}
			to.later(spread(rng, n.s.plan.Config.Delay), func() {
				to.locked(func() { to.step(clink.Offered{After: r.Under, Key: k, Row: e.Row}) })
			})
		}
	}
}

// step steps the pod under the lock that locked has taken.
func (n *stormNode) step(in clink.Input) {
	n.beforeStep(in)
	now := n.now()
	outs := n.pod.Step(now, in, nil)
	n.pod.Check()
	var do []func()
	for _, out := range outs {
		do = append(do, func() { n.perform(out) })
	}
	n.carry(do)
}

// stepInside steps the pod in the middle of something that holds the lock.
func (n *stormNode) stepInside(in clink.Input) {
	outs := n.pod.Step(n.now(), in, nil)
	n.pod.Check()
	for _, out := range outs {
		n.perform(out)
	}
}

// take begins a call: an entry that may be served answers a read at once.
func (n *stormNode) take(op clink.Op, c Call, value string) {
	if _, ok := n.calls[op]; !ok { // its caller has gone meanwhile
		return
	}
	if e, ok := n.serves(c.Keys[0]); c.Kind == Get && ok {
		n.s.sometimes("a hit")
		n.s.answered(n, clink.Reply{Op: op, Row: e.Row})
		return
	}
	if e, ok := n.copied(c.Keys[0]); c.Kind == Get && ok {
		n.s.sometimes("a hit at a replica")
		n.s.answered(n, clink.Reply{Op: op, Row: clink.Row{Exists: e.Row.Exists, Value: e.Row.Value}})
		return
	}
	switch c.Kind {
	case Transact:
		n.beginTx(op, c, value)
		return
	case Layered:
		n.readLayered(op, c.Keys[0])
		return
	}
	n.locked(func() {
		if _, ok := n.calls[op]; !ok {
			n.carry(nil)
			return
		}
		switch c.Kind {
		case Get:
			if n.replicates(c.Keys[0]) {
				n.stepReplica(replica.Read{Op: replica.Op(op), Key: c.Keys[0]})
				n.carry(nil)
				return
			}
			n.step(clink.Read{Op: op, Key: c.Keys[0]})
		case Put:
			in := clink.Write{Op: op}
			for _, k := range c.Keys {
				in.Muts = append(in.Muts, clink.Mut{Key: k, Value: []byte(Written(value, k, c.Keys)), TTL: c.TTL})
			}
			n.step(in)
		case Del:
			n.step(clink.Write{Op: op, Muts: []clink.Mut{{Key: c.Keys[0], Delete: true}}})
		default:
			n.step(clink.Update{Op: op, Keys: c.Keys})
		}
	})
}

// perform carries out one output of the pod.
func (n *stormNode) perform(out clink.Output) {
	switch out := out.(type) {
	case clink.Keep:
		n.entries[out.Key] = out
		n.kept(out)
	case clink.Drop:
		delete(n.entries, out.Key)
	case clink.Reply:
		n.s.answered(n, out)
	case clink.Event:
		n.s.sometimes(eventNames[out.Kind])
	case clink.Locked:
		n.hold(out.Call, out, n.locks[out.Op].keys)
	case clink.Store:
		var keys []string
		for _, m := range out.Muts {
			keys = append(keys, m.Key)
		}
		n.hold(out.Call, out, keys)
	case clink.SetGuard:
		n.stepPrimary(replica.Guarding{Call: replica.Call(out.Call), Range: out.Range})
		n.s.request(n, out)
	case clink.Evaluate:
		n.later(spread(n.s.rng("decide "+n.name), n.s.plan.Config.Delay), func() {
			if c, ok := n.calls[out.Op]; ok {
				n.locked(func() { n.step(n.decide(c, out)) })
			}
		})
	case clink.Retag:
		n.successors[out.Old] = append(n.successors[out.Old], out)
		n.later(spread(n.s.rng("retag "+n.name), n.s.plan.Config.Delay), func() { n.retag(out) })
	default:
		n.s.request(n, out)
	}
}

// stands is the lease that what is kept of a key under gen stands under by now.
func (n *stormNode) stands(key string, gen lease.Gen) lease.Gen {
	for {
		i := slices.IndexFunc(n.successors[gen], func(r clink.Retag) bool { return r.Range.Contains(key) })
		if i < 0 {
			return gen
		}
		gen = n.successors[gen][i].New
	}
}

// serves is the entry of a key that is served from memory.
func (n *stormNode) serves(key string) (clink.Keep, bool) {
	e, ok := n.entries[key]
	return e, ok && clink.Serves(n.now(), n.handles[n.stands(key, e.Gen)].until, e.Until)
}

// retag moves entries one by one, as the runtime does: nothing depends on it.
func (n *stormNode) retag(r clink.Retag) {
	n.locked(func() {
		for _, k := range sorted(n.entries) {
			if e := n.entries[k]; e.Gen == r.Old && r.Range.Contains(k) {
				if _, ok := n.serves(k); ok && n.now() >= n.handles[r.Old].until {
					n.s.sometimes("an entry outlives its lease")
				}
				e.Gen = n.stands(k, e.Gen)
				n.entries[k] = e
				n.s.sometimes("an entry outlives a split")
			}
		}
		n.carry(nil)
	})
}

// decide answers Evaluate as the call's kind says.
func (n *stormNode) decide(c Call, e clink.Evaluate) clink.Input {
	in := clink.Evaluated{Op: e.Op}
	for i, k := range c.Keys {
		row := e.Rows[i]
		if c.Kind == PutNX && row.Exists {
			continue
		}
		v := Written(fmt.Sprintf("v%d", e.Op), k, c.Keys)
		m := clink.Mut{Key: k, Value: []byte(v), TTL: c.TTL}
		if c.TTL == 0 && row.TTL != 0 {
			m.TTL = clink.KeepTTL
		}
		in.Muts = append(in.Muts, m)
		n.s.belief[v] = absent
		if row.Exists {
			n.s.belief[v] = string(row.Value)
		}
	}
	return in
}
