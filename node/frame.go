package node

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/freshet-cache/freshet/internal/packed"
	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/redis/tracking"
	"github.com/freshet-cache/freshet/resp"
)

// What nodes say to each other, as frames of a link: leases as messages, reads
// and commands as requests. Each begins with a version and a kind. Kinds of their own have
// peer.Named and the messages of redis/tracking.
const (
	frameVersion = 5

	frameLease   byte = 'L' // a message of shard/lease
	frameRead    byte = 'R' // a key; answered by an entry
	frameRun     byte = 'C' // commands; answered by their replies
	frameStamp   byte = 'E' // a key; answered by whether it exists, and its version
	frameNo      byte = 'N' // a text: the sender of a renewal cannot be part of the cluster
	frameHello   byte = 'H' // asks for the name of the cluster
	frameWho     byte = 'W' // asks for the nodes that the assigner has heard of
	frameState   byte = 'S' // asks for the state of one node
	frameTrack   byte = 'T' // a key; answered by an entry, and the sender is notified when it changes
	frameLiving  byte = 'G' // asks for the nodes that the assigner has heard of lately
	frameMove    byte = 'M' // a key and a node's id: the key's slice is to move there, or be cut if there is no id
	frameCopies  byte = 'P' // a key and a number: so many replicas it is to have beside its owner
	frameMember  byte = 'K' // a message about a key that the sender and the receiver share
	frameMembers byte = 'J' // asks how the members of the cluster are
)

// laneOf is the lane of a request.
func laneOf(frame []byte) peer.Lane {
	switch frame[1] {
	case frameRead, frameStamp:
		return peer.Reads
	case frameRun:
		if frame[3]&jobBy != 0 { // the owner knows by the link which client wrote
			return peer.Tracked
		}
		return peer.Writes
	}
	return peer.Control
}

// The first byte of an answer.
const (
	answerDone     byte = iota // what was asked for follows
	answerNotOwner             // nothing was done: ask the owner
	answerError                // nothing was done, and a text follows
)

// errFrame means that another node sent what this one cannot read.
var errFrame = errors.New("node: malformed frame or another version; run one version of freshet on all nodes")

// job is a list of commands to be run together by the owner of their keys.
type job struct {
	proto  int
	multi  bool          // the reply is that of EXEC
	track  bool          // the sender is to be notified when keys change that the job reads
	by     int64         // the client's connection, at the node it is connected to; 0 if it does not track
	within time.Duration // how long the owner may take, 0 for its --timeout; the node that asks waits a little longer
	watch  []watched     // keys that must not have changed
	cmds   [][][]byte

	conn *resp.Conn               // the client's, if it is connected to this node
	ends map[string]time.Duration // TTLs of the keys that it has read, if track
	from *tracking.Asker          // over whose link the job came; nil if conn is here
}

// writer is the sender of the job, for client tracking.
func (j *job) writer() tracking.Writer {
	return tracking.Writer{Conn: j.by, From: j.from, Reads: j.track}
}

// Flags of a job.
const (
	jobMulti = 1 << iota
	jobTrack
	jobBy
)

// maxWithin bounds the time that a sender gives an owner, in milliseconds.
const maxWithin = 24 * 60 * 60 * 1000

// watched is a key and the version WATCH saw.
type watched struct {
	key     string
	version uint64
}

func (j *job) append(b []byte) []byte {
	flags := byte(0)
	if j.multi {
		flags |= jobMulti
	}
	if j.track {
		flags |= jobTrack
	}
	if j.by != 0 {
		flags |= jobBy
	}
	b = append(b, frameVersion, frameRun, byte(j.proto), flags)
	b = binary.AppendUvarint(b, uint64(j.within.Milliseconds()))
	if j.by != 0 {
		b = binary.AppendUvarint(b, uint64(j.by))
	}
	b = binary.AppendUvarint(b, uint64(len(j.watch)))
	for _, w := range j.watch {
		b = packed.AppendBytes(b, []byte(w.key))
		b = binary.AppendUvarint(b, w.version)
	}
	b = binary.AppendUvarint(b, uint64(len(j.cmds)))
	for _, args := range j.cmds {
		b = binary.AppendUvarint(b, uint64(len(args)))
		for _, a := range args {
			b = packed.AppendBytes(b, a)
		}
	}
	return b
}

func decodeJob(b []byte) (*job, error) {
	if len(b) < 4 || b[0] != frameVersion || b[1] != frameRun || b[2] != 2 && b[2] != 3 || b[3] > jobMulti|jobTrack|jobBy {
		return nil, errFrame
	}
	j, s := &job{proto: int(b[2]), multi: b[3]&jobMulti != 0, track: b[3]&jobTrack != 0}, packed.Read(b[4:])
	j.within = time.Duration(min(s.Uint(), maxWithin)) * time.Millisecond
	if b[3]&jobBy != 0 {
		j.by = int64(s.Uint())
	}
	for range s.Count() {
		j.watch = append(j.watch, watched{s.Text(), s.Uint()})
	}
	for range s.Count() {
		var args [][]byte
		for range s.Count() {
			args = append(args, s.Bytes())
		}
		if len(args) == 0 {
			return nil, errFrame
		}
		j.cmds = append(j.cmds, args)
	}
	if !s.Done() {
		return nil, errFrame
	}
	return j, nil
}

func appendEntry(b []byte, e linear.Entry[string]) []byte {
	flags := byte(0)
	if e.Exists {
		flags |= 1
	}
	if e.Hit {
		flags |= 2
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, e.Version)
	b = binary.AppendUvarint(b, uint64(e.TTL))
	return append(b, e.Value...)
}

func decodeEntry(b []byte) (linear.Entry[string], error) {
	if len(b) == 0 || b[0] > 3 {
		return linear.Entry[string]{}, errFrame
	}
	s := packed.Read(b[1:])
	e := linear.Entry[string]{Exists: b[0]&1 != 0, Hit: b[0]&2 != 0, Version: s.Uint(), TTL: time.Duration(s.Uint())}
	if s.Bad() {
		return e, errFrame
	}
	if e.Exists {
		e.Value = string(s.Rest())
	}
	return e, nil
}
