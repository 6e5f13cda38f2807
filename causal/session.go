package causal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
	"github.com/freshet-cache/freshet/codec"
	"github.com/freshet-cache/freshet/store"
)

// SpaceOptions configure a Space. Codec is required.
type SpaceOptions[V any] struct {
	Codec codec.Codec[V]
	// Name tells the tokens of this space from those of others: the cluster's and the
	// space's, for example. All servers of a ring say the same.
	Name string
	// Key authenticates tokens: whoever does not know it cannot make or change one. All
	// processes whose servers take each other's tokens say the same. Default: the key of the
	// Ring, which all its processes have from who keeps the ring; for a Server that is in none,
	// one that this process has drawn.
	Key []byte
	// Merge makes one value of two that were written out of each other's sight; it must not
	// change them, and be commutative, associative and idempotent: see CheckMerge. The
	// servers keep such writes then: set Options.Concurrent. Default: the larger stamp wins,
	// and the other write is lost.
	Merge func(a, b V) V
	// MaxValue bounds a value as it is encoded, in bytes, also one that was merged; a larger one
	// is refused with store.ErrTooLarge. Default: what the store takes.
	MaxValue int
	// MaxToken is the size, in bytes, up to which a token carries values. A larger one
	// carries names, which the next server looks up. Default 2 KiB. In an asynchronous space
	// a token always carries values.
	MaxToken int
}

// Servers is where a Space finds its server, and the key of its tokens: a Server itself, or
// a Ring.
type Servers interface {
	Server() (*Server, error)
	TokenKey() ([]byte, error)
}

// Server implements Servers.
func (s *Server) Server() (*Server, error) { return s, nil }

// Space is the typed keys that sessions read and write through one server. It is safe for
// concurrent use.
type Space[V any] struct {
	at     Servers
	opt    SpaceOptions[V]
	id     [8]byte // of the space in tokens of sessions
	txs    [8]byte // the same of transactions
	sealed atomic.Pointer[sealers]
	folds  folds
}

// NewSpace returns a space at a server, or at that of a ring, whose closing is not its
// affair.
func NewSpace[V any](at Servers, opt SpaceOptions[V]) (*Space[V], error) {
	if opt.Codec == nil {
		return nil, errors.New("causal: SpaceOptions.Codec is nil; use codec.Bytes, codec.String or codec.JSON")
	}
	if opt.MaxToken <= 0 {
		opt.MaxToken = 2 << 10
	}
	return &Space[V]{at: at, opt: opt, id: spaceID(opt.Name), txs: spaceID(txsOf(opt.Name))}, nil
}

// Session is a workflow's context: what it has seen and written. A session is not safe
// for concurrent use; fork it for steps that run at the same time.
type Session[V any] struct {
	sp *Space[V]
	m  *mesh.Session
}

// Begin returns a session that knows nothing.
func (sp *Space[V]) Begin() *Session[V] { return &Session[V]{sp, &mesh.Session{}} }

// Resume returns the session that a token stands for. The error says why a token is not
// taken: ErrToken, ErrForged or ErrOtherSpace; or ErrJoining, if the ring's key is not known yet.
func (sp *Space[V]) Resume(token string) (*Session[V], error) {
	b, err := opened(sp.id, token)
	if err != nil {
		return nil, err
	}
	with, err := sp.sealers()
	if err != nil {
		return nil, err
	}
	if b, err = with.sessions.open(b); err != nil {
		return nil, err
	}
	m, err := wire.Resume(b)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrToken, err)
	}
	return &Session[V]{sp, m}, nil
}

// Token is the session for the next step of its workflow, at whichever server: text that
// goes into a header or a message. It is ErrCarriesTooMuch if it would be longer than any
// server takes.
func (s *Session[V]) Token() (string, error) {
	limit := s.sp.opt.MaxToken
	if a, ok := s.sp.at.(interface{ Asynchronous() bool }); ok && a.Asynchronous() {
		limit = math.MaxInt // A9: no journal could look a name up
	}
	b := wire.Token(s.m, limit)
	if len(b) > wire.MaxToken {
		return "", fmt.Errorf("%w: %d bytes", ErrCarriesTooMuch, len(b))
	}
	with, err := s.sp.sealers()
	if err != nil {
		return "", err
	}
	return with.sessions.seal(b), nil
}

// Fork returns a session that knows what this one knows, for a step that runs beside it.
func (s *Session[V]) Fork() *Session[V] { return &Session[V]{s.sp, s.m.Fork()} }

// SameSpace reports whether two sessions may be joined.
func (s *Session[V]) SameSpace(o *Session[V]) bool { return s.sp.id == o.sp.id }

// Join takes what another session of the same space knows.
func (s *Session[V]) Join(o *Session[V]) { s.m.Join(o.m) }

// Item is what a session sees of a key.
type Item[V any] struct {
	Value  V
	Exists bool
}

// server finds the server, which must keep what the space merges.
func (sp *Space[V]) server() (*Server, error) {
	server, err := sp.at.Server()
	if err == nil && server.opt.Concurrent != (sp.opt.Merge != nil) {
		return nil, errSetting
	}
	return server, err
}

