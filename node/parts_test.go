package node

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/store"
)

// A command that was done in parts is answered with the sum of what the parts answered, or with OK;
// and if a part failed, with what is known of all keys. The first refusal says why.
func TestPartsAreAddedUp(t *testing.T) {
	type part struct {
		keys  int
		reply string
	}
	for _, c := range []struct {
		parts []part
		want  string
	}{
		{nil, "+OK\r\n"},
		{[]part{{2, "+OK\r\n"}, {1, "+OK\r\n"}}, "+OK\r\n"},
		{[]part{{3, ":2\r\n"}, {1, ":1\r\n"}, {40, ":30\r\n"}}, ":33\r\n"},
		{[]part{{1, ":0\r\n"}}, ":0\r\n"},
		{[]part{{2, "-TRYAGAIN first\r\n"}, {1, "-TRYAGAIN second\r\n"}}, "-TRYAGAIN first\r\n"},
		{[]part{{2, ":2\r\n"}, {1, "-OOM full\r\n"}, {4, "-ERR other\r\n"}}, "-PARTIAL 2 of 7 keys were written, and 5 were not: OOM full\r\n"},
		{[]part{{1, ":1\r\n"}, {2, "-UNKNOWN no answer\r\n"}, {4, "-OOM full\r\n"}, {8, "-UNKNOWN no answer\r\n"}},
			"-UNKNOWN 10 of 15 keys may or may not have been written, 1 were, 4 were not: their owners did not answer; read the keys to find out\r\n"},
		{[]part{{2, "-UNKNOWN no answer\r\n"}},
			"-UNKNOWN 2 of 2 keys may or may not have been written, 0 were, 0 were not: their owners did not answer; read the keys to find out\r\n"},
	} {
		var sum tally
		for _, p := range c.parts {
			sum.add(p.keys, []byte(p.reply))
		}
		w := resp.NewWriter(2)
		if sum.reply(w); string(w.Bytes()) != c.want {
			t.Errorf("%v is answered with %q, want %q", c.parts, w.Bytes(), c.want)
		}
	}
}

// An error begins with a code that clients act on: TRYAGAIN if nothing was done, UNKNOWN if that is
// not certain. Where the store is, and as whom it is asked, is not told to clients.
func TestErrorsHaveCodes(t *testing.T) {
	secret := errors.New("dial tcp db.internal:5432: user app")
	for want, err := range map[string]error{
		errCrossOwner.Error():                                         fmt.Errorf("%w", errCrossOwner),
		"TRYAGAIN " + linear.ErrNotOwner.Error():                      linear.ErrNotOwner,
		"TRYAGAIN " + linear.ErrBusy.Error():                          linear.ErrBusy,
		"UNKNOWN " + linear.ErrOutcomeUnknown.Error():                 fmt.Errorf("%w: %w", linear.ErrOutcomeUnknown, secret),
		"TRYAGAIN " + store.ErrUnavailable.Error():                    fmt.Errorf("%w: %w", store.ErrUnavailable, secret),
		"OOM " + store.ErrFull.Error():                                store.ErrFull,
		"TRYAGAIN context deadline exceeded; the time limit was over": context.DeadlineExceeded,
		"ERR another": errors.New("another"),
	} {
		if got := errorText(err); got != want {
			t.Errorf("%v is told as %q, want %q", err, got, want)
		}
	}
	for want, err := range map[string]error{"\x01": linear.ErrNotOwner, "\x02ERR no": errors.New("no"), "\x00+OK\r\n": nil} {
		if got := string(answered([]byte("+OK\r\n"), err)); got != want {
			t.Errorf("%v is passed on as %q, want %q", err, got, want)
		}
	}
}

// An owner has less time than its caller waits, so that its answer arrives. A caller who waits for
// ever gives it a day, and one who has no time left does not ask.
func TestTheOwnerHasLessTime(t *testing.T) {
	if d, ok := timeLeft(context.Background()); !ok || d != 24*time.Hour {
		t.Errorf("without a limit the owner has %v, %v", d, ok)
	}
	for _, limit := range []time.Duration{time.Hour, time.Minute} {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		if d, ok := timeLeft(ctx); !ok || d > limit-limit/8 || d < limit/2 {
			t.Errorf("of %v the owner has %v, %v", limit, d, ok)
		}
		cancel()
	}
	for _, limit := range []time.Duration{-time.Second, 0, time.Millisecond, minMargin} {
		ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(limit))
		if d, ok := timeLeft(ctx); ok || d > 0 {
			t.Errorf("of %v the owner has %v, %v", limit, d, ok)
		}
		cancel()
	}
}

// A batch of keys has as many as the store takes in one write; the default is bounded too.
func TestPartsAreBounded(t *testing.T) {
	if n := (&Process{}).mostKeys(); n != 1024 {
		t.Errorf("a part has up to %d keys", n)
	}
	if n := (&Process{batch: 100}).mostKeys(); n != 100 {
		t.Errorf("of a store that takes 100, a part has up to %d keys", n)
	}
}
