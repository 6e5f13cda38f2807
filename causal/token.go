package causal

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"sync"

	"github.com/freshet-cache/freshet/causal/wire"
)

// Why a token was not taken. Nothing was done.
var (
	// ErrToken means that it is none, or was cut short.
	ErrToken = errors.New("causal: not a token, or cut short; begin a session, or pass tokens on as they are")
	// ErrForged means that it was not made by this cluster's servers, or was changed.
	ErrForged = errors.New("causal: the token is not authentic; it was made with another key, or changed on its way")
	// ErrOtherSpace means that it is of another cluster or space.
	ErrOtherSpace = errors.New("causal: the token belongs to another cluster or space; begin a session here")
	// ErrCarriesTooMuch means that the session knows too many writes that have not been
	// everywhere.
	ErrCarriesTooMuch = errors.New("causal: the session carries too much for a token; read something first, which lets go of what has been everywhere, or split the workflow")
)

// sealer makes text of sessions, and back.
type sealer struct {
	space [8]byte
	macs  *sync.Pool // of hash.Hash, which begin with the key; nil if there is none
}

const (
	tokenOpen   byte = 1 // a token's first byte: not authenticated
	tokenSealed byte = 2 // it ends with a code
	macBytes         = 16
)

func newSealer(space string, key []byte) (s sealer) {
	sum := sha256.Sum256([]byte("freshet causal space " + space))
	copy(s.space[:], sum[:])
	if len(key) > 0 {
		k := sha256.Sum256(append([]byte("freshet causal token "), key...))
		s.macs = &sync.Pool{New: func() any { return hmac.New(sha256.New, k[:]) }}
	}
	return s
}

// appendMac appends the code of b to a.
func (s sealer) appendMac(a, b []byte) []byte {
	m := s.macs.Get().(hash.Hash)
	m.Reset()
	_, _ = m.Write(b)
	a = m.Sum(a)
	s.macs.Put(m)
	return a[:len(a)-sha256.Size+macBytes]
}

func (s sealer) seal(payload []byte) string {
	kind := tokenOpen
	if s.macs != nil {
		kind = tokenSealed
	}
	b := append(make([]byte, 0, 1+len(s.space)+len(payload)+sha256.Size), kind)
	b = append(append(b, s.space[:]...), payload...)
	if s.macs != nil {
		b = s.appendMac(b, b)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func (s sealer) open(token string) ([]byte, error) {
	if len(token) > 2*wire.MaxToken {
		return nil, fmt.Errorf("%w: it has %d bytes", ErrToken, len(token))
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) < 1+len(s.space) || b[0] != tokenOpen && b[0] != tokenSealed {
		return nil, ErrToken
	}
	sealed := b[0] == tokenSealed
	switch {
	case s.macs != nil && !sealed:
		return nil, ErrForged
	case sealed && len(b) < 1+len(s.space)+macBytes:
		return nil, ErrToken
	}
	if sealed {
		body, code := b[:len(b)-macBytes], b[len(b)-macBytes:]
		if s.macs != nil && !hmac.Equal(s.appendMac(make([]byte, 0, sha256.Size), body), code) {
			if string(body[1:1+len(s.space)]) != string(s.space[:]) {
				return nil, ErrOtherSpace
			}
			return nil, ErrForged
		}
		b = body
	}
	if string(b[1:1+len(s.space)]) != string(s.space[:]) {
		return nil, ErrOtherSpace
	}
	return b[1+len(s.space):], nil
}
