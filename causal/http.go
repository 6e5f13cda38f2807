package causal

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Header is the name of the header in which tokens travel through a workflow of HTTP requests.
const Header = "Freshet-Session"

// tellTimeout is how long an answer waits until its session's token fits into a header.
const tellTimeout = 2 * time.Second

// maxHeader bounds, in bytes, the token that is put into a header.
const maxHeader = 16 << 10

type contextKey[V any] struct{ sp *Space[V] }

// From returns the session of the request whose context ctx is, or a session that has seen nothing.
func (sp *Space[V]) From(ctx context.Context) *Session[V] {
	if s, ok := ctx.Value(contextKey[V]{sp}).(*Session[V]); ok {
		return s
	}
	return sp.Begin()
}

// With returns a context for which From returns s.
func (sp *Space[V]) With(ctx context.Context, s *Session[V]) context.Context {
	return context.WithValue(ctx, contextKey[V]{sp}, s)
}

// Handler lets h find the session of a request with From. It sends the session's token back when h
// writes the header of its answer. The caller does not hear of what h does after that. A request
// without a token begins a session. A token that is refused is answered with 400 and the reason.
func (sp *Space[V]) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := sp.Begin()
		if token := r.Header.Get(Header); token != "" {
			var err error
			if s, err = sp.Resume(token); err != nil {
				http.Error(w, fmt.Sprintf("%s: %v", Header, err), http.StatusBadRequest)
				return
			}
		}
		tell := &teller[V]{ResponseWriter: w, s: s, ctx: r.Context()}
		h.ServeHTTP(tell, r.WithContext(sp.With(r.Context(), s)))
		tell.tell()
	})
}

// teller puts a session's token into the header of an answer before the header is written.
type teller[V any] struct {
	http.ResponseWriter
	s      *Session[V]
	ctx    context.Context
	told   bool
	failed bool // the answer is an error instead
}

// tell sets the header, once, and reports whether it could.
func (t *teller[V]) tell() bool {
	if t.told {
		return !t.failed
	}
	t.told = true
	ctx, cancel := context.WithTimeout(t.ctx, tellTimeout)
	err := t.s.Shrink(ctx, maxHeader)
	cancel()
	token := ""
	if err == nil {
		token, err = t.s.Token()
	}
	if t.failed = err != nil; t.failed {
		http.Error(t.ResponseWriter, fmt.Sprintf("the request was carried out, and its session cannot be told: %v", err), http.StatusInternalServerError)
		return false
	}
	t.Header().Set(Header, token)
	return true
}

// WriteHeader implements http.ResponseWriter.
func (t *teller[V]) WriteHeader(status int) {
	if status < 200 || t.tell() {
		t.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (t *teller[V]) Write(b []byte) (int, error) {
	if !t.tell() {
		return len(b), nil
	}
	return t.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the wrapped ResponseWriter.
func (t *teller[V]) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// RoundTripper sends the session of a request's context along, and joins it with the session in the
// answer's header. Requests of one session may be made at the same time, but nothing else may use
// the session meanwhile. A session that is too large for a header is an error, and nothing is sent.
func (sp *Space[V]) RoundTripper(rt http.RoundTripper) http.RoundTripper {
	return &carrier[V]{sp: sp, rt: rt}
}

type carrier[V any] struct {
	sp *Space[V]
	rt http.RoundTripper
	mu sync.Mutex // guards the sessions of requests under way
}

// RoundTrip implements http.RoundTripper.
func (c *carrier[V]) RoundTrip(r *http.Request) (*http.Response, error) {
	s, ok := r.Context().Value(contextKey[V]{c.sp}).(*Session[V])
	if !ok {
		return c.rt.RoundTrip(r)
	}
	c.mu.Lock()
	token, err := s.Token()
	c.mu.Unlock()
	if err == nil && len(token) > maxHeader {
		err = fmt.Errorf("%w: %d bytes, and a header has up to %d", ErrCarriesTooMuch, len(token), maxHeader)
	}
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set(Header, token)
	res, err := c.rt.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if token := res.Header.Get(Header); token != "" {
		o, err := c.sp.Resume(token)
		if err != nil {
			res.Body.Close()
			return nil, fmt.Errorf("causal: the answer of %s: %w", r.URL.Host, err)
		}
		c.mu.Lock()
		s.Join(o)
		c.mu.Unlock()
	}
	return res, nil
}
