package linear

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/clock"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/store/memory"
)

// offering is a cache that owns every key under generation 1, and counts what it offers.
func offering(t *testing.T, opt Options[string], offer func(ctx context.Context, batch []moved)) (*Cache[string], *shard.Handle) {
	t.Helper()
	opt.Store = memory.New(memory.Options{})
	if opt.Codec == nil {
		opt.Codec = String()
	}
	opt.Peers = hooks{offer: func(ctx context.Context, next string, after lease.Gen, batch []moved) {
		if next != "n2" || after != 1 {
			t.Errorf("offered to %s, after %d", next, after)
		}
		offer(ctx, batch)
	}}
	c := open(t, opt)
	h := shard.NewHandle(lease.Lease{Gen: 1}, c.opt.Clock, 1<<62)
	c.acquired(h, 0)
	synctest.Wait()
	return c, h
}

// Whatever their sizes, entries are handed over once each, in batches that end as soon as
// they have about 256 KiB, what entries cost besides counted: the receiver has bounded frames.
func TestHandOversComeInBatches(t *testing.T) {
	for name, c := range map[string]struct {
		entries, bytes int
		want           int // batches
	}{
		"nothing":              {0, 0, 0},
		"one":                  {1, 10, 1},
		"a batch but a byte":   {1024, offerBytes/1024 - offerOverhead - 5, 1},
		"exactly a batch":      {1024, offerBytes/1024 - offerOverhead - 4, 1},
		"a batch and an entry": {1025, offerBytes/1024 - offerOverhead - 4, 2},
		"three and a half":     {14, offerBytes/4 - offerOverhead - 4, 4},
		"large ones":           {3, 2 * offerBytes, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			got, batches := map[string]string{}, 0
			cache, h := offering(t, Options[string]{}, func(_ context.Context, batch []moved) {
				batches++
				size := 0
				for i, o := range batch {
					if size >= offerBytes || len(batch) == 0 {
						t.Errorf("%s: entry %d goes into a batch that has %d bytes", name, i, size)
					}
					size += len(o.Key) + len(o.Value) + offerOverhead
					if _, twice := got[o.Key]; twice {
						t.Errorf("%s: %s is offered twice", name, o.Key)
					}
					got[o.Key] = string(o.Value)
				}
			})
			want := map[string]string{}
			for i := range c.entries {
				k := fmt.Sprintf("%04d", i)
				want[k] = strings.Repeat("v", c.bytes)
				if err := cache.Set(t.Context(), k, want[k]); err != nil {
					t.Fatal(err)
				}
			}
			cache.handedOver(h, lease.Range{}, 1, "n2")
			if err := cache.offersDone(t.Context()); err != nil {
				t.Fatal(err)
			}
			if batches != c.want || !maps.Equal(got, want) {
				t.Errorf("%s: %d entries in %d batches, want %d in %d", name, len(got), batches, len(want), c.want)
			}
		})
	}
}

// A hand-over ends with its time: a receiver that takes nothing holds up neither Offers,
// whose caller has its own patience, nor Close; what follows is not sent.
func TestAReceiverThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		batches := 0
		var ended error
		cache, h := offering(t, Options[string]{Timeout: time.Minute}, func(ctx context.Context, _ []moved) {
			batches++
			<-ctx.Done()
			ended = ctx.Err()
		})
		for i := range 3 {
			if err := cache.Set(t.Context(), fmt.Sprint(i), strings.Repeat("v", offerBytes)); err != nil {
				t.Fatal(err)
			}
		}
		cache.handedOver(h, lease.Range{}, 1, "n2")
		impatient := errors.New("impatient")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, impatient)
		defer cancel()
		if err := cache.offersDone(ctx); !errors.Is(err, impatient) {
			t.Errorf("who waits for an offer that takes long is told %v", err)
		}
		if err := cache.offersDone(t.Context()); err != nil || batches != 1 || ended == nil {
			t.Errorf("%v; %d batches were sent to a node that takes nothing", err, batches)
		}
		if err := cache.offersDone(t.Context()); err != nil || len(cache.offering) != 0 {
			t.Errorf("%v; %d offers are under way", err, len(cache.offering))
		}
		cache.handedOver(h, lease.Range{}, 1, "n2")
		synctest.Wait()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := cache.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || batches != 2 {
			t.Errorf("%v, %d batches", err, batches)
		}
		cache.handedOver(h, lease.Range{}, 1, "n2")
		synctest.Wait()
		if err := cache.offersDone(t.Context()); err != nil || batches != 2 {
			t.Errorf("a closed cache offers: %v, %d batches", err, batches)
		}
	})
}

// odd encodes strings, but not all of them.
type odd struct{ Codec[string] }

func (o odd) Append(b []byte, v string) ([]byte, error) {
	if v == "odd" {
		return nil, errors.New("odd")
	}
	return o.Codec.Append(b, v)
}

// Decode turns what was written as "even" into what cannot be written.
func (o odd) Decode(b []byte) (string, error) {
	if string(b) == "even" {
		return "odd", nil
	}
	return o.Codec.Decode(b)
}

