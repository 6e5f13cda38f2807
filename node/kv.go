package node

import (
	"errors"
	"time"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/resp"
)

// reader is the redis.KV of commands that only read: each key by itself, from
// wherever its latest state is.
type reader struct {
	n     *Node
	c     *resp.Conn
	w     *resp.Writer
	track bool // the client is told when the keys change
	size  int  // of the values read
	err   error
}

func (r *reader) Get(key []byte) (linear.Entry[string], bool) {
	e, err := r.n.read(r.c, key, r.w, r.track)
	if r.size += len(e.Value); r.size > max(maxAnswer, r.Limit()) {
		err = errAnswer
	}
	r.err = errors.Join(r.err, err)
	return e, err == nil
}

func (r *reader) Limit() int { return r.n.p.cfg.MaxValue }

func (r *reader) Set([]byte, string, time.Duration) { panic("node: a command that only reads writes") }

func (r *reader) Delete([]byte) { panic("node: a command that only reads deletes") }
