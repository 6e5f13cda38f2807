package causal

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"sync"

	"github.com/freshet-cache/freshet/causal/wire"
)

// Errors of tokens that are refused. Nothing was done.
var (
	// ErrToken means that the text is no token, or was cut short.
	ErrToken = errors.New("causal: not a token, or cut short; begin a session, or pass tokens on as they are")
	// ErrForged means that the token was not made by servers with the same key, or was changed.
	ErrForged = errors.New("causal: the token is not authentic; it was made with another key or by an older freshet without one, or changed on its way: begin a session")
	// ErrOtherSpace means that the token belongs to another cluster or space.
	ErrOtherSpace = errors.New("causal: the token belongs to another cluster or space; begin a session here")
	// ErrCarriesTooMuch means that the session carries too many writes that some server has not
	// received.
	ErrCarriesTooMuch = errors.New("causal: the session carries too much for a token; read something first, after which it carries only what some node lacks, or split the workflow")
)

// sealer authenticates the tokens of a space with a key.
type sealer struct {
	space [8]byte
	macs  *sync.Pool // of hash.Hash that have the key
}

// The first byte of a token. Older versions of freshet made unauthenticated tokens if no key was
// given.
const (
	tokenOpen   byte = 1
	tokenSealed byte = 2 // ends with an authentication code
	macBytes         = 16
)

func spaceID(space string) (id [8]byte) {
	sum := sha256.Sum256([]byte("freshet causal space " + space))
	copy(id[:], sum[:])
	return id
}

func newSealer(space string, key []byte) sealer {
	k := sha256.Sum256(append([]byte("freshet causal token "), key...))
	return sealer{spaceID(space), &sync.Pool{New: func() any { return hmac.New(sha256.New, k[:]) }}}
}

// newKey draws a random key.
func newKey() []byte {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails
	return key
}

// processKey authenticates, in this process, the tokens of servers without a Ring.
var processKey = sync.OnceValue(newKey)

// TokenKey returns the key that authenticates the tokens of spaces without a key of their own. This
// process has drawn it, so other processes refuse the tokens.
func (s *Server) TokenKey() ([]byte, error) { return processKey(), nil }

// appendMac appends the authentication code of b to a.
func (s sealer) appendMac(a, b []byte) []byte {
	m := s.macs.Get().(hash.Hash)
	m.Reset()
	_, _ = m.Write(b)
	a = m.Sum(a)
	s.macs.Put(m)
	return a[:len(a)-sha256.Size+macBytes]
}

func (s sealer) seal(payload []byte) string {
	b := append(make([]byte, 0, 1+len(s.space)+len(payload)+sha256.Size), tokenSealed)
	b = append(append(b, s.space[:]...), payload...)
	return base64.RawURLEncoding.EncodeToString(s.appendMac(b, b))
}

// opened decodes a token of the space. It does not know yet whether the token is authentic.
func opened(space [8]byte, token string) ([]byte, error) {
	if len(token) > 2*wire.MaxToken {
		return nil, fmt.Errorf("%w: it has %d bytes", ErrToken, len(token))
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	switch {
	case err != nil || len(b) < 1+len(space) || b[0] != tokenOpen && b[0] != tokenSealed:
		return nil, ErrToken
	case string(b[1:1+len(space)]) != string(space[:]):
		return nil, ErrOtherSpace
	case b[0] == tokenOpen:
		return nil, ErrForged
	case len(b) < 1+len(space)+macBytes:
		return nil, ErrToken
	}
	return b, nil
}

// open returns the payload of what opened has returned, if the token is authentic.
func (s sealer) open(b []byte) ([]byte, error) {
	body, code := b[:len(b)-macBytes], b[len(b)-macBytes:]
	if !hmac.Equal(s.appendMac(make([]byte, 0, sha256.Size), body), code) {
		return nil, ErrForged
	}
	return body[1+len(s.space):], nil
}

// sealers are the two of a space. A token of a transaction is not accepted as one of a session, nor
// the reverse.
type sealers struct {
	key           []byte
	sessions, txs sealer
}

func newSealers(name string, key []byte) *sealers {
	return &sealers{key, newSealer(name, key), newSealer(txsOf(name), key)}
}

// txsOf returns the name under which the transactions of a space have their tokens.
func txsOf(name string) string { return name + " transactions" }

// sealers returns the sealers with the current key.
func (sp *Space[V]) sealers() (*sealers, error) {
	key := sp.opt.Key
	if len(key) == 0 {
		var err error
		if key, err = sp.at.TokenKey(); err != nil {
			return nil, err
		}
	}
	if has := sp.sealed.Load(); has != nil && bytes.Equal(has.key, key) {
		return has, nil
	}
	s := newSealers(sp.opt.Name, key)
	sp.sealed.Store(s)
	return s, nil
}
