// Package follower is a client that keeps what it reads, as CLIENT TRACKING lets
// it, and judges whether it was told in time: once it has taken everything up to
// the answer of a PING, it keeps nothing older than what had been acknowledged to
// writers before the PING was sent. It is for tests and measurements.
package follower

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/resp"
)

// Floor is the least number that each key has, as far as its writers were told.
// Keys are counted up by INCR, so later values are larger.
type Floor []atomic.Int64

// Key is the name of the i-th key. They are spread over all printable ones.
func Key(i int) string { return fmt.Sprintf("%c:tracked:%d", '0'+i*37%75, i) }

// Raise notes that a writer was told of a value.
func (f Floor) Raise(i int, value int64) {
	for old := f[i].Load(); old < value && !f[i].CompareAndSwap(old, value); old = f[i].Load() {
	}
}

// Follower is one such client. It is not safe for concurrent use.
type Follower struct {
	// Checked and Told are how often something kept was compared, and how many
	// pushes came.
	Checked, Told int

	nc    net.Conn
	r     *bufio.Reader
	floor Floor
	kept  map[string]int64
}

const patience = 30 * time.Second

// Dial connects to a node and turns tracking on, with options.
func Dial(addr string, floor Floor, options ...string) (*Follower, error) {
	nc, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	f := &Follower{nc: nc, r: bufio.NewReader(nc), floor: floor, kept: map[string]int64{}}
	for _, cmd := range [][]string{{"HELLO", "3"}, append([]string{"CLIENT", "TRACKING", "ON"}, options...)} {
		if err := f.send(cmd...); err != nil {
			return nil, err
		}
		if _, err := f.reply(); err != nil {
			nc.Close()
			return nil, err
		}
	}
	return f, nil
}

// Close ends it, and what it keeps with it.
func (f *Follower) Close() { f.nc.Close() }

func (f *Follower) send(args ...string) error {
	_ = f.nc.SetDeadline(time.Now().Add(patience))
	_, err := f.nc.Write(resp.AppendCommand(nil, args...))
	return err
}

// reply takes pushes until an answer comes.
func (f *Follower) reply() (resp.Reply, error) {
	for {
		r, err := resp.ReadReply(f.r)
		switch {
		case err != nil:
			return r, err
		case r.Kind == '-':
			return r, fmt.Errorf("follower: answered with %s", r.Text)
		case r.Kind != '>':
			return r, nil
		}
		f.Told++
		if len(r.Elems) != 2 || r.Elems[0].Text != "invalidate" {
			return r, fmt.Errorf("follower: told %v", r)
		}
		if r.Elems[1].Kind == '_' {
			clear(f.kept)
		}
		for _, k := range r.Elems[1].Elems {
			delete(f.kept, k.Text)
		}
	}
}

// Round reads a few keys that it does not keep, in a pipeline, and judges what it
// keeps then. An error that is not Stale means that the connection is over.
func (f *Follower) Round(r *rand.Rand) error {
	var asked []int
	for range 1 + r.IntN(4) {
		if i := r.IntN(len(f.floor)); !f.keeps(i) {
			asked = append(asked, i)
			if err := f.send("GET", Key(i)); err != nil {
				return err
			}
		}
	}
	for _, i := range asked {
		got, err := f.reply()
		if err != nil {
			return err
		}
		n, _ := strconv.ParseInt(got.Text, 10, 64) // null is 0
		f.kept[Key(i)] = n
	}
	return f.Judge()
}

func (f *Follower) keeps(i int) bool {
	_, ok := f.kept[Key(i)]
	return ok
}

// Stale is what a follower kept though a later value had been acknowledged.
type Stale struct {
	Key         string
	Kept, Floor int64
}

// Error implements error.
func (s Stale) Error() string {
	return fmt.Sprintf("follower: keeps %d for %s, and %d was acknowledged before", s.Kept, s.Key, s.Floor)
}

// Judge takes everything up to the answer of a PING and compares. The error is
// Stale if something kept is too old.
func (f *Follower) Judge() error {
	before := make([]int64, len(f.floor))
	for i := range f.floor {
		before[i] = f.floor[i].Load()
	}
	if err := f.send("PING"); err != nil {
		return err
	}
	if _, err := f.reply(); err != nil {
		return err
	}
	for i, least := range before {
		if n, ok := f.kept[Key(i)]; ok {
			if f.Checked++; n < least {
				return Stale{Key(i), n, least}
			}
		}
	}
	return nil
}
