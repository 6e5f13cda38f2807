package tracking

import (
	"encoding/binary"
	"errors"

	"github.com/freshet-cache/freshet/internal/packed"
	"github.com/freshet-cache/freshet/shard/lease"
)

// The kinds of messages between nodes, which are their first byte.
const (
	Invalid  byte = 'I' // keys that have changed: the receiver's clients are to be told
	Follow   byte = 'F' // prefixes of keys that the sender is to be told of
	Acquired byte = 'A' // an address and slices: the node there owns them from here on
)

// errMessage means that another node sent what this one cannot read.
var errMessage = errors.New("tracking: malformed message or another version; run one version of freshet on all nodes")

// appendInvalid says which keys have changed; nil says that all may have. by is
// the connection of the receiver that changed them, if it was one of its.
func appendInvalid(b []byte, by cause, keys []string) []byte {
	flags := byte(0)
	if keys == nil {
		flags |= 1
	}
	if by.reads {
		flags |= 2
	}
	b = binary.AppendUvarint(append(b, Invalid, flags), uint64(by.conn))
	b = binary.AppendUvarint(b, uint64(len(keys)))
	for _, k := range keys {
		b = packed.AppendString(b, k)
	}
	return b
}

func decodeInvalid(b []byte) (by cause, keys []string, err error) {
	if len(b) < 2 || b[0] != Invalid || b[1] > 3 {
		return cause{}, nil, errMessage
	}
	s := packed.Read(b[2:])
	by = cause{conn: int64(s.Uint()), write: true, reads: b[1]&2 != 0}
	for range s.Count() {
		keys = append(keys, s.Text())
	}
	if !s.Done() || (b[1]&1 != 0) != (keys == nil) || by.conn < 0 {
		return cause{}, nil, errMessage
	}
	return by, keys, nil
}

// appendAcquired says which slices the node at addr has taken over.
func appendAcquired(b []byte, addr string, all []*takeover) []byte {
	b = packed.AppendString(append(b, Acquired), addr)
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, in := range all {
		b = packed.AppendString(packed.AppendString(b, in.Low), in.High)
	}
	return b
}

func decodeAcquired(b []byte) (addr string, all []*takeover, err error) {
	if len(b) < 2 || b[0] != Acquired {
		return "", nil, errMessage
	}
	s := packed.Read(b[1:])
	addr = s.Text()
	for range s.Count() {
		all = append(all, &takeover{Range: lease.Range{Low: s.Text(), High: s.Text()}})
	}
	if !s.Done() {
		return "", nil, errMessage
	}
	return addr, all, nil
}

// appendFollow says which prefixes are followed.
func appendFollow(b []byte, prefixes []string) []byte {
	b = binary.AppendUvarint(append(b, Follow), uint64(len(prefixes)))
	for _, p := range prefixes {
		b = packed.AppendString(b, p)
	}
	return b
}

func decodeFollow(b []byte) (prefixes []string, err error) {
	if len(b) < 2 || b[0] != Follow {
		return nil, errMessage
	}
	s := packed.Read(b[1:])
	for range s.Count() {
		prefixes = append(prefixes, s.Text())
	}
	if !s.Done() || len(prefixes) > maxPrefixList {
		return nil, errMessage
	}
	return prefixes, nil
}
