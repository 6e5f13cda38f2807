package node

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/freshet-cache/freshet/node/promise"
	"github.com/freshet-cache/freshet/redis"
	"github.com/freshet-cache/freshet/resp"
)

// other runs the commands that are not about the values of keys.
func (n *Node) other(c *resp.Conn, cmd *resp.Command, args [][]byte, w *resp.Writer) {
	ctx, cancel := context.WithTimeout(c.Context(), n.p.cfg.Timeout)
	defer cancel()
	if n.ofPromise(ctx, cmd.Name, args, w) {
		return
	}
	w.MayBlock()
	switch cmd.Name {
	case "watch":
		n.watch(c, args, w)
	case "unwatch":
		if s, ok := c.State.(*session); ok {
			s.watch = nil
		}
		w.SimpleString("OK")
	case "scan":
		n.scan(ctx, args, w)
	case "keys":
		n.keys(ctx, string(args[1]), w)
	case "dbsize":
		if count, err := n.p.store.Count(ctx); err != nil {
			w.Error(errorText(err))
		} else {
			w.Int(int64(count))
		}
	case "randomkey":
		n.randomKey(ctx, w)
	case "flushdb", "flushall":
		n.flush(c, args, w)
	case "info":
		w.Verbatim(n.info(args[1:]))
	case "config":
		n.config(c, args, w)
	case "time":
		now := time.Now()
		w.Array(2)
		w.BulkString(strconv.FormatInt(now.Unix(), 10))
		w.BulkString(strconv.Itoa(now.Nanosecond() / 1000))
	case "script":
		redis.Scripting(args, w)
	case "fr.help":
		n.help(args, w)
	case "fr.link":
		n.link(c, args, w)
	case "fr.explain":
		n.explain(ctx, args[1], w)
	case "fr.state":
		w.Bulk(n.p.stateJSON(c.Context()))
	default:
		n.administer(ctx, cmd.Name, args, w)
	}
}

// Command implements resp.Handler.
func (n *Node) Command(c *resp.Conn, cmd *resp.Command, args [][]byte, w *resp.Writer) {
	if c.DB() != 0 {
		n.inSpace(c, cmd, args, w)
		return
	}
	if cmd.Name == "get" { // nearly every command is this one, and a hit
		key := args[1]
		track := c.Tracks() && len(key) > 0 && n.track.Reading(c, args[1:], w)
		if e, ok := n.cache.Peek(view(key)); ok && !(track && e.Copy) {
			if track {
				n.track.Read(key, e.TTL)
			}
			n.session(c).hit(e.Copy)
			redis.Value(e, w)
			return
		}
	}
	defer n.timed(c, cmd.Name, args, 1)()
	if bad := n.badKey(cmd, args); bad != "" {
		w.Error(bad)
		return
	}
	switch cmd.Name {
	case "fr.version":
		n.version(c, args[1], w)
		return
	case "mset":
		if redis.Unpaired(args, w) { // else it might be done in part
			return
		}
	case "eval", "evalsha":
		if !redis.KnownScript(args, w) {
			return
		}
	}
	switch run, writing := redis.Lookup(cmd.Name); {
	case run == nil:
		n.other(c, cmd, args, w)
	case writing:
		n.runWrite(c, cmd, args, w)
	default:
		n.runRead(c, cmd, run, args, w)
	}
}

// badKey says what is wrong with a command's keys.
func (n *Node) badKey(cmd *resp.Command, args [][]byte) string {
	for _, k := range cmd.Keys(args) {
		if len(k) == 0 || len(k) > n.p.cfg.MaxKey {
			return "ERR a key of " + strconv.Itoa(len(k)) + " bytes: keys have 1 to " + strconv.Itoa(n.p.cfg.MaxKey)
		}
	}
	return ""
}

func (n *Node) runRead(c *resp.Conn, cmd *resp.Command, run redis.Command, args [][]byte, w *resp.Writer) {
	r := &reader{n: n, c: c, w: w, track: c.Tracks() && n.track.Reading(c, cmd.Keys(args), w)}
	tmp := resp.NewWriter(w.Proto())
	if run(r, args, tmp); r.err != nil {
		w.Error(errorText(r.err))
		return
	}
	w.Raw(tmp.Bytes())
}

