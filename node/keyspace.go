package node

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"strconv"

	"github.com/freshet-cache/freshet/internal/packed"
	"github.com/freshet-cache/freshet/redis"
	"github.com/freshet-cache/freshet/resp"
)

// ownCommands are freshet's, under one prefix.
var ownCommands = []resp.Command{
	{Name: "fr.getv", Arity: 2, Flags: []string{"readonly", "fast"}, FirstKey: 1, LastKey: 1, Step: 1, Group: "freshet",
		Summary: "FR.GETV key: returns version, value and remaining milliseconds (-1: for ever) of a key.", Since: "0.1.0"},
	{Name: "fr.cas", Arity: -4, Flags: []string{"write", "denyoom"}, FirstKey: 1, LastKey: 1, Step: 1, Group: "freshet",
		Summary: "FR.CAS key version value [EX s|PX ms|KEEPTTL]: sets a key whose version is still that; null if it is not.", Since: "0.1.0"},
	{Name: "fr.version", Arity: 2, Flags: []string{"readonly", "fast"}, FirstKey: 1, LastKey: 1, Step: 1, Group: "freshet",
		Summary: "FR.VERSION key: returns the version of a key, and 1 if it exists, else 0.", Since: "0.1.0"},
	{Name: "fr.setv", Arity: -3, Flags: []string{"write", "denyoom"}, FirstKey: 1, LastKey: 1, Step: 1, Group: "freshet",
		Summary: "FR.SETV key value [EX s|PX ms]: sets a key and returns its version; an odd one if another write followed in the same instant.", Since: "0.1.0"},
	{Name: "fr.delv", Arity: 2, Flags: []string{"write"}, FirstKey: 1, LastKey: 1, Step: 1, Group: "freshet",
		Summary: "FR.DELV key: removes a key and returns the version of its absence.", Since: "0.1.0"},
	{Name: "fr.explain", Arity: 2, Flags: []string{"readonly"}, FirstKey: 1, LastKey: 1, Step: 1, Group: "freshet",
		Summary: "FR.EXPLAIN key: says who owns a key, in which slice, under which guard, and whether it is cached here.", Since: "0.1.0"},
	{Name: "fr.state", Arity: 1, Flags: []string{"readonly"}, Group: "freshet",
		Summary: "FR.STATE: returns the state of the cluster as JSON.", Since: "0.1.0"},
	{Name: "fr.move", Arity: 3, Flags: []string{"admin"}, Group: "freshet",
		Summary: "FR.MOVE key node: begins to move the slice of a key to a node.", Since: "0.1.0"},
	{Name: "fr.split", Arity: 2, Flags: []string{"admin"}, Group: "freshet",
		Summary: "FR.SPLIT key: makes a slice begin at a key. Nothing changes hands.", Since: "0.1.0"},
	{Name: "fr.replicas", Arity: 3, Flags: []string{"admin"}, Group: "freshet",
		Summary: "FR.REPLICAS key n: has n other nodes keep copies of a key and serve its reads; 0 lets its load decide.", Since: "0.1.0"},
	{Name: "fr.drain", Arity: 1, Flags: []string{"admin"}, Group: "freshet",
		Summary: "FR.DRAIN: moves everything this node owns to others; it goes on serving by forwarding.", Since: "0.1.0"},
	{Name: "fr.undrain", Arity: 1, Flags: []string{"admin"}, Group: "freshet",
		Summary: "FR.UNDRAIN: ends FR.DRAIN; the node can be given slices again.", Since: "0.1.0"},
	{Name: "fr.link", Spare: true, Arity: -2, Flags: []string{"admin"}, Group: "freshet",
		Summary: "FR.LINK version [address [space]]: turns the connection into a link between nodes.", Since: "0.1.0"},
}

// administer changes who owns what.
func (n *Node) administer(ctx context.Context, name string, args [][]byte, w *resp.Writer) {
	switch name {
	case "fr.move":
		n.order(ctx, packed.AppendBytes(packed.AppendBytes([]byte{frameVersion, frameMove}, args[1]), args[2]), w)
	case "fr.split":
		n.order(ctx, packed.AppendBytes(packed.AppendBytes([]byte{frameVersion, frameMove}, args[1]), nil), w)
	case "fr.replicas":
		copies, err := strconv.ParseUint(string(args[2]), 10, 16)
		if err != nil {
			w.Error("ERR FR.REPLICAS key n: n is a number, 0 lets the key's load decide")
			return
		}
		n.order(ctx, binary.AppendUvarint(packed.AppendBytes([]byte{frameVersion, frameCopies}, args[1]), copies), w)
	case "fr.drain":
		if err := n.Leave(ctx); err != nil {
			w.Error("TRYAGAIN the node still owns slices: are there other nodes? " + err.Error())
			return
		}
		w.SimpleString("OK")
	case "fr.undrain":
		if err := n.Stay(); err != nil {
			w.Error(err.Error())
			return
		}
		w.SimpleString("OK")
	default:
		w.Error("ERR " + name + " is not supported")
	}
}

