package node

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/freshet-cache/freshet/internal/drive"
	"github.com/freshet-cache/freshet/internal/packed"
	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/redis"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/store"
)

// errNowhere means that nothing was done: no owner could be reached in time.
var errNowhere = errors.New("TRYAGAIN nothing was written: the keys have no reachable owner at the moment; try again")

// read is the state of a key: from this node's memory, from its owner's, or from
// the store. It fails only if the store does.
// If track, its interest in the key was remembered before.
func (n *Node) read(c *resp.Conn, key []byte, w *resp.Writer, track bool) (linear.Entry[string], error) {
	if e, ok := n.cache.Peek(view(key)); ok && !(track && e.Copy) {
		n.m.served(e, forClient)
		if track {
			n.track.read(key, e)
		}
		return e, nil
	}
	if w != nil {
		w.MayBlock()
	}
	ctx, cancel := context.WithTimeout(c.Context(), n.p.cfg.Timeout)
	defer cancel()
	name := string(key)
	if n.p.cfg.VersionsOnly && !track { // nobody has the value in memory
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
		n.track.read(key, e)
	case track:
		n.track.disown(c, key)
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
		b, err = n.track.call(ctx, addr, append([]byte{frameVersion, frameTrack}, key...), track, [][]byte{key}, w)
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
		n.track.read(key, e)
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
		b, err = n.track.call(ctx, r.Addr, j.append(nil), j.conn, n.readsOf(j), w)
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

// errCrossOwner: transactions, like clusters of Redis, want their keys together.
var errCrossOwner = errors.New("CROSSSLOT the keys belong to different owners; a transaction's keys must have one owner")

// errWatched: a watched key has changed; EXEC answers null.
var errWatched = errors.New("node: a watched key has changed")

// do runs a job here and returns its encoded reply, when all who track what it has
// changed have been told. With ErrNotOwner nothing was done.
func (n *Node) do(ctx context.Context, j *job, keys []string) ([]byte, error) {
	b, changed, err := n.carryOut(ctx, j, keys)
	if errors.Is(err, linear.ErrOutcomeUnknown) {
		n.track.doubtful(keys, j)
		return nil, err
	}
	n.track.changed(changed, j)
	return b, err
}

// carryOut runs a job as one update, and returns its encoded reply and the keys it
// changed.
func (n *Node) carryOut(ctx context.Context, j *job, keys []string) ([]byte, []string, error) {
	if !j.multi {
		switch args := j.cmds[0]; {
		case redis.Lower(args[0]) == "set" && len(args) == 3, redis.Lower(args[0]) == "mset" && len(args)%2 == 1:
			b, err := n.set(ctx, keys, args[1:])
			return b, keys, err
		case redis.Lower(args[0]) == "fr.setv", redis.Lower(args[0]) == "fr.delv":
			b, err := n.writeVersion(ctx, args)
			return b, keys, err
		}
	}
	if n.owned(keys) < len(keys) {
		return nil, nil, n.elsewhere(keys)
	}
	w := resp.NewWriter(j.proto)
	versions, err := n.cache.Update(ctx, keys, func(t *linear.Tx[string]) error {
		w.Reset()
		for _, x := range j.watch {
			e, err := t.Get(x.key)
			if err != nil {
				return err
			}
			if e.Version != x.version {
				return errWatched
			}
		}
		x := &tx{Tx: t, max: n.p.cfg.MaxValue}
		if j.multi {
			w.Array(len(j.cmds))
		}
		for _, args := range j.cmds {
			n.one(x, args, w)
		}
		return x.err
	})
	switch {
	case errors.Is(err, errWatched):
		w.Reset()
		w.NullArray()
	case err != nil:
		return nil, nil, err
	case n.track.busy.Load() == 0: // nobody is to be told: it need not be known
		return w.Bytes(), nil, nil
	}
	return w.Bytes(), slices.Sorted(maps.Keys(versions)), nil
}

// one runs one command of a job.
func (n *Node) one(x redis.KV, args [][]byte, w *resp.Writer) {
	name := redis.Lower(args[0])
	if run, _ := redis.Lookup(name); run != nil {
		run(x, args, w)
		return
	}
	switch {
	case name == "ping" && len(args) == 1:
		w.SimpleString("PONG")
	case (name == "ping" || name == "echo") && len(args) == 2:
		w.Bulk(args[1])
	case name == "ping":
		w.Error("ERR wrong number of arguments for 'ping' command")
	case name == "unwatch":
		w.SimpleString("OK")
	default:
		w.Error("ERR " + name + " is not possible inside a transaction")
	}
}

// set is SET without options, or MSET: blind writes, which need not know what was
// there.
func (n *Node) set(ctx context.Context, keys []string, pairs [][]byte) (_ []byte, err error) {
	if len(pairs) == 2 {
		_, err = n.cache.SetTTL(ctx, keys[0], string(pairs[1]), 0)
	} else {
		all := make(map[string]string, len(pairs)/2)
		for p := range slices.Chunk(pairs, 2) {
			all[string(p[0])] = string(p[1])
		}
		if err = n.cache.SetAll(ctx, all); errors.Is(err, linear.ErrNotOwner) {
			return nil, n.elsewhere(keys)
		}
	}
	if err != nil {
		return nil, err
	}
	return []byte("+OK\r\n"), nil
}

// elsewhere is why keys cannot be written here, some of which are not ours.
func (n *Node) elsewhere(keys []string) error {
	if n.owned(keys) == 0 || n.sameOwner(keys) { // an owner of all is on its way
		return linear.ErrNotOwner
	}
	return errCrossOwner
}

// owned counts the keys this node owns.
func (n *Node) owned(keys []string) (count int) {
	for _, k := range keys {
		if n.cache.Owns(k) {
			count++
		}
	}
	return count
}

// serve answers another node's request, which came over a link that the other node
// opened; over is nil if it was this one.
func (n *Node) serve(ctx context.Context, frame []byte, over *asker) []byte {
	if len(frame) < 2 || frame[0] != frameVersion {
		return append([]byte{answerError}, "ERR "+errFrame.Error()...)
	}
	if frame[1] == peer.Named {
		return n.services.Answer(ctx, frame[2:])
	}
	ctx, cancel := context.WithTimeout(ctx, n.p.cfg.Timeout)
	defer cancel()
	switch frame[1] {
	case frameRead, frameTrack:
		key, tracked := string(frame[2:]), frame[1] == frameTrack
		if tracked {
			n.track.interest(over, key)
		}
		e, hit := n.cache.Peek(key)
		if hit && !(tracked && e.Copy) {
			n.m.served(e, forNode)
			return appendEntry([]byte{answerDone}, e)
		}
		if !n.cache.Owns(key) && (tracked || !n.leased.MayCopy(key)) { // whoever asks reads the store as well as we would, and learns that its table is old
			return binary.AppendUvarint([]byte{answerNotOwner}, n.shard.Table().Version)
		}
		e, err := n.entry(ctx, key, forNode)
		if err != nil {
			return append([]byte{answerError}, errorText(err)...)
		}
		return appendEntry([]byte{answerDone}, e)
	case frameStamp:
		return n.stamped(ctx, string(frame[2:]))
	case frameMove, frameCopies:
		return n.p.obeyed(frame)
	case frameHello, frameWho, frameState, frameLiving, frameMembers:
		return n.asked(ctx, frame[1])
	case frameInvalid:
		return n.track.invalid(frame)
	case frameFollow:
		return n.track.follow(frame, over)
	case frameAcquired:
		return n.track.announced(ctx, frame)
	case frameRun:
		j, err := decodeJob(frame)
		if err != nil {
			return append([]byte{answerError}, "ERR "+err.Error()...)
		}
		keys := n.keysOf(j)
		if !n.possible(j) || len(keys) == 0 {
			return append([]byte{answerError}, "ERR "+errFrame.Error()...)
		}
		ctx, cancel := context.WithTimeout(ctx, min(cmp.Or(j.within, n.p.cfg.Timeout), n.p.cfg.Timeout))
		defer cancel()
		if j.from = over; j.track {
			for _, k := range n.readsOf(j) {
				n.track.interest(over, string(k))
			}
		}
		return answered(n.do(ctx, j, keys))
	}
	return append([]byte{answerError}, "ERR "+errFrame.Error()...)
}

// answered is what another node is told of its job.
func answered(reply []byte, err error) []byte {
	switch {
	case errors.Is(err, linear.ErrNotOwner):
		return []byte{answerNotOwner}
	case err != nil:
		return append([]byte{answerError}, errorText(err)...)
	}
	return append([]byte{answerDone}, reply...)
}

// possible checks a job of another node as commands of clients are checked.
func (n *Node) possible(j *job) bool {
	if !j.multi && len(j.cmds) != 1 {
		return false
	}
	for _, args := range j.cmds {
		cmd := n.p.table[redis.Lower(args[0])]
		if cmd != nil && (cmd.Arity > 0 && len(args) != cmd.Arity || len(args) < -cmd.Arity) {
			return false
		}
	}
	return true
}

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

// errorText is what a client reads: a code clients know, what happened, and what
// to do next.
func errorText(err error) string {
	switch {
	case errors.Is(err, errCrossOwner):
		return err.Error()
	case errors.Is(err, linear.ErrNotOwner), errors.Is(err, linear.ErrBusy):
		return "TRYAGAIN " + err.Error()
	case errors.Is(err, linear.ErrOutcomeUnknown):
		return "UNKNOWN " + linear.ErrOutcomeUnknown.Error()
	case errors.Is(err, store.ErrUnavailable): // where the store is, and as whom we ask, is not for clients
		return "TRYAGAIN " + store.ErrUnavailable.Error()
	case errors.Is(err, store.ErrFull):
		return "OOM " + err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("TRYAGAIN %v; the time limit was over", err)
	}
	return "ERR " + err.Error()
}
