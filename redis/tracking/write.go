package tracking

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/internal/drive"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/track"
)

// Writer is the client that has asked for a write. The zero value is a client that does not track.
type Writer struct {
	Conn  int64  // the client's connection at the node it is connected to, 0 if it does not track
	From  *Asker // over whose link the write came; nil if the client is connected to this node
	Reads bool   // the client reads in the same transaction, and is remembered for that
}

// Changed notifies all clients of keys that were written, before the write is acknowledged.
func (t *Tracking) Changed(keys []string, w Writer) {
	if t.Idle() || len(keys) == 0 {
		return
	}
	t.awaitTakeovers(keys)
	by, over := cause{write: true}, w.From
	if w.From == nil {
		by.conn, by.reads = w.Conn, w.Reads
	}
	if !w.Reads {
		over = nil
	}
	here, there := t.written(keys, by), t.remote.TakeBut(over, keys...)
	var wg sync.WaitGroup
	if there != nil {
		wg.Go(func() { t.tellNodes(there, w) })
	}
	t.tell(here, by)
	wg.Wait()
}

// tellNodes has other nodes notify their clients. It closes the link of a node that does not
// answer in time: that node then knows that it may have missed a message.
func (t *Tracking) tellNodes(k *track.Ticket[*Asker], w Writer) {
	ctx, cancel := context.WithTimeout(t.opt.Context, tellWait)
	defer cancel()
	k.Wait(ctx)
	var wg sync.WaitGroup
	for l, keys := range k.Tell {
		by := cause{write: true}
		if w.From == l {
			by.conn, by.reads = w.Conn, w.Reads
		}
		message := appendInvalid(nil, by, keys)
		wg.Go(func() {
			if err := t.n.Tell(ctx, l.Link, message); err != nil {
				t.opt.Logger.Debug("a node does not tell its clients what has changed; its link is cut", "err", err)
				t.work.Go(l.Close)
				<-t.linkLost(l).done // which takes takeoverWait at most
			}
		})
	}
	wg.Wait()
	k.Done()
}

// Doubtful notifies all clients of keys whose write may have happened, or may still happen, and
// notifies them again when that is decided: a client that reads in between may see the old value.
func (t *Tracking) Doubtful(keys []string, w Writer) {
	t.Changed(keys, w)
	if t.undecided.Add(1) > settleMax {
		t.undecided.Add(^uint64(0))
		t.ForgetEverywhere(0)
		return
	}
	t.work.Go(func() {
		defer t.undecided.Add(^uint64(0))
		if !t.settle(keys) {
			t.ForgetEverywhere(0)
		}
	})
}

// settle waits until no earlier write of the keys can take effect any more. If they have another
// owner, that is none of ours: it announces itself.
func (t *Tracking) settle(keys []string) bool {
	for range settleTries {
		ctx, cancel := context.WithTimeout(t.opt.Context, t.opt.Timeout)
		err := t.n.Decided(ctx, keys)
		cancel()
		switch {
		case err == nil:
			t.Changed(keys, Writer{})
			return true
		case errors.Is(err, ErrNotOurs), t.opt.Context.Err() != nil:
			return true
		}
		drive.Pause(t.opt.Context, endsBeat)
	}
	return false
}

// ForgetEverywhere notifies all clients of all nodes that everything they keep may be old. conn is the
// connection of the client that asks for it, if it is one of this node: it is notified behind its reply.
func (t *Tracking) ForgetEverywhere(conn int64) {
	ctx, cancel := context.WithTimeout(t.opt.Context, tellWait)
	defer cancel()
	var wg sync.WaitGroup
	for addr, lives := range t.n.Living(ctx) {
		wg.Go(func() { _ = t.n.Insist(ctx, addr, appendInvalid(nil, cause{}, nil), lives) }) // its clients are notified of each key besides
	}
	t.forgetAll(cause{conn: conn})
	wg.Wait()
}

// Interest notes that another node's clients read a key here, before it is looked
// up. Nothing is noted without a link to notify the node over.
func (t *Tracking) Interest(over *Asker, key string) {
	if over == nil {
		return
	}
	over.asked.Store(true)
	if k := t.remote.Add(key, over, nil); k != nil {
		t.tellNodes(k, Writer{})
	}
}

// Serve takes a message of another node, which came over a link that the other node opened; over is
// nil if this node opened it. An error means that the message could not be read.
func (t *Tracking) Serve(ctx context.Context, message []byte, over *Asker) error {
	if len(message) == 0 {
		return errMessage
	}
	switch message[0] {
	case Invalid:
		return t.invalid(message)
	case Follow:
		return t.follow(message, over)
	case Acquired:
		return t.announced(ctx, message)
	}
	return errMessage
}

// invalid takes what another node says has changed.
func (t *Tracking) invalid(message []byte) error {
	by, keys, err := decodeInvalid(message)
	switch {
	case err != nil:
		return err
	case keys == nil:
		t.forgetAll(cause{})
	default:
		t.tell(t.written(keys, by), by)
	}
	return nil
}

// expire notifies clients, and nodes whose clients have read here, of keys whose TTLs have passed, until
// the node closes.
func (t *Tracking) expire() {
	tick := time.NewTicker(endsBeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-t.opt.Context.Done():
			return
		}
		for more := true; more; {
			var k *track.Ticket[*resp.Conn]
			k, more = t.local.TakeEnded(int64(t.opt.Clock.Now()))
			t.tell(k, cause{})
		}
		for more := true; more; {
			var k *track.Ticket[*Asker]
			if k, more = t.remote.TakeEnded(int64(t.opt.Clock.Now())); k != nil {
				t.work.Go(func() { t.tellNodes(k, Writer{}) }) // a slow node does not delay the others
			}
		}
	}
}
