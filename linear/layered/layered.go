// Package layered reads values from a cache that may lose, delay or resurrect anything, and never
// returns a wrong value. A small service keeps the versions of keys, and a value is served only if
// its version is the latest (CRINK-L; WriteGuards, section 6.4).
//
// What may be relied on: Get is linearizable, as the version service is, whatever the value cache
// does. What it costs: one request to each of the two, at the same time. Unchecked asks the value
// cache alone, and may return anything that was ever true.
package layered

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/linear"
)

// Item is a state of a key and its version. A version belongs to one state for ever, so an item
// with the latest version is the latest state, wherever it comes from.
type Item struct {
	Version uint64
	Exists  bool
	Value   string
	TTL     time.Duration // remaining TTL; 0 if the key does not expire
}

// Versions is the version service, which lies over the source of truth. Local and Remote return
// one.
type Versions interface {
	// Version returns the version of the latest state, nearly always from memory.
	Version(ctx context.Context, key string) (version uint64, exists bool, err error)
	// Load reads the latest state itself.
	Load(ctx context.Context, key string) (Item, error)
	// SetTTL and Delete return the version of the state that they left. The version is odd if another
	// write followed at once. Their errors are those of package linear.
	SetTTL(ctx context.Context, key, value string, ttl time.Duration) (version uint64, err error)
	Delete(ctx context.Context, key string) (version uint64, err error)
}

// Values is the value cache; Redis returns one. No promise depends on it.
type Values interface {
	Get(ctx context.Context, key string) (item []byte, ok bool, err error)
	// Set keeps item for the time keep, unless the cache has a newer one. Parse finds the version
	// of an item.
	Set(ctx context.Context, key string, item []byte, keep time.Duration) error
}

// Options configure a Client. Versions and Values are required.
type Options struct {
	Versions Versions
	Values   Values
	// Patience is how long Get waits for the value cache before it asks the source of truth.
	// Default 100 ms.
	Patience time.Duration
	// Keep is how long the value cache keeps an item. Default 24 h.
	Keep time.Duration
	// Refreshes bounds the items that are being sent to the value cache. Further items are dropped,
	// and a later Get reads them from the source of truth again. Default 256.
	Refreshes int
	// Logger receives what an operator should know. Default: the client logs nothing.
	Logger *slog.Logger
}

// Client reads and writes keys. All methods are safe for concurrent use.
type Client struct {
	opt   Options
	slots chan struct{} // one for each refresh under way
	stats [outcomes]atomic.Uint64

	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup
}

// Stats counts what reads found since the client was made.
type Stats struct {
	Hits    uint64 // the value cache had the latest version
	Absent  uint64 // the key does not exist, which the version service knows by itself
	Older   uint64 // the value cache had another version
	Missing uint64 // the value cache had nothing, or did not answer in time
	Dropped uint64 // refreshes that failed, or were not sent because too many were under way
}

const (
	hit = iota
	absent
	older
	missing
	dropped
	outcomes
)

