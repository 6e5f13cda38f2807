package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/freshet-cache/freshet/redis"
	"github.com/freshet-cache/freshet/resp"
)

// several are the commands whose keys may have several owners, by how many
// arguments a key takes. Each owner carries out its keys in parts, each as one operation.
var several = map[string]int{"del": 1, "unlink": 1, "mset": 2}

const (
	maxPart    = 1024 // keys of one part, so that one part fits a transaction of the store
	regroupMax = 3    // how often a part whose keys changed owners is grouped again
)

// splitByOwner runs a command on keys of several owners. The owners work at the same time and
// within one time limit. A key takes step arguments.
func (n *Node) splitByOwner(ctx context.Context, c *resp.Conn, name string, args [][]byte, step int) *tally {
	t := &tally{}
	n.parts(ctx, c, name, args, step, regroupMax, t)
	return t
}

// parts runs a command once for each owner, and returns when all have answered.
func (n *Node) parts(ctx context.Context, c *resp.Conn, name string, args [][]byte, step, regroup int, t *tally) {
	var wg sync.WaitGroup
	for _, part := range n.byOwner(args, step) {
		wg.Go(func() {
			for some := range slices.Chunk(part, n.p.mostKeys()*step) {
				n.part(ctx, c, name, some, step, regroup, t)
			}
		})
	}
	wg.Wait()
}

// part runs a command on keys that seem to have one owner.
func (n *Node) part(ctx context.Context, c *resp.Conn, name string, args [][]byte, step, regroup int, t *tally) {
	j := &job{proto: 2, cmds: [][][]byte{append([][]byte{[]byte(name)}, args...)}}
	tmp := resp.NewWriter(2) // whose caller has let pushes through
	n.runWithin(ctx, c, j, n.keysOf(j), tmp)
	if !strings.HasPrefix(string(tmp.Bytes()), "-CROSSSLOT ") {
		t.add(len(args)/step, tmp.Bytes())
		return
	}
	if regroup > 0 { // the keys changed owners just then, and nothing was done
		n.parts(ctx, c, name, args, step, regroup-1, t)
		return
	}
	for one := range slices.Chunk(args, step) {
		n.part(ctx, c, name, one, step, 0, t) // one key has one owner
	}
}

// byOwner groups the keys of a command by the node that seems to own them. Within a
// group the order stays: of two values for one key the later one is written.
func (n *Node) byOwner(args [][]byte, step int) (parts [][][]byte) {
	t, at := n.shard.Table(), map[string]int{}
	for one := range slices.Chunk(args, step) {
		r, _ := t.Find(view(one[0]))
		i, known := at[r.Node]
		if !known {
			i = len(parts)
			at[r.Node], parts = i, append(parts, nil)
		}
		parts[i] = append(parts[i], one...)
	}
	return parts
}

// mostKeys is how many keys one part of a command may have.
func (p *Process) mostKeys() int {
	if p.batch > 0 {
		return p.batch
	}
	return maxPart
}

// flush answers FLUSHALL and FLUSHDB: it removes every key, in batches by owner. With
// ASYNC it goes on after its answer.
func (n *Node) flush(c *resp.Conn, args [][]byte, w *resp.Writer) {
	async := len(args) == 2 && redis.Lower(args[1]) == "async"
	switch {
	case len(args) > 2 || len(args) == 2 && !async && redis.Lower(args[1]) != "sync":
		w.Error(redis.ErrSyntax)
	case n.p.cfg.shared() && !n.p.cfg.AllowFlush:
		w.Error("NOPERM " + redis.Lower(args[0]) + " removes every row of a store that others may share; if that is meant, start every node with --allow-flush")
	case async:
		n.flushLater(w)
	default:
		n.track.ForgetEverywhere(c.ID()) // and of each key that somebody reads from here on, when it goes
		ctx, cancel := context.WithTimeout(c.Context(), n.p.cfg.Timeout)
		defer cancel()
		if failed := n.empty(ctx, c, func(int) {}); failed != "" {
			w.Error(failed)
			return
		}
		w.SimpleString("OK")
	}
}

// flushLater begins to remove every key, and answers before that is done.
func (n *Node) flushLater(w *resp.Writer) {
	f := &n.flushing
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running {
		w.Error("TRYAGAIN a FLUSHALL ASYNC is under way at this node; INFO freshet says how far it is")
		return
	}
	f.running, f.removed = true, 0
	n.work.Go(func() {
		n.track.ForgetEverywhere(0)
		failed := n.empty(n.ctx, nil, func(removed int) {
			f.mu.Lock()
			f.removed = removed
			f.mu.Unlock()
		})
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.running, f.last = false, "done"; failed != "" {
			f.last = failed
			n.log.Error("FLUSHALL ASYNC has ended before every key was removed; run it again", "why", failed)
			return
		}
		n.log.Info("FLUSHALL ASYNC has removed every key", "removed", f.removed)
	})
	w.SimpleString("OK")
}

// flushPage is how many keys are read from the store and removed at a time.
const flushPage = 4096

// empty removes every key. If it ends before the last one, it says why, and what is
// known. The store gives the keys in order, and each is asked for once: a key that is
// written while this goes on may stay.
func (n *Node) empty(ctx context.Context, c *resp.Conn, progress func(removed int)) (failed string) {
	removed, why := 0, ""
	for from, done := "", false; !done; {
		keys, next, end, err := n.p.store.Scan(ctx, from, flushPage)
		if err == nil && ctx.Err() != nil {
			err = ctx.Err()
		}
		if err != nil {
			why = errorText(err)
			break
		}
		args := make([][]byte, 0, len(keys))
		for _, k := range keys {
			args = append(args, []byte(k))
		}
		page, cancel := context.WithTimeout(ctx, n.p.cfg.Timeout)
		t := n.splitByOwner(page, c, "del", args, 1)
		cancel()
		removed += t.done
		progress(removed)
		switch {
		case t.unknown > 0:
			return fmt.Sprintf("UNKNOWN %d keys were removed, %d may or may not have been, and the rest was not: their owners did not answer; run it again", removed, t.unknown)
		case t.refused > 0:
			why = t.why
		}
		if why != "" {
			break
		}
		from, done = next, end
	}
	switch {
	case why == "":
		return ""
	case ctx.Err() != nil:
		why = fmt.Sprintf("TRYAGAIN the time limit of %v (--timeout) was over; FLUSHALL ASYNC has none", n.p.cfg.Timeout)
	}
	if removed == 0 {
		return why
	}
	return fmt.Sprintf("PARTIAL %d keys were removed, and the rest was not: %s", removed, why)
}
