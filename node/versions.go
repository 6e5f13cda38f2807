package node

import (
	"context"
	"encoding/binary"
	"strconv"

	"github.com/freshet-cache/freshet/internal/packed"
	"github.com/freshet-cache/freshet/redis"
	"github.com/freshet-cache/freshet/resp"
)

// What a layered cache asks of its version service. FR.VERSION is answered from memory
// where the key is owned; FR.SETV and FR.DELV tell the version they left.

// version answers FR.VERSION.
func (n *Node) version(c *resp.Conn, key []byte, w *resp.Writer) {
	ctx, cancel := context.WithTimeout(c.Context(), n.p.cfg.Timeout)
	defer cancel()
	v, exists, err := n.versionOf(ctx, string(key), w)
	if err != nil {
		w.Error(errorText(err))
		return
	}
	w.Array(2)
	w.BulkString(strconv.FormatUint(v, 10))
	w.Int(int64(flag(exists)))
}

// versionOf asks the owner, or else looks itself: in the store, if it is not the owner.
func (n *Node) versionOf(ctx context.Context, key string, w *resp.Writer) (uint64, bool, error) {
	r, ok := n.shard.Table().Find(key)
	if !ok || r.Node == "" || r.Node == n.incarnation {
		return n.versionHere(ctx, key, forClient)
	}
	w.MayBlock()
	n.m.forwarded[0].Inc()
	first, cancel := context.WithTimeout(ctx, n.p.cfg.Timeout/4) // an owner that says nothing must leave time for the store
	defer cancel()
	b, err := n.peers.CallHeard(first, r.Addr, append([]byte{frameVersion, frameStamp}, key...))
	if err == nil && len(b) > 2 && b[0] == answerDone {
		s := packed.Read(b[2:])
		if v := s.Uint(); !s.Bad() {
			return v, b[1] == 1, nil
		}
	}
	return n.versionHere(ctx, key, forClient)
}

// versionHere is the version as this node's cache has it, or reads it, and is counted.
func (n *Node) versionHere(ctx context.Context, key string, who int) (uint64, bool, error) {
	e, err := n.cache.VersionEntry(ctx, key)
	if err == nil {
		n.m.served(e, who)
	}
	return e.Version, e.Exists, err
}

// stamped answers another node's versionOf, of what this one owns.
func (n *Node) stamped(ctx context.Context, key string) []byte {
	if !n.cache.Owns(key) {
		return []byte{answerNotOwner}
	}
	v, exists, err := n.versionHere(ctx, key, forNode)
	if err != nil {
		return append([]byte{answerError}, errorText(err)...)
	}
	return binary.AppendUvarint([]byte{answerDone, flag(exists)}, v)
}

// writeVersion carries out FR.SETV and FR.DELV, which want the version of the commit.
func (n *Node) writeVersion(ctx context.Context, args [][]byte) ([]byte, error) {
	w := resp.NewWriter(2)
	key := string(args[1])
	var version uint64
	var err error
	if redis.Lower(args[0]) == "fr.delv" {
		version, err = n.cache.Delete(ctx, key)
	} else {
		ttl, past, msg := redis.ParseExpiry(args[3:], "fr.setv")
		if msg == "" && len(args[2]) > n.p.cfg.MaxValue {
			msg = redis.ErrTooLong
		}
		switch {
		case msg != "":
			w.Error(msg)
			return w.Bytes(), nil
		case past:
			version, err = n.cache.Delete(ctx, key)
		default:
			version, err = n.cache.SetTTL(ctx, key, string(args[2]), ttl)
		}
	}
	if err != nil {
		return nil, err
	}
	w.BulkString(strconv.FormatUint(version, 10))
	return w.Bytes(), nil
}
