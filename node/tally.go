package node

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/freshet-cache/freshet/resp"
)

// tally adds up what is known of the parts of a command.
type tally struct {
	mu      sync.Mutex
	done    int   // keys whose part was carried out
	refused int   // keys of which nothing was written
	unknown int   // keys whose part may have been carried out, or may still be
	sum     int64 // of the integers that parts answered
	ints    bool
	why     string // the first error of a refused part, as a client reads it
}

// add takes the reply of a part of n keys.
func (t *tally) add(n int, reply []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch text := string(reply); {
	case strings.HasPrefix(text, "-UNKNOWN "):
		t.unknown += n
	case strings.HasPrefix(text, "-"):
		t.refused += n
		if t.why == "" {
			t.why = strings.TrimSuffix(text[1:], "\r\n")
		}
	default:
		t.done += n
		if text[0] == ':' {
			k, _ := strconv.ParseInt(text[1:len(text)-2], 10, 64)
			t.sum, t.ints = t.sum+k, true
		}
	}
}

// failed says what is known of all keys together, or is empty if every key is done.
func (t *tally) failed() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.done + t.refused + t.unknown
	switch {
	case t.done == all:
		return ""
	case t.unknown > 0:
		return fmt.Sprintf("UNKNOWN %d of %d keys may or may not have been written, %d were, %d were not: their owners did not answer; read the keys to find out",
			t.unknown, all, t.done, t.refused)
	case t.done > 0:
		return fmt.Sprintf("PARTIAL %d of %d keys were written, and %d were not: %s", t.done, all, t.refused, t.why)
	}
	return t.why
}

// reply answers the command as Redis does if every key is done, and else says what is
// known: TRYAGAIN or another refusal if nothing was written, PARTIAL if some keys
// were, UNKNOWN if that cannot be told.
func (t *tally) reply(w *resp.Writer) {
	switch failed := t.failed(); {
	case failed != "":
		w.Error(failed)
	case t.ints:
		w.Int(t.sum)
	default:
		w.SimpleString("OK")
	}
}

// flushing is a FLUSHALL that goes on in the background, one of a node at a time.
type flushing struct {
	mu      sync.Mutex
	running bool
	removed int
	last    string // what became of the last one
}

// state is what INFO says of the last FLUSHALL ASYNC.
func (f *flushing) state() (running bool, removed int, last string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running, f.removed, f.last
}
