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

// SpaceOptions configures a Space. Codec is required.
type SpaceOptions[V any] struct {
	Codec codec.Codec[V]
	// Name distinguishes the tokens of this space from those of others. It has, for example, the
	// names of the cluster and the space. All servers of a ring must have the same.
	Name string
	// Key authenticates tokens: without it nobody can make or change a token. All processes whose
	// servers accept each other's tokens must have the same. Default: the key of the Ring, which
	// all its processes have from the leader; for a Server without a Ring, a key that this process
	// has drawn.
	Key []byte
	// Merge makes one value of two siblings. It must not modify them, and must be commutative,
	// associative and idempotent: see CheckMerge. The servers must then keep siblings: set
	// Options.Concurrent. Default: the larger stamp wins, and the other write is lost.
	Merge func(a, b V) V
	// MaxValue bounds an encoded value in bytes, merged values included. A larger value is refused
	// with store.ErrTooLarge. Default: what the store accepts.
	MaxValue int
	// MaxToken is the size in bytes up to which a token carries values. A larger token carries
	// names, which the next server looks up in the journal. Default 2 KiB. In an asynchronous space
	// a token always carries values.
	MaxToken int
}

// Servers gives a Space its server, and the key of its tokens: a Server itself, or a Ring.
type Servers interface {
	Server() (*Server, error)
	TokenKey() ([]byte, error)
}

// Server implements Servers.
func (s *Server) Server() (*Server, error) { return s, nil }

// Space has the typed keys that sessions read and write through one server. It is safe for
// concurrent use.
type Space[V any] struct {
	at     Servers
	opt    SpaceOptions[V]
	id     [8]byte // of the space, in tokens of sessions
	txs    [8]byte // of the space, in tokens of transactions
	sealed atomic.Pointer[sealers]
	folds  folds
}

// NewSpace returns a space at a server, or at the server of a ring. The space never closes the
// server.
func NewSpace[V any](at Servers, opt SpaceOptions[V]) (*Space[V], error) {
	if opt.Codec == nil {
		return nil, errors.New("causal: SpaceOptions.Codec is nil; use codec.Bytes, codec.String or codec.JSON")
	}
	if opt.MaxToken <= 0 {
		opt.MaxToken = 2 << 10
	}
	return &Space[V]{at: at, opt: opt, id: spaceID(opt.Name), txs: spaceID(txsOf(opt.Name))}, nil
}

// Session is what a workflow has seen and written. A session is not safe for concurrent use: fork
// it for steps that run at the same time.
type Session[V any] struct {
	sp *Space[V]
	m  *mesh.Session
}

// Begin returns a session that has seen nothing.
func (sp *Space[V]) Begin() *Session[V] { return &Session[V]{sp, &mesh.Session{}} }

// Resume returns the session that a token encodes. The error says why a token is refused: ErrToken,
// ErrForged or ErrOtherSpace. It is ErrJoining if the ring's key is not known yet.
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

// Token returns the session as text for a header or a message. The next step of the workflow
// resumes it at any server. It returns ErrCarriesTooMuch if the token would be longer than servers
// accept.
func (s *Session[V]) Token() (string, error) {
	limit := s.sp.opt.MaxToken
	if a, ok := s.sp.at.(interface{ Asynchronous() bool }); ok && a.Asynchronous() {
		limit = math.MaxInt // A9: no journal has the writes, so names would be of no use
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

// Fork returns a session that has seen what this one has seen, for a step that runs at the same
// time.
func (s *Session[V]) Fork() *Session[V] { return &Session[V]{s.sp, s.m.Fork()} }

// SameSpace reports whether two sessions may be joined.
func (s *Session[V]) SameSpace(o *Session[V]) bool { return s.sp.id == o.sp.id }

// Join adds what another session of the same space has seen.
func (s *Session[V]) Join(o *Session[V]) { s.m.Join(o.m) }

// Item is what a session sees of a key.
type Item[V any] struct {
	Value  V
	Exists bool
}

// server returns the server, which must keep siblings if the space has a merge function, and
// otherwise not.
func (sp *Space[V]) server() (*Server, error) {
	server, err := sp.at.Server()
	if err == nil && server.opt.Concurrent != (sp.opt.Merge != nil) {
		return nil, errSetting
	}
	return server, err
}

// recall returns the server, after it has asked the server for the writes that the session knows by
// name only.
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

// ask carries out one operation, and lets the session take the answer.
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

// read is ask, but reads from the store if the server cannot answer. A server cannot answer if it
// has departed, if it cannot tell whether it has, or if it has not received a write that another
// server acknowledged.
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

// decode returns what a session sees of a key. The error ErrUnlawful comes with the value.
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

// Get returns the value of key, and whether there is one. The value is the newest that this server
// may show to the session, and never older than anything that the session has seen.
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

// GetMany returns several keys as of one causal cut: no effect comes without its causes.
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

// Set sets key to value. After a nil error the store, or the log, has the write. This session, and
// every session that learns of it, sees the write or what replaced it. In a space with a merge
// function, value is merged with what the session sees: to replace that, use Update.
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

// Delete removes key, whether or not it exists. In a space with a merge function, writes that other
// clients make at the same time stay.
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

// ErrKey means that nothing was done: a key must have at least one byte.
var ErrKey = errors.New("causal: a key of 0 bytes; nothing was done")

func valid(keys ...string) error {
	for _, k := range keys {
		if k == "" {
			return ErrKey
		}
	}
	return nil
}
