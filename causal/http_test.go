package causal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/store/memory"
)

// carrying is a write of a value of so many bytes that no server has received.
func carrying(bytes int) []*mesh.Write {
	return []*mesh.Write{{Dot: mesh.Dot{Incarnation: 1, N: 1 << 40}, Stamp: mesh.Stamp{Time: 1, Incarnation: 1}, Muts: []mesh.Mut{{Key: "k", Value: make([]byte, bytes)}}}}
}

// answered is what a handler behind the middleware of a space answers to a request with a token.
func answered(t *testing.T, sp *Space[string], token string, h http.HandlerFunc) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	if token != "" {
		r.Header.Set(Header, token)
	}
	sp.Handler(h).ServeHTTP(w, r)
	return w
}

// Whichever way a handler answers, the header has the session as it was when the header was written, once, and the
// answer has the status and the body that the handler has said.
func TestAnswersTellTheSession(t *testing.T) {
	_, _, sp := alone(t, memory.Options{})
	set := func(r *http.Request, value string) {
		if err := sp.From(r.Context()).Set(r.Context(), "k", value); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		what   string
		do     http.HandlerFunc
		status int
		body   string
	}{
		{"nothing", func(_ http.ResponseWriter, r *http.Request) { set(r, "nothing") }, 200, ""},
		{"a body", func(w http.ResponseWriter, r *http.Request) {
			set(r, "a body")
			fmt.Fprint(w, "one")
			fmt.Fprint(w, " two")
		}, 200, "one two"},
		{"a status", func(w http.ResponseWriter, r *http.Request) { set(r, "a status"); w.WriteHeader(http.StatusCreated) }, 201, ""},
		{"both", func(w http.ResponseWriter, r *http.Request) {
			set(r, "both")
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, "tea")
		}, 418, "tea"},
		{"hints first", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			set(r, "hints first")
			fmt.Fprint(w, "done")
		}, 200, "done"},
		{"flushed", func(w http.ResponseWriter, r *http.Request) {
			set(r, "flushed")
			fmt.Fprint(w, "now")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Errorf("what is beneath is out of reach: %v", err)
			}
		}, 200, "now"},
	} {
		srv := httptest.NewServer(sp.Handler(c.do))
		res, err := http.Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		srv.Close()
		if res.StatusCode != c.status || string(body) != c.body || len(res.Header.Values(Header)) != 1 || err != nil {
			t.Errorf("%s: %d %q with %d tokens, %v", c.what, res.StatusCode, body, len(res.Header.Values(Header)), err)
			continue
		}
		s, err := sp.Resume(res.Header.Get(Header))
		if err != nil {
			t.Fatal(err)
		}
		if s.m.Time == 0 {
			t.Errorf("%s: the session knows nothing of the write", c.what)
		}
		if v, _, err := s.Get(t.Context(), "k"); err != nil || v != c.what {
			t.Errorf("%s: the caller sees %q, %v", c.what, v, err)
		}
	}
	if s := sp.From(t.Context()); s == nil || s.m.Time != 0 {
		t.Errorf("a context without a request has the session %+v", s)
	}
}

// A session that does not fit into a header is not told in part: the answer says that the request was carried out and
// its session cannot be told, and nothing that the handler says comes after that.
func TestAnswersOfSessionsThatCannotBeTold(t *testing.T) {
	c := gather(t, 1, memory.Options{}, (&disks{}).onDisk(t, nil)) // where tokens carry values
	sp := c.spaces[0]
	for what, do := range map[string]http.HandlerFunc{
		"nothing": func(http.ResponseWriter, *http.Request) {},
		"a body": func(w http.ResponseWriter, _ *http.Request) {
			if n, err := w.Write([]byte("it worked")); n != len("it worked") || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		},
		"a status": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, "it worked")
		},
	} {
		w := httptest.NewRecorder()
		ended, cancel := context.WithCancel(t.Context()) // nothing is waited for
		sp.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sp.From(r.Context()).m.Carried = carrying(3 * maxHeader)
			cancel()
			do(w, r)
		})).ServeHTTP(w, httptest.NewRequestWithContext(ended, http.MethodGet, "/", nil))
		body := w.Body.String()
		if w.Code != http.StatusInternalServerError || !strings.Contains(body, "carried out") || strings.Contains(body, "it worked") || w.Header().Get(Header) != "" {
			t.Errorf("%s: %d %q with the token %q", what, w.Code, body, w.Header().Get(Header))
		}
	}
}

