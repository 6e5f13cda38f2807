package node

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/redis"
	"github.com/freshet-cache/freshet/redis/tracking"
)

// serve answers another node's request, which came over a link that the other node
// opened; over is nil if it was this one.
func (n *Node) serve(ctx context.Context, frame []byte, over *tracking.Asker) []byte {
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
			n.track.Interest(over, key)
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
	case tracking.Invalid, tracking.Follow, tracking.Acquired:
		return answered(nil, n.track.Serve(ctx, frame[1:], over))
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
				n.track.Interest(over, string(k))
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