// recall finds the server, and has what the session knows by name only.
func (s *Session[V]) recall(ctx context.Context) (*Server, error) {
	server, err := s.sp.server()
	if err != nil || len(s.m.Bare) == 0 {
		return server, err
	}
	r, err := server.do(ctx, func(op mesh.Op) mesh.Input { return s.m.Recall(op) })
	if err != nil {
		return nil, err
	}
	s.m.Took(r)
	return server, nil
}

// ask does one operation, and takes its answer.
func (s *Session[V]) ask(ctx context.Context, in func(op mesh.Op) mesh.Input, keys ...string) ([]mesh.Item, error) {
	server, err := s.recall(ctx)
	if err != nil {
		return nil, err
	}
	r, err := server.do(ctx, in)
	if err != nil {
		return nil, err
	}
	return s.m.Took(r, keys...), nil
}

// read is ask for what the store can answer too: at a server that the others have left
// behind, or that cannot tell whether they have, or that has not received yet what one of
// them had acknowledged before it died.
func (s *Session[V]) read(ctx context.Context, in func(op mesh.Op) mesh.Input, keys ...string) ([]mesh.Item, error) {
	items, err := s.ask(ctx, in, keys...)
	if !errors.Is(err, ErrBehind) && !errors.Is(err, ErrExpelled) {
		return items, err
	}
	server, e := s.sp.server()
	if e != nil {
		return nil, e
	}
	if server.Asynchronous() { // the rows are older than what the session has seen
		return nil, err
	}
	if items, e = server.past(ctx, s.m, keys); e != nil {
		return nil, errors.Join(err, e)
	}
	return items, nil
}

// decode is what a session sees of a key. An error of ErrUnlawful comes with the value.
func (sp *Space[V]) decode(key string, it mesh.Item) (out Item[V], err error) {
	switch {
	case sp.opt.Merge != nil:
		return sp.fold(key, it)
	case !it.Exists:
		return out, nil
	}
	if out.Value, err = sp.opt.Codec.Decode(it.Value); err != nil {
		return out, fmt.Errorf("causal: the value of %q cannot be decoded: %w", key, err)
	}
	out.Exists = true
	return out, nil
}

// Get returns the value of key, and whether there is one: the newest that the session may
// know of here, never older than anything it has seen.
func (s *Session[V]) Get(ctx context.Context, key string) (V, bool, error) {
	var none V
	if err := valid(key); err != nil {
		return none, false, err
	}
	items, err := s.read(ctx, func(op mesh.Op) mesh.Input { return s.m.Read(op, key) }, key)
	if err != nil {
		return none, false, err
	}
	it, err := s.sp.decode(key, items[0])
	return it.Value, it.Exists, err
}

func (sp *Space[V]) encode(key string, value V) ([]byte, error) {
	b, err := sp.opt.Codec.Append(nil, value)
	if err != nil {
		return nil, fmt.Errorf("causal: the value of %q cannot be encoded, nothing was written: %w", key, err)
	}
	if sp.opt.MaxValue > 0 && len(b) > sp.opt.MaxValue {
		return nil, fmt.Errorf("%w; nothing was written: the value of %q would have %d bytes, and may have %d", store.ErrTooLarge, key, len(b), sp.opt.MaxValue)
	}
	return b, nil
}

// GetMany returns several keys as of one causal cut: an effect is not there without its
// causes.
func (s *Session[V]) GetMany(ctx context.Context, keys ...string) ([]Item[V], error) {
	if err := valid(keys...); err != nil || len(keys) == 0 {
		return nil, err
	}
	items, err := s.read(ctx, func(op mesh.Op) mesh.Input { return s.m.ReadMany(op, keys...) }, keys...)
	if err != nil {
		return nil, err
	}
	out := make([]Item[V], len(keys))
	for i, it := range items {
		var e error
		if out[i], e = s.sp.decode(keys[i], it); e != nil && !errors.Is(e, ErrUnlawful) {
			return nil, e
		}
		err = errors.Join(err, e)
	}
	return out, err
}

// Set sets key to value. A nil error means that the store has it, or the log, and that the
// session, and whoever it tells, will see it or what replaced it. Where the space has a merge
// function, value is merged with what the session sees: see Update for replacing it.
func (s *Session[V]) Set(ctx context.Context, key string, value V) error {
	if s.sp.opt.Merge != nil {
		return s.join(ctx, key, value)
	}
	b, err := s.sp.encode(key, value)
	if err != nil {
		return err
	}
	return s.put(ctx, mesh.Mut{Key: key, Value: b})
}

// Delete removes key, whether or not it exists. Where the space has a merge function, what
// others write at the same time stays.
func (s *Session[V]) Delete(ctx context.Context, key string) error {
	if s.sp.opt.Merge != nil {
		return s.remove(ctx, key)
	}
	return s.put(ctx, mesh.Mut{Key: key, Delete: true})
}

func (s *Session[V]) put(ctx context.Context, muts ...mesh.Mut) error {
	for _, m := range muts {
		if err := valid(m.Key); err != nil {
			return err
		}
	}
	_, err := s.ask(ctx, func(op mesh.Op) mesh.Input { return s.m.Put(op, muts...) })
	return err
}

// ErrKey means that nothing was done: a key has at least one byte.
var ErrKey = errors.New("causal: a key of 0 bytes; nothing was done")

func valid(keys ...string) error {
	for _, k := range keys {
		if k == "" {
			return ErrKey
		}
	}
	return nil
}
