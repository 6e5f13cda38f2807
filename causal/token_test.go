package causal

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
	"github.com/freshet-cache/freshet/codec"
	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/store/memory"
)

// A token is taken as it was made, and by nobody else's servers.
func TestTokens(t *testing.T) {
	c, ctx := gather(t, 3, memory.Options{}, nil), t.Context()
	space := func(o SpaceOptions[string]) *Space[string] {
		o.Codec = codec.String()
		sp, err := NewSpace(c.servers[0], o)
		if err != nil {
			t.Fatal(err)
		}
		return sp
	}
	sealed, open := c.spaces[0], space(SpaceOptions[string]{Name: "test"})
	s := sealed.Begin()
	if err := s.Set(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	token, err := s.Token()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sealed.Resume(token); err != nil {
		t.Error(err)
	}
	changed := []byte(token)
	if at := &changed[len(changed)/2]; *at == 'A' {
		*at = 'B'
	} else {
		*at = 'A'
	}
	o := open.Begin()
	if _, _, err := o.Get(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	plain, err := o.Token()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(plain)
	if err != nil {
		t.Fatal(err)
	}
	raw[0] = tokenOpen // as older versions made them
	unsealed := base64.RawURLEncoding.EncodeToString(raw[:len(raw)-macBytes])
	for _, x := range []struct {
		what, token string
		at          *Space[string]
		want        error
	}{
		{"nothing", "", sealed, ErrToken},
		{"noise", "it is none", sealed, ErrToken},
		{"too long", strings.Repeat("A", 3<<20), sealed, ErrToken},
		{"another version", base64.RawURLEncoding.EncodeToString(make([]byte, 40)), sealed, ErrToken},
		{"cut short", token[:len(token)-6], sealed, ErrForged},
		{"all but cut off", token[:20], sealed, ErrToken},
		{"changed", string(changed), sealed, ErrForged},
		{"of no key of ours", plain, sealed, ErrForged},
		{"not authenticated", unsealed, sealed, ErrForged},
		{"not authenticated, where nobody has given a key", unsealed, open, ErrForged},
		{"of a key that was given", token, open, ErrForged},
		{"of another key", token, space(SpaceOptions[string]{Name: "test", Key: []byte("other")}), ErrForged},
		{"of another space", token, space(SpaceOptions[string]{Name: "other", Key: []byte("other")}), ErrOtherSpace},
		{"of another space, where nobody has given a key", plain, space(SpaceOptions[string]{Name: "other"}), ErrOtherSpace},
	} {
		if got, err := x.at.Resume(x.token); !errors.Is(err, x.want) || got != nil {
			t.Errorf("a token that is %s: %v", x.what, err)
		}
	}
	if _, err := space(SpaceOptions[string]{Name: "test"}).Resume(plain); err != nil { // the process has a key
		t.Error(err)
	}
}

// A token of three servers that carries nothing takes less than 200 bytes, and one that
// carries much takes names.
func TestTokensStaySmall(t *testing.T) {
	c := gather(t, 3, memory.Options{}, nil)
	ctx := t.Context()
	for _, sp := range c.spaces {
		for range 300 {
			if err := sp.Begin().Set(ctx, "k", "v"); err != nil {
				t.Fatal(err)
			}
		}
	}
	var s *Session[string]
	testkit.Eventually(t, func() bool {
		s = c.spaces[0].Begin()
		if _, _, err := s.Get(ctx, "k"); err != nil {
			t.Fatal(err)
		}
		token, err := s.Token()
		if err != nil {
			t.Fatal(err)
		}
		return len(s.m.Carried)+len(s.m.Bare) == 0 && len(s.m.Deps.String()) > 10 && len(token) < 200 // with what was shown out of turn it is longer for a while
	})
	for _, srv := range c.servers { // nothing becomes visible any more
		srv.mu.Lock()
		srv.ring = ring{}
		srv.mu.Unlock()
	}
	for i := range 50 {
		if err := s.Set(ctx, fmt.Sprint("k", i), strings.Repeat("v", 100)); err != nil {
			t.Fatal(err)
		}
	}
	token, err := s.Token()
	if err != nil || len(token) > 1000 {
		t.Errorf("%d bytes, %v", len(token), err)
	}
	back, err := c.spaces[0].Resume(token)
	if err != nil {
		t.Fatal(err)
	}
	if v, _, err := back.Get(ctx, "k49"); err != nil || len(v) != 100 {
		t.Errorf("%d bytes, %v", len(v), err)
	}
}

// A workflow of three services over HTTP: each step is at another server, and none
// misses what an earlier one wrote.
func TestHTTP(t *testing.T) {
	c := gather(t, 3, memory.Options{}, nil)
	next := ""
	services := make([]*httptest.Server, 3)
	for i := range services {
		sp := c.spaces[2-i]
		client := &http.Client{Transport: sp.RoundTripper(http.DefaultTransport)}
		after := next
		services[i] = httptest.NewServer(sp.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s := sp.From(r.Context())
			seen, _, err := s.Get(r.Context(), "path")
			if err == nil {
				err = s.Set(r.Context(), "path", seen+fmt.Sprint(2-i))
			}
			if err == nil && after != "" {
				var req *http.Request
				if req, err = http.NewRequestWithContext(r.Context(), http.MethodGet, after, nil); err == nil {
					var res *http.Response
					if res, err = client.Do(req); err == nil {
						err = res.Body.Close()
					}
				}
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			v, _, _ := s.Get(r.Context(), "path")
			fmt.Fprint(w, v)
		})))
		defer services[i].Close()
		next = services[i].URL
	}
	for range 20 {
		s := c.spaces[0].Begin()
		if err := s.Set(t.Context(), "path", ">"); err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: c.spaces[0].RoundTripper(http.DefaultTransport)}
		req, err := http.NewRequestWithContext(c.spaces[0].With(t.Context(), s), http.MethodGet, next, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if string(b) != ">012" { // the last step's write came back with the token
			t.Fatalf("the workflow went %q", b)
		}
		if v, _, err := s.Get(t.Context(), "path"); err != nil || v != ">012" {
			t.Fatalf("the caller sees %q, %v", v, err)
		}
	}
	req, _ := http.NewRequest(http.MethodGet, next, nil)
	req.Header.Set(Header, "nonsense")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if res.StatusCode != http.StatusBadRequest || !strings.Contains(string(b), "not a token") {
		t.Errorf("%d %s", res.StatusCode, b)
	}
}

// Nothing but a token that was made with the key is opened, and whatever is opened can be used.
func FuzzToken(f *testing.F) {
	s, other := newSealer("test", []byte("key")), newSealer("test", []byte("another"))
	f.Add(s.seal([]byte{1, 2, 3}))
	f.Add(s.seal(wire.Token(&mesh.Session{Time: 7}, 0)))
	f.Add(other.seal([]byte{1, 2, 3}))
	f.Add("")
	f.Fuzz(func(t *testing.T, token string) {
		b, err := opened(s.space, token)
		if err != nil {
			return
		}
		body, err := s.open(b)
		if err == nil && s.seal(body) != token {
			t.Errorf("%q is %q as well", token, s.seal(body))
		}
		if _, e := other.open(b); err == nil && e == nil {
			t.Errorf("%q is of two keys", token)
		}
		_, _ = wire.Resume(body)
	})
}
