package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/freshet-cache/freshet/internal/drive"
	"github.com/freshet-cache/freshet/internal/packed"
	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/redis"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/shard/lease"
)

// roundRobin makes the route of a key that several nodes serve lead to the next of them, and
// reports whether that is a replica.
func (n *Node) roundRobin(r *lease.Route) bool {
	if len(r.Copies) == 0 {
		return false
	}
	i := n.roundRobins.Add(1) % uint64(len(r.Copies)+1)
	if i == 0 || r.Copies[i-1].Node == n.incarnation {
		return false
	}
	r.Addr = r.Copies[i-1].Addr
	return true
}

// read is the state of a key: from this node's memory, from its owner's, or from
// the store. It fails only if the store does.
// If track, its interest in the key was remembered before.
func (n *Node) read(c *resp.Conn, key []byte, w *resp.Writer, track bool) (linear.Entry[string], error) {
	if e, ok := n.cache.Peek(view(key)); ok && !(track && e.Copy) {
		n.m.served(e, forClient)
		if track {
			n.track.Read(key, e.TTL)
		}
		return e, nil
	}
	if w != nil {
		w.MayBlock()
	}
	ctx, cancel := context.WithTimeout(c.Context(), n.p.cfg.Timeout)
	defer cancel()
	name := string(key)
	if n.p.cfg.VersionsOnly && !track { // no node has the value in memory
		return n.entry(ctx, name, forClient)
	}
	own := !track && n.leased.MayCopy(name)
	for try := 0; try < 2 && !own; try++ { // once more if our table was old
		t := n.shard.Table()
		r, ok := t.Find(name)
		if !ok || r.Node == "" || r.Node == n.incarnation {
			break
		}
		copied := !track && try == 0 && n.roundRobin(&r)
		first, cancel := context.WithTimeout(ctx, n.p.cfg.Timeout/4) // an owner that says nothing must leave time for the store
		var via *resp.Conn
		if track {
			via = c
		}
		e, err := n.readFrom(first, r.Addr, key, via, w)
		cancel()
		if err == nil {
			return e, nil
		}
		var not notOwner
		switch {
		case copied && errors.As(err, &not): // it is no replica, or not yet, or not any more: the owner knows
		case !errors.As(err, &not) || not.version <= t.Version || !n.newer(ctx, t.Version):
			try = 2
		}
	}
	owned := track && n.cache.Owns(name)
	e, err := n.entry(ctx, name, forClient)
	switch {
	case owned:
		n.track.Read(key, e.TTL)
	case track:
		n.track.Disown(c, key)
	}
	return e, err
}

// entry is the state of a key as this node's cache has it, or reads it, and is counted.
func (n *Node) entry(ctx context.Context, key string, who int) (linear.Entry[string], error) {
	e, err := n.cache.GetEntry(ctx, key)
	if err == nil {
		n.m.served(e, who)
	}
	return e, err
}

// notOwner is the answer of a node that does not own a key, and has a table of this
// version.
type notOwner struct{ version uint64 }

func (notOwner) Error() string { return linear.ErrNotOwner.Error() }

const newerTable = 50 * time.Millisecond // to wait for, before the store is read

// newer asks for a routing table after version, and reports whether it came.
func (n *Node) newer(ctx context.Context, version uint64) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	n.shard.Hurry()
	for end := time.Now().Add(newerTable); n.shard.Table().Version <= version; <-tick.C {
		if ctx.Err() != nil || time.Now().After(end) {
			return false
		}
	}
	return true
}