// A value that cannot be encoded any more stays behind, and so does nothing else. An entry of
// a cache of versions goes along without its value, which only another such cache takes.
func TestWhatGoesAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []moved
		take := func(_ context.Context, batch []moved) { got = append(got, batch...) }
		cache, h := offering(t, Options[string]{Codec: odd{String()}}, take)
		for _, v := range []string{"even", "fine"} {
			if err := cache.Set(t.Context(), v, v); err != nil {
				t.Fatal(err)
			}
		}
		cache.handedOver(h, lease.Range{}, 1, "n2")
		synctest.Wait()
		if len(got) != 1 || got[0].Key != "fine" || got[0].Bare || string(got[0].Value) != "fine" {
			t.Errorf("offered %+v", got)
		}
		if _, err := cache.Update(t.Context(), []string{"even"}, func(tx *Tx[string]) error {
			if e, err := tx.Get("even"); err != nil || e.Value != "odd" {
				t.Errorf("%+v, %v", e, err)
			}
			return tx.Set("even", "mended")
		}); err != nil {
			t.Errorf("what cannot be encoded cannot be mended either: %v", err)
		}
		got = nil
		versions, h := offering(t, Options[string]{VersionsOnly: true}, take)
		if err := versions.Set(t.Context(), "there", "v"); err != nil {
			t.Fatal(err)
		}
		if _, err := versions.Delete(t.Context(), "gone"); err != nil {
			t.Fatal(err)
		}
		versions.handedOver(h, lease.Range{}, 1, "n2")
		synctest.Wait()
		for _, o := range got {
			if o.Exists != (o.Key == "there") || o.Bare != o.Exists || len(o.Value) != 0 || o.Version == 0 {
				t.Errorf("a cache of versions offers %+v", o)
			}
		}
		if len(got) != 2 {
			t.Errorf("a cache of versions offers %+v", got)
		}
		for only, want := range map[bool]int{true: 2, false: 1} { // an absence is whole without a value
			n := &counter{}
			next := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String(), VersionsOnly: only, Recorder: n, Peers: hooks{}})
			next.acquired(shard.NewHandle(lease.Lease{Gen: 2}, next.opt.Clock, 1<<62), 1)
			synctest.Wait()
			next.offered(1, got)
			if next.Len() != want || n.events[0].Load() != 0 {
				t.Errorf("of %+v a cache of versions only %v keeps %d, want %d", got, only, next.Len(), want)
			}
			next.offered(3, []moved{{Key: "other", Exists: true, Value: []byte("v"), Version: 2, Bare: only}})
			if next.Len() != want {
				t.Error("what somebody else offers is kept")
			}
		}
	})
}

// A cache that keeps nothing offers nothing, and neither does one that cannot.
func TestNothingIsOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache, h := offering(t, Options[string]{MaxBytes: -1}, func(context.Context, []moved) { t.Error("offered by a cache that keeps nothing") })
		if err := cache.Set(t.Context(), "k", "v"); err != nil || cache.Len() != 0 {
			t.Errorf("%v, %d entries", err, cache.Len())
		}
		cache.handedOver(h, lease.Range{}, 1, "n2")
		silent := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String()})
		silent.handedOver(h, lease.Range{}, 1, "n2")
		if len(cache.offering)+len(silent.offering) != 0 {
			t.Error("an offer is under way")
		}
		synctest.Wait()
	})
}

// A node of a cluster hands entries over to the next owner through its peers, and says when
// they were not taken.
func TestOffersGoThroughPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown()
		var said bytes.Buffer
		st := memory.New(memory.Options{})
		opt := Options[string]{Store: st, Codec: String()}
		var caches []*Cache[string]
		for _, n := range []string{"n1", "n2"} {
			opt.Peers, opt.Logger = citizen{w, n}, debugTo(&said)
			caches = append(caches, open(t, opt))
		}
		w.deal("k", "n1")
		synctest.Wait()
		if err := caches[0].Set(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		h := w.handles["k"]
		h.Revoke()
		caches[0].revoked(h)
		next := shard.NewHandle(lease.Lease{Range: h.Range, Gen: 9}, clock.Clock{}, 1<<62)
		caches[1].acquired(next, h.Gen)
		synctest.Wait()
		w.deaf["n2"] = true
		caches[0].handedOver(h, h.Range, h.Gen, "n2")
		synctest.Wait()
		if caches[1].Len() != 0 || !strings.Contains(said.String(), "not handed over") {
			t.Errorf("%d entries came to a node that cannot be reached; it is said that %q", caches[1].Len(), said.String())
		}
		said.Reset()
		w.deaf["n2"] = false
		caches[0].handedOver(h, h.Range, h.Gen, "n2")
		synctest.Wait()
		if e, ok := caches[1].Peek("k"); !ok || e.Value != "v" || said.Len() != 0 {
			t.Errorf("%+v, %v; it is said that %q", e, ok, said.String())
		}
	})
}
