package linear

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/internal/packed"
	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/linear/crossowner"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/store/memory"
)

func debugTo(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// lockRequest asks for a cross-owner write of keys, settleRequest ends it.
func lockRequest(id byte, keys ...string) []byte {
	b := append([]byte{askLock, id}, make([]byte, 15)...)
	b = append(b, byte(len(keys)))
	for _, k := range keys {
		b = packed.AppendString(b, k)
	}
	return b
}

func settleRequest(id byte, status crossowner.Status) []byte {
	return append(append([]byte{askSettle, id}, make([]byte, 15)...), byte(status))
}

// What other nodes ask is answered if it is whole and means something, and refused with the
// reason if not; a refusal changes nothing.
func TestRequestsOfOtherNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails error
		st := memory.New(memory.Options{Before: func(_ context.Context, c memory.Call) error {
			if c.Op == memory.OpLoad {
				return fails
			}
			return nil
		}})
		c := open(t, Options[string]{Store: st, Codec: odd{String()}, Peers: hooks{}})
		c.acquired(shard.NewHandle(lease.Lease{Gen: 1, Range: lease.Range{Low: "a", High: "x"}}, c.opt.Clock, 1<<62), 0)
		synctest.Wait()
		for _, k := range []string{"even", "k"} {
			if err := c.Set(t.Context(), k, k); err != nil {
				t.Fatal(err)
			}
		}
		e, _ := c.Peek("k")
		ask := func(request []byte) string { return string(c.serve(t.Context(), request)) }
		read := func(key string) []byte { return packed.AppendString([]byte{askRead}, key) }
		row := string(appendBytesOf(sayYes, 1, e.Version, "k"))
		for name, r := range map[string]struct {
			request []byte
			want    string // how the reply begins
		}{
			"a value":                   {read("k"), row},
			"a key of nobody here":      {read("z"), "n"},
			"absence":                   {read("b"), "y\x00"},
			"what cannot be encoded":    {read("even"), "eodd"},
			"a read and a byte":         {append(read("k"), 0), "elinear: a request"},
			"a read without its key":    {read("k")[:1], "elinear: a request"},
			"nothing":                   {nil, "elinear: a request"},
			"a kind nobody knows":       {[]byte{'z', 1, 'k'}, "elinear: a request"},
			"a lock of nothing":         {lockRequest(1), "elinear: a request"},
			"a lock without an id":      {lockRequest(0, "k"), "elinear: a request"},
			"a lock out of order":       {lockRequest(1, "l", "k"), "elinear: a request"},
			"a lock of one key twice":   {lockRequest(1, "k", "k"), "elinear: a request"},
			"a lock and a byte":         {append(lockRequest(1, "k"), 0), "elinear: a request"},
			"a lock of endless keys":    {append(lockRequest(1)[:17], 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f), "elinear: a request"},
			"a lock of others' keys":    {lockRequest(2, "k", "z"), "n"},
			"a lock cut short":          {lockRequest(1, "key")[:20], "elinear: a request"},
			"the end of no lock":        {settleRequest(1, crossowner.OK), string([]byte{sayYes, byte(crossowner.Unknown)})},
			"an end nobody knows":       {settleRequest(1, crossowner.StatusUnknown+1), "elinear: a request"},
			"an end and a byte":         {append(settleRequest(1, crossowner.OK), 0), "elinear: a request"},
			"an end without its status": {settleRequest(1, crossowner.OK)[:17], "elinear: a request"},
		} {
			if got := ask(r.request); !strings.HasPrefix(got, r.want) || r.want == row && got != row {
				t.Errorf("%s: answered with %q, want %q", name, got, r.want)
			}
		}
		fails = errors.New("no connection")
		if got := ask(read("c")); got != "eno connection" {
			t.Errorf("when the store fails: %q", got)
		}
		if locks, _ := c.underWay(); locks != 0 {
			t.Errorf("%d locks after refusals", locks)
		}
		if t.Failed() {
			return // the key may be locked by mistake
		}
		if err := c.Set(t.Context(), "k", "w"); err != nil {
			t.Error(err)
		}
	})
}

func appendBytesOf(kind, flag byte, version uint64, value string) []byte {
	b := []byte{kind, flag}
	for ; version >= 0x80; version >>= 7 {
		b = append(b, byte(version)|0x80)
	}
	return append(append(b, byte(version)), value...)
}

// underWay counts the cross-owner writes that are remembered, and the callers who wait.
func (c *Cache[V]) underWay() (locks, callers int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.crossOwner), len(c.waiting)
}

// ended reports whether a write has ended, well or not.
func ended(t *testing.T, written chan error) bool {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-written:
		if err != nil {
			t.Error(err)
		}
		return true
	default:
		return false
	}
}