// New returns a client.
func New(opt Options) (*Client, error) {
	switch {
	case opt.Versions == nil || opt.Values == nil:
		return nil, errors.New("layered: Options.Versions and Options.Values are required")
	case opt.Patience < 0 || opt.Keep < 0 || opt.Refreshes < 0:
		return nil, errors.New("layered: Options.Patience, Keep and Refreshes must not be negative")
	}
	if opt.Patience == 0 {
		opt.Patience = 100 * time.Millisecond
	}
	if opt.Keep == 0 {
		opt.Keep = 24 * time.Hour
	}
	if opt.Refreshes == 0 {
		opt.Refreshes = 256
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	return &Client{opt: opt, slots: make(chan struct{}, opt.Refreshes)}, nil
}

// found is the answer of the value cache.
type found struct {
	item Item
	ok   bool
}

// Get returns the value of key, and whether the key exists: its latest state at some instant of the
// call. Get fails only if the version service and the source of truth do.
func (c *Client) Get(ctx context.Context, key string) (string, bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	values := make(chan found, 1)
	go func() { values <- c.ask(ctx, key) }()
	version, exists, err := c.opt.Versions.Version(ctx, key)
	switch {
	case err != nil: // without the version, an item proves nothing
		return c.load(ctx, key, missing)
	case !exists:
		c.stats[absent].Add(1)
		return "", false, nil
	}
	switch f := <-values; {
	case !f.ok:
		return c.load(ctx, key, missing)
	case f.item.Version != version:
		return c.load(ctx, key, older)
	default: // this version has one state, and it was the latest when the service was asked
		c.stats[hit].Add(1)
		return f.item.Value, f.item.Exists, nil
	}
}

// ask asks the value cache, for at most Options.Patience.
func (c *Client) ask(ctx context.Context, key string) found {
	ctx, cancel := context.WithTimeout(ctx, c.opt.Patience)
	defer cancel()
	b, ok, err := c.opt.Values.Get(ctx, key)
	if err != nil || !ok {
		return found{}
	}
	item, err := Parse(b)
	return found{item, err == nil}
}

// load reads the source of truth and refreshes the value cache.
func (c *Client) load(ctx context.Context, key string, why int) (string, bool, error) {
	c.stats[why].Add(1)
	item, err := c.opt.Versions.Load(ctx, key)
	if err != nil {
		return "", false, fmt.Errorf("layered: reading %.64q: %w", key, err)
	}
	c.refresh(key, item)
	return item.Value, item.Exists, nil
}

// Unchecked returns what the value cache holds, without asking whether it is the latest. If the
// value cache holds nothing, Unchecked returns what Get does.
func (c *Client) Unchecked(ctx context.Context, key string) (string, bool, error) {
	if f := c.ask(ctx, key); f.ok {
		return f.item.Value, f.item.Exists, nil
	}
	return c.Get(ctx, key)
}

// Set writes value to key for ever. See SetTTL.
func (c *Client) Set(ctx context.Context, key, value string) error {
	return c.SetTTL(ctx, key, value, 0)
}

// SetTTL writes value to key for the time ttl, or for ever if ttl is 0. The errors are those of
// package linear. After an error the value cache still has no item with a wrong state.
func (c *Client) SetTTL(ctx context.Context, key, value string, ttl time.Duration) error {
	version, err := c.opt.Versions.SetTTL(ctx, key, value, ttl)
	if err == nil && version%2 == 0 { // an odd version is overwritten already; its successor refreshes
		c.refresh(key, Item{version, true, value, ttl})
	}
	return err
}

// Delete removes key.
func (c *Client) Delete(ctx context.Context, key string) error {
	version, err := c.opt.Versions.Delete(ctx, key)
	if err == nil && version%2 == 0 {
		c.refresh(key, Item{Version: version})
	}
	return err
}

// refresh sends an item to the value cache, in the background.
func (c *Client) refresh(key string, item Item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case c.slots <- struct{}{}:
	default:
		c.stats[dropped].Add(1)
		return
	}
	if c.closed {
		<-c.slots
		return
	}
	c.work.Go(func() {
		defer func() { <-c.slots }()
		ctx, cancel := context.WithTimeout(context.Background(), max(time.Second, c.opt.Patience))
		defer cancel()
		keep := c.opt.Keep
		if item.TTL > 0 {
			keep = min(keep, item.TTL)
		}
		if err := c.opt.Values.Set(ctx, key, Append(nil, item), keep); err != nil {
			c.stats[dropped].Add(1)
			c.opt.Logger.Debug("the value cache was not told of a value", "err", err)
		}
	})
}

// Stats returns the counts since New.
func (c *Client) Stats() Stats {
	n := func(i int) uint64 { return c.stats[i].Load() }
	return Stats{Hits: n(hit), Absent: n(absent), Older: n(older), Missing: n(missing), Dropped: n(dropped)}
}

// Close waits until the refreshes under way have ended, or until ctx ends. Each of them has a short
// timeout.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	done := make(chan struct{})
	go func() { c.work.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// The head of an item: a mark that no other value begins with by accident, the form, and the
// version, big-endian. Version and value are one item, because two values of the cache could be of
// different writes.
const (
	mark     = "\xf5fr"
	headSize = len(mark) + 1 + 8

	formAbsent byte = 0
	formValue  byte = 1
)

// ErrItem means that the bytes are not an item.
var ErrItem = errors.New("layered: not an item of a layered cache")

// Append appends an item to b as the value cache keeps it, without its TTL.
func Append(b []byte, i Item) []byte {
	form := formAbsent
	if i.Exists {
		form = formValue
	}
	b = append(append(b, mark...), form)
	b = binary.BigEndian.AppendUint64(b, i.Version)
	return append(b, i.Value...)
}

// Parse decodes an item. It returns ErrItem if the bytes are not an item.
func Parse(b []byte) (Item, error) {
	if len(b) < headSize || string(b[:len(mark)]) != mark || b[len(mark)] > formValue || b[len(mark)] == formAbsent && len(b) > headSize {
		return Item{}, ErrItem
	}
	return Item{Version: binary.BigEndian.Uint64(b[len(mark)+1:]), Exists: b[len(mark)] == formValue, Value: string(b[headSize:])}, nil
}

// Local returns a version service in this process. c needs Options.VersionsOnly: it keeps the
// versions in memory.
func Local(c *linear.Cache[string]) Versions { return local{c} }

type local struct{ c *linear.Cache[string] }

func (l local) Version(ctx context.Context, key string) (uint64, bool, error) {
	return l.c.Version(ctx, key)
}

func (l local) Load(ctx context.Context, key string) (Item, error) {
	e, err := l.c.GetEntry(ctx, key)
	return Item{e.Version, e.Exists, e.Value, e.TTL}, err
}

func (l local) SetTTL(ctx context.Context, key, value string, ttl time.Duration) (uint64, error) {
	return l.c.SetTTL(ctx, key, value, ttl)
}

func (l local) Delete(ctx context.Context, key string) (uint64, error) { return l.c.Delete(ctx, key) }
