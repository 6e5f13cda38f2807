package node

import (
	"errors"
	"fmt"
	"time"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/store"
)

// maxAnswer bounds the values that one command or transaction reads, unless it is
// a single one: a name said a million times must not become a million values.
const maxAnswer = 128 << 20

var errAnswer = errors.New("the values asked for have more than 128 MiB together, nothing was done; ask for fewer at once")

// tx is the redis.KV of commands that write: inside an update, at the owner.
type tx struct {
	*linear.Tx[string]
	max  int
	size int // of the values read
	err  error
}

func (t *tx) Limit() int { return t.max }

func (t *tx) Get(key []byte) (linear.Entry[string], bool) {
	e, err := t.Tx.Get(string(key))
	if t.size += len(e.Value); t.size > max(maxAnswer, t.max) {
		err = errAnswer
	}
	t.err = errors.Join(t.err, err)
	return e, err == nil
}

func (t *tx) Set(key []byte, value string, ttl time.Duration) {
	if len(value) > t.max {
		t.err = errors.Join(t.err, fmt.Errorf("%w: %d bytes, and values have at most %d", store.ErrTooLarge, len(value), t.max))
		return
	}
	t.err = errors.Join(t.err, t.SetTTL(string(key), value, ttl))
}

func (t *tx) Delete(key []byte) { t.err = errors.Join(t.err, t.Tx.Delete(string(key))) }