// A locked write keeps everybody else from writing its keys until its coordinator says how it ended, or
// for twice the time that a transaction may take. The same cross-owner write is not granted twice, not even
// to a coordinator that asks again, and what ended is not asked about for ever.
func TestALoanAndItsEnd(t *testing.T) {
	for _, end := range []crossowner.Status{crossowner.OK, crossowner.Mismatch, crossowner.Refused, crossowner.StatusUnknown, crossowner.StatusUnknown + 1} {
		synctest.Test(t, func(t *testing.T) {
			c := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String(), Timeout: time.Second})
			synctest.Wait()
			if err := c.Set(t.Context(), "a", "v"); err != nil {
				t.Fatal(err)
			}
			if got := c.serve(t.Context(), lockRequest(1, "a", "b")); got[0] != sayYes || len(got) != 1+2*16 || string(got[1:]) == string(make([]byte, 32)) {
				t.Fatalf("asked for a lock, it says %q", got)
			}
			if _, ok := c.Peek("a"); ok {
				t.Error("what is locked is served")
			}
			if got := c.serve(t.Context(), lockRequest(1, "a", "b")); got[0] != sayError || !strings.Contains(string(got), "twice") {
				t.Errorf("asked again, it says %q", got)
			}
			written := make(chan error, 1)
			go func() { written <- c.Set(t.Context(), "a", "w") }()
			if ended(t, written) {
				t.Fatal("what is locked is written")
			}
			want := crossowner.Unknown // an end that was told is nothing to be found out
			switch end {
			case crossowner.StatusUnknown: // nothing was written by it: that is found out behind a guard
				want = crossowner.Again
				fallthrough
			default:
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if got := c.serve(ctx, settleRequest(1, end)); string(got) != string([]byte{sayYes, byte(want)}) {
					t.Errorf("told of %d, it says %q", end, got)
				}
			case crossowner.StatusUnknown + 1: // nothing is heard
				time.Sleep(2*time.Second - 1)
				if ended(t, written) {
					t.Fatal("written before the lock is over")
				}
				time.Sleep(time.Nanosecond)
			}
			if !ended(t, written) {
				t.Fatal("what was locked cannot be written")
			}
			if end > crossowner.StatusUnknown { // the coordinator may still ask how it ended, and later no more
				if locks, _ := c.underWay(); locks != 1 {
					t.Errorf("%d locks are remembered", locks)
				}
				if got := c.serve(t.Context(), settleRequest(1, crossowner.StatusUnknown)); string(got) != string([]byte{sayYes, byte(crossowner.Again)}) {
					t.Errorf("asked late, it says %q", got)
				}
			}
			if locks, callers := c.underWay(); locks != 0 || callers != 0 {
				t.Errorf("%d locks are remembered, %d callers wait", locks, callers)
			}
			time.Sleep(time.Minute) // no timer of the cross-owner write has anything left to do
			synctest.Wait()
			if v, _, err := c.Get(t.Context(), "a"); v != "w" || err != nil {
				t.Errorf("%q, %v", v, err)
			}
		})
	}
}

// A coordinator that never asks is forgotten; one that waits too long for its cross-owner write has none, and
// neither has one beyond the bound.
func TestLocksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String(), Timeout: time.Second})
		synctest.Wait()
		if got := c.serve(t.Context(), lockRequest(1, "a")); got[0] != sayYes {
			t.Fatalf("%q", got)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errors.New("impatient"))
		defer cancel()
		if got := c.serve(ctx, lockRequest(2, "a")); got[0] != sayError || !strings.Contains(string(got), "impatient") || !strings.Contains(string(got), "nothing was written") {
			t.Errorf("who waits too long is told %q", got)
		}
		if got := c.serve(t.Context(), lockRequest(3, "a")); got[0] != sayError || !strings.Contains(string(got), "deadline") {
			t.Errorf("who waits for as long as a transaction may take is told %q", got)
		}
		if locks, callers := c.underWay(); locks != 1 || callers != 1 {
			t.Errorf("%d locks, %d callers", locks, callers)
		}
		time.Sleep(4*time.Second - 1 - time.Millisecond - time.Second)
		synctest.Wait()
		if locks, _ := c.underWay(); locks != 1 {
			t.Errorf("%d locks are remembered, and one may be asked about", locks)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if locks, _ := c.underWay(); locks != 0 {
			t.Errorf("%d locks are remembered for ever", locks)
		}
		for i := range maxCrossOwner {
			c.crossOwner[clink.ID{9, byte(i >> 8), byte(i)}] = &locking[string]{}
		}
		if got := c.serve(t.Context(), lockRequest(4, "b")); string(got) != string(sayBusy) {
			t.Errorf("a lock beyond the bound: %q", got)
		}
		delete(c.crossOwner, clink.ID{9})
		if got := c.serve(t.Context(), lockRequest(4, "b")); got[0] != sayYes {
			t.Errorf("the last lock within the bound: %q", got)
		}
		if got := c.serve(t.Context(), settleRequest(4, crossowner.OK)); got[0] != sayYes {
			t.Errorf("%q", got)
		}
		clear(c.crossOwner)
	})
}

// silentPeers own every key, and never answer.
type silentPeers struct{ other }

func (silentPeers) Call(ctx context.Context, _ string, _ []byte) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// An owner that says nothing leaves a reader, who waits no longer than the store may take,
// time to ask the store. Nobody is asked for what nobody owns, or this node does.
func TestReadsPastASilentOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String(), Peers: &silentPeers{}, Timeout: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if _, ok, err := c.Get(ctx, "k"); ok || err != nil {
			t.Errorf("%v, %v", ok, err)
		}
		if c.Standing("k") != Elsewhere {
			t.Errorf("it stands %v", c.Standing("k"))
		}
		for _, owner := range []string{"", "n1"} {
			w := newTown()
			w.owner["k"] = owner
			w.deaf[""], w.deaf["n1"] = false, false
			c := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String(), Peers: refusing{citizen{w, "n1"}, t}})
			if _, ok, err := c.Get(t.Context(), "k"); ok || err != nil || c.Standing("k") != Nobody {
				t.Errorf("%v, %v, %v", ok, err, c.Standing("k"))
			}
		}
	})
}

// refusing are peers of which none must be called.
type refusing struct {
	citizen
	t *testing.T
}

func (r refusing) Call(_ context.Context, owner string, _ []byte) ([]byte, error) {
	r.t.Errorf("%q is called", owner)
	return nil, ErrUnreached
}