// runWrite has a command done by the owner of its keys. Those that Redis does to
// many keys at once, and whose keys have several owners, are taken apart.
func (n *Node) runWrite(c *resp.Conn, cmd *resp.Command, args [][]byte, w *resp.Writer) {
	j := &job{proto: w.Proto(), cmds: [][][]byte{args}}
	keys := n.keysOf(j)
	step := several[cmd.Name]
	switch {
	case len(keys) == 1 || step == 0 && n.sameOwner(keys):
		n.run(c, j, keys, w)
		return
	case step == 0:
		w.Error(errCrossOwner.Error())
		return
	}
	w.MayBlock()
	ctx, cancel := context.WithTimeout(c.Context(), n.p.cfg.Timeout)
	defer cancel()
	if n.sameOwner(keys) && (n.p.batch == 0 || len(keys) <= n.p.batch) {
		tmp := resp.NewWriter(w.Proto())
		if n.runWithin(ctx, c, j, keys, tmp); !bytes.HasPrefix(tmp.Bytes(), []byte("-CROSSSLOT ")) {
			w.Raw(tmp.Bytes())
			return
		} // else the keys changed owners just then, and nothing was done
	}
	n.splitByOwner(ctx, c, cmd.Name, args[1:], step).reply(w)
}

// Exec implements resp.Handler.
func (n *Node) Exec(c *resp.Conn, cmds []resp.Queued, w *resp.Writer) {
	defer n.timed(c, "exec", nil, 1)()
	if c.DB() != 0 {
		w.Error("EXECABORT Transaction discarded because of: MULTI does not work in a causal space; use FR.TBEGIN, or SELECT 0")
		return
	}
	j := &job{proto: w.Proto(), multi: true}
	if s, ok := c.State.(*session); ok {
		j.watch, s.watch = s.watch, nil
	}
	for _, q := range cmds {
		if q.Cmd.Name == "eval" || q.Cmd.Name == "evalsha" { // the owner may not have been sent the script; an unknown one answers when its turn comes
			redis.KnownScript(q.Args, resp.NewWriter(2))
		}
		if bad := n.badKey(q.Cmd, q.Args); bad != "" {
			w.Error("EXECABORT Transaction discarded because of: " + bad)
			return
		}
		j.cmds = append(j.cmds, q.Args)
	}
	keys := n.keysOf(j)
	switch {
	case len(keys) == 0:
		w.Array(len(cmds))
		for _, q := range cmds {
			n.one(nil, q.Args, w)
		}
	case !n.sameOwner(keys):
		w.Error(errCrossOwner.Error())
	default:
		if c.Tracks() {
			if reads := n.readsOf(j); len(reads) > 0 {
				j.track = n.track.Reading(c, reads, w)
			}
		}
		n.run(c, j, keys, w)
	}
}

const maxWatched = 1024

// watch remembers the versions of keys, for EXEC.
func (n *Node) watch(c *resp.Conn, args [][]byte, w *resp.Writer) {
	s := n.session(c)
	if len(s.watch)+len(args)-1 > maxWatched {
		w.Error("ERR too many watched keys; UNWATCH, and watch up to " + strconv.Itoa(maxWatched))
		return
	}
	for _, key := range args[1:] {
		e, err := n.read(c, key, w, false)
		if err != nil {
			w.Error(errorText(err))
			return
		}
		s.watch = append(s.watch, watched{string(key), e.Version})
	}
	w.SimpleString("OK")
}

// anywhere are the commands that mean the same in every database.
var anywhere = map[string]bool{
	"info": true, "config": true, "time": true, "script": true, "fr.help": true, "fr.link": true, "fr.state": true,
	"fr.drain": true, "fr.undrain": true,
}

// inSpace runs a command in the database of a space.
func (n *Node) inSpace(c *resp.Conn, cmd *resp.Command, args [][]byte, w *resp.Writer) {
	defer n.timed(c, cmd.Name, args, 1)()
	if bad := n.badKey(cmd, args); bad != "" {
		w.Error(bad)
		return
	}
	if _, own := promiseOf[cmd.Name]; anywhere[cmd.Name] || own && cmd.Name != "fr.token" {
		n.other(c, cmd, args, w)
		return
	}
	w.MayBlock()
	ctx, cancel := context.WithTimeout(c.Context(), n.p.cfg.Timeout)
	defer cancel()
	of, ok := n.p.databases[c.DB()]
	if !ok { // SELECT takes only databases of spaces
		w.Error(fmt.Sprintf("ERR no space has the database %d", c.DB()))
		return
	}
	n.members[of].Select(ctx, c.DB(), n.session(c).in(c.DB()), promise.Call{Command: cmd, Args: args, Tracks: c.Tracks()}, w)
}
