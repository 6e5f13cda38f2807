package node

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/redis"
	"github.com/freshet-cache/freshet/resp"
)

// sameOwner reports whether the keys seem to have one owner.
func (n *Node) sameOwner(keys []string) bool {
	t := n.shard.Table()
	owner := ""
	for i, k := range keys {
		r, _ := t.Find(k)
		if i > 0 && r.Node != owner {
			return false
		}
		owner = r.Node
	}
	return true
}

// errWatched: a watched key has changed; EXEC answers null.
var errWatched = errors.New("node: a watched key has changed")

// do runs a job here and returns its encoded reply, once all clients that track what it
// changed have been notified. With ErrNotOwner nothing was done.
func (n *Node) do(ctx context.Context, j *job, keys []string) ([]byte, error) {
	b, changed, err := n.carryOut(ctx, j, keys)
	if errors.Is(err, linear.ErrOutcomeUnknown) {
		n.track.Doubtful(keys, j.writer())
		return nil, err
	}
	n.track.Changed(changed, j.writer())
	for key, ttl := range j.ends { // after Changed, which begins anew with keys that the client has read and written
		n.track.ReadOver(j.from, key, ttl)
	}
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
		if j.track {
			j.ends = map[string]time.Duration{}
			for _, key := range n.readsOf(j) {
				if e, err := t.Get(string(key)); err == nil {
					j.ends[string(key)] = e.TTL
				}
			}
		}
		return x.err
	})
	switch {
	case errors.Is(err, errWatched):
		w.Reset()
		w.NullArray()
	case err != nil:
		return nil, nil, err
	case n.track.Idle(): // no client tracks: the keys need not be known
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

// readsOf are the keys of a job's commands that only read.
func (n *Node) readsOf(j *job) (out [][]byte) {
	for _, args := range j.cmds {
		name := redis.Lower(args[0])
		run, writing := redis.Lookup(name)
		if cmd := n.p.table[name]; run != nil && !writing && cmd != nil {
			out = append(out, cmd.Keys(args)...)
		}
	}
	return out
}