func (n *Node) scan(ctx context.Context, args [][]byte, w *resp.Writer) {
	cursor, err := strconv.ParseUint(string(args[1]), 10, 64)
	from, known := n.cursors.get(cursor)
	if err != nil || cursor != 0 && !known {
		w.Error("ERR invalid cursor: it is not one of this node, or too old; begin again with 0")
		return
	}
	match, count, none := "*", 10, false
	for i := 2; i < len(args); i += 2 {
		if i+1 >= len(args) {
			w.Error(redis.ErrSyntax)
			return
		}
		switch redis.Lower(args[i]) {
		case "match":
			match = string(args[i+1])
		case "count":
			n, ok := redis.Integer(args[i+1])
			switch {
			case !ok:
				w.Error(redis.ErrInteger)
				return
			case n < 1:
				w.Error(redis.ErrSyntax)
				return
			}
			count = int(min(n, 100_000))
		case "type":
			none = redis.Lower(args[i+1]) != "string"
		default:
			w.Error(redis.ErrSyntax)
			return
		}
	}
	var keys []string
	var next string
	done := none
	if !none {
		keys, next, done, err = n.p.store.Scan(ctx, from, count)
	}
	if err != nil {
		w.Error(errorText(err))
		return
	}
	cursor = 0
	if !done {
		cursor = n.cursors.put(next)
	}
	keys = matching(keys, match)
	w.Array(2)
	w.BulkString(strconv.FormatUint(cursor, 10))
	w.Array(len(keys))
	for _, k := range keys {
		w.BulkString(k)
	}
}

func matching(keys []string, pattern string) []string {
	if pattern == "*" {
		return keys
	}
	var out []string
	for _, k := range keys {
		if redis.Match(pattern, k) {
			out = append(out, k)
		}
	}
	return out
}

// maxKeys bounds the answer of KEYS.
const maxKeys = 1_000_000

func (n *Node) keys(ctx context.Context, pattern string, w *resp.Writer) {
	var all []string
	for from, done := "", false; !done; {
		keys, next, end, err := n.p.store.Scan(ctx, from, 10_000)
		if err != nil {
			w.Error(errorText(err))
			return
		}
		all, from, done = append(all, matching(keys, pattern)...), next, end
		if len(all) > maxKeys {
			w.Error("ERR too many keys for one answer; use SCAN")
			return
		}
	}
	w.Array(len(all))
	for _, k := range all {
		w.BulkString(k)
	}
}

// randomKey picks among the keys behind a random point, or the first ones.
func (n *Node) randomKey(ctx context.Context, w *resp.Writer) {
	for _, from := range []string{string([]byte{byte(' ' + rand.IntN(95)), byte(' ' + rand.IntN(95))}), ""} {
		keys, _, _, err := n.p.store.Scan(ctx, from, 64)
		if err != nil {
			w.Error(errorText(err))
			return
		}
		if len(keys) > 0 {
			w.BulkString(keys[rand.IntN(len(keys))])
			return
		}
	}
	w.Null()
}

func (n *Node) config(c *resp.Conn, args [][]byte, w *resp.Writer) {
	if redis.Lower(args[1]) == "set" {
		n.setting(c, args, w)
		return
	}
	known := map[string]string{"save": "", "appendonly": "no", "maxmemory": strconv.FormatInt(n.p.cfg.Memory, 10),
		"maxclients": strconv.Itoa(n.p.cfg.MaxConns), "databases": "1", "proto-max-bulk-len": strconv.Itoa(n.p.cfg.MaxValue),
		"log-level": n.p.events.Level(), "log-format": n.p.events.Format()}
	if redis.Lower(args[1]) != "get" || len(args) < 3 {
		w.Error("ERR only CONFIG GET and CONFIG SET are supported; settings are flags of freshet serve")
		return
	}
	out := map[string]string{}
	for _, pattern := range args[2:] {
		for k, v := range known {
			if redis.Match(redis.Lower(pattern), k) {
				out[k] = v
			}
		}
	}
	w.Map(len(out))
	for k, v := range out {
		w.BulkString(k)
		w.BulkString(v)
	}
}