// transport answers requests with a function.
type transport func(r *http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// body is one of which it is known whether it was closed.
type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error { b.closed = true; return nil }

// A request takes the session of its context along and nothing else; what cannot be sent, or comes back and is no
// token, is an error, and no body is left open.
func TestRoundTrips(t *testing.T) {
	c := gather(t, 1, memory.Options{}, (&disks{}).onDisk(t, nil))
	sp := c.spaces[0]
	answer, sent := "", 0
	reply, lost := &body{Reader: strings.NewReader("x")}, error(nil)
	var got http.Header
	rt := sp.RoundTripper(transport(func(r *http.Request) (*http.Response, error) {
		sent++
		got = r.Header
		if lost != nil {
			return nil, lost
		}
		res := &http.Response{StatusCode: 200, Header: http.Header{}, Body: reply}
		if answer != "" {
			res.Header.Set(Header, answer)
		}
		return res, nil
	}))
	request := func(ctx context.Context) (*http.Request, *body) {
		b := &body{Reader: strings.NewReader("y")}
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://next/", nil)
		r.Body = b
		return r, b
	}
	r, _ := request(t.Context())
	if _, err := rt.RoundTrip(r); err != nil || got.Get(Header) != "" || sent != 1 {
		t.Errorf("without a session %q is sent, %v", got.Get(Header), err)
	}
	s := sp.Begin()
	r, _ = request(sp.With(t.Context(), s))
	if _, err := rt.RoundTrip(r); err != nil || got.Get(Header) == "" || r.Header.Get(Header) != "" {
		t.Errorf("with a session %q is sent, and the caller's request has %q, %v", got.Get(Header), r.Header.Get(Header), err)
	}
	o := sp.Begin()
	if err := o.Set(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	answer, _ = o.Token()
	if _, err := rt.RoundTrip(r); err != nil || s.m.Time != o.m.Time || s.m.Time == 0 {
		t.Errorf("the session does not know what the answer's knows: %v", err)
	}
	answer = "noise"
	if _, err := rt.RoundTrip(r); !errors.Is(err, ErrToken) || !strings.Contains(err.Error(), "next") || !reply.closed {
		t.Errorf("an answer without a token that can be read: %v; its body is closed: %v", err, reply.closed)
	}
	lost = errors.New("the line is down")
	if _, err := rt.RoundTrip(r); !errors.Is(err, lost) {
		t.Error(err)
	}
	sent = 0
	for size, want := range map[int]error{maxHeader / 2: lost, maxHeader: ErrCarriesTooMuch, 3 << 20: ErrCarriesTooMuch} {
		r, b := request(sp.With(t.Context(), &Session[string]{sp, &mesh.Session{Carried: carrying(size)}}))
		if _, err := rt.RoundTrip(r); !errors.Is(err, want) || b.closed != (want != lost) {
			t.Errorf("a session with %d bytes: %v; its body is closed: %v", size, err, b.closed)
		}
	}
	if sent != 1 {
		t.Errorf("%d requests were sent, and one of the sessions fits", sent)
	}
}

// A request that brings a token of another cluster, or too long a one, is refused, and its handler does not run.
func TestRequestsWithTokensThatAreNotTaken(t *testing.T) {
	_, _, sp := alone(t, memory.Options{})
	other, err := NewSpace(sp.at, SpaceOptions[string]{Codec: sp.opt.Codec, Name: "other", Key: []byte("secret")})
	if err != nil {
		t.Fatal(err)
	}
	token, err := other.Begin().Token()
	if err != nil {
		t.Fatal(err)
	}
	for what, token := range map[string]string{"another cluster's": token, "noise": "noise"} {
		w := answered(t, sp, token, func(http.ResponseWriter, *http.Request) { t.Errorf("%s: the handler runs", what) })
		if w.Code != http.StatusBadRequest || !strings.HasPrefix(w.Body.String(), Header) {
			t.Errorf("%s: %d %s", what, w.Code, w.Body)
		}
	}
}