// readFrom asks another node, which is to tell when the key changes if there is a
// client to be told. Any failure means: read the store instead.
func (n *Node) readFrom(ctx context.Context, addr string, key []byte, track *resp.Conn, w *resp.Writer) (linear.Entry[string], error) {
	n.m.forwarded[0].Inc()
	var b []byte
	var err error
	if track != nil {
		b, err = n.track.Call(ctx, addr, append([]byte{frameVersion, frameTrack}, key...), track, [][]byte{key}, w)
	} else {
		b, err = n.peers.CallHeard(ctx, addr, append([]byte{frameVersion, frameRead}, key...))
	}
	switch {
	case err != nil:
		return linear.Entry[string]{}, err
	case len(b) > 1 && b[0] == answerNotOwner:
		s := packed.Read(b[1:])
		return linear.Entry[string]{}, notOwner{s.Uint()}
	case len(b) == 0 || b[0] != answerDone:
		return linear.Entry[string]{}, errFrame
	}
	e, err := decodeEntry(b[1:])
	if track != nil && err == nil {
		n.track.Read(key, e.TTL)
	}
	return e, err
}

// run has a job done by the owner of its keys, wherever that is, and writes the
// reply. It waits for an owner while there is none, up to the time limit.
func (n *Node) run(c *resp.Conn, j *job, keys []string, w *resp.Writer) {
	w.MayBlock()
	ctx, cancel := context.WithTimeout(c.Context(), n.p.cfg.Timeout)
	defer cancel()
	n.runWithin(ctx, c, j, keys, w)
}

// runWithin is run with the time limit of ctx. Without a connection the job is this
// node's own.
func (n *Node) runWithin(ctx context.Context, c *resp.Conn, j *job, keys []string, w *resp.Writer) {
	if j.conn = c; c != nil && c.Tracks() {
		j.by = c.ID()
	}
	defer n.uncertain(j, keys, w, len(w.Bytes()))
	wait := drive.Backoff{First: time.Millisecond, Most: 100 * time.Millisecond}
	for ctx.Err() == nil {
		if n.attempt(ctx, j, keys, w) {
			return
		}
		n.shard.Hurry()
		wait.Pause(ctx)
	}
	w.Error(errNowhere.Error())
}

// attempt has a job done once. False means that nothing was done and another
// node, or this one later, may be asked.
func (n *Node) attempt(ctx context.Context, j *job, keys []string, w *resp.Writer) bool {
	if n.cache.Owns(keys[0]) {
		b, err := n.do(ctx, j, keys)
		switch {
		case errors.Is(err, linear.ErrNotOwner):
			return false
		case err != nil:
			w.Error(errorText(err))
		default:
			w.Raw(b)
		}
		return true
	}
	r, ok := n.shard.Table().Find(keys[0])
	if !ok || r.Node == "" || r.Node == n.incarnation {
		return false
	}
	if j.within, ok = timeLeft(ctx); !ok {
		return false
	}
	n.m.forwarded[1].Inc()
	var b []byte
	var err error
	if j.track {
		b, err = n.track.Call(ctx, r.Addr, j.append(nil), j.conn, n.readsOf(j), w)
	} else {
		b, err = n.ask(ctx, r.Addr, j.append(nil))
	}
	switch {
	case errors.Is(err, peer.ErrUnreached):
		return false
	case err != nil:
		w.Error(errorText(linear.ErrOutcomeUnknown))
	case len(b) > 0 && b[0] == answerDone:
		w.Raw(b[1:])
	case len(b) > 0 && b[0] == answerError:
		w.Error(string(b[1:]))
	default:
		return false
	}
	return true
}

// timeLeft is how long the owner of keys may take, so that its answer arrives before
// the caller stops waiting: an owner that runs out of time says what it knows. It reports
// false if too little is left to begin.
func timeLeft(ctx context.Context) (time.Duration, bool) {
	end, ok := ctx.Deadline()
	if !ok {
		return maxWithin * time.Millisecond, true
	}
	left := time.Until(end)
	left -= max(left/8, minMargin)
	return left, left >= time.Millisecond
}

const minMargin = 5 * time.Millisecond // for two messages on a busy machine

// keysOf are the keys a job names, its watched ones included; sorted, each once.
func (n *Node) keysOf(j *job) (keys []string) {
	for _, args := range j.cmds {
		if cmd := n.p.table[redis.Lower(args[0])]; cmd != nil {
			for _, k := range cmd.Keys(args) {
				keys = append(keys, string(k))
			}
		}
	}
	for _, w := range j.watch {
		keys = append(keys, w.key)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
