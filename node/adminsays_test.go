package node

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/internal/testkit"
)

// admin asks a node's admin address, with a password if there is one.
func admin(t *testing.T, p *Process, method, path, password string, form url.Values) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.nodes[0].adminAddr+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if password != "" {
		r.SetBasicAuth("anybody", password)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// Everything of the admin address but whether the node lives and serves asks for the password.
func TestTheAdminAddressAsksForThePassword(t *testing.T) {
	p := start(t, func(c *Config) { c.Password = "secret" })
	for _, c := range []struct {
		method, path string
		open         bool
	}{{"GET", "/healthz", true}, {"GET", "/readyz", true}, {"GET", "/api/state", false}, {"GET", "/api/v1/health", false}, {"GET", "/metrics", false}, {"GET", "/debug/pprof/", false}, {"POST", "/api/v1/log", false}, {"POST", "/api/causal/give-up", false}, {"POST", "/api/drain", false}} {
		for password, want := range map[string]bool{"": c.open, "wrong": c.open, "secre": c.open, "secret": true} {
			if c.path == "/api/drain" && want {
				continue // it would
			}
			status, body := admin(t, p, c.method, c.path, password, url.Values{})
			if (status != http.StatusUnauthorized) != want {
				t.Errorf("%s %s with the password %q: %d %.80s", c.method, c.path, password, status, body)
			}
		}
	}
}

// The admin address says how the node is, and changes how it writes its log; what cannot be done is said and changes
// nothing.
func TestTheAdminAddress(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes = 2 })
	listen, _ := p.Addr(0)
	c := dial(t, listen)
	testkit.True(t, "every slice takes writes", func() bool { return p.Health().Status == "SAFE" })
	for _, x := range []struct {
		method, path string
		form         url.Values
		status       int
		says         string
	}{
		{"GET", "/healthz", nil, 200, "ok"},
		{"GET", "/readyz", nil, 200, "ready"},
		{"GET", "/api/v1/health", nil, 200, `"SAFE"`},
		{"GET", "/metrics", nil, 200, "freshet_"},
		{"GET", "/nothing", nil, 404, ""},
		{"POST", "/api/v1/log", url.Values{"log-level": {"debug"}}, 200, "log-level debug"},
		{"POST", "/api/v1/log", url.Values{"log-level": {"loud"}}, 400, "loud"},
		{"POST", "/api/v1/log", url.Values{}, 200, "log-level debug"},
		{"POST", "/api/causal/give-up", url.Values{"space": {"none"}, "incarnation": {"1"}}, 400, "name a causal space with async"},
		{"GET", "/api/drain", nil, 405, ""},
		{"GET", "/api/state", nil, 200, `"nodes"`},
	} {
		if status, body := admin(t, p, x.method, x.path, "", x.form); status != x.status || !strings.Contains(body, x.says) {
			t.Errorf("%s %s %v: %d %.200s", x.method, x.path, x.form, status, body)
		}
	}
	c.says([][2]string{{"config get log-level", "[log-level debug]"}, {"config set log-level error", "OK"}, {"config get log-level", "[log-level error]"}, {"config set log-level", "-ERR wrong number..."}, {"config set maxmemory 5", "-ERR CONFIG SET: maxmemory cannot be changed..."},
		{"config what x", "-ERR..."}, {"config get", "-ERR..."}, {"config get databases save", "[..."}})
	var state struct {
		Nodes []struct{ ID string }
	}
	_, body := admin(t, p, "GET", "/api/state", "", nil)
	if err := json.Unmarshal([]byte(body), &state); err != nil || len(state.Nodes) != 2 {
		t.Errorf("%v: %.300s", err, body)
	}
	if r := c.do("fr.state"); r.Kind != '$' || !json.Valid([]byte(r.Text)) {
		t.Error(r)
	}
	if status, body := admin(t, p, "POST", "/api/drain", "", nil); status != 200 || body != "drained\n" {
		t.Errorf("%d %s", status, body)
	}
	if status, body := admin(t, p, "GET", "/readyz", "", nil); status != 503 || !strings.Contains(body, "draining") {
		t.Errorf("a node that drains: %d %s", status, body)
	}
	if r := c.do("fr.undrain"); r.Text != "OK" {
		t.Error(r)
	}
	if status, _ := admin(t, p, "GET", "/healthz", "", nil); status != 200 {
		t.Error(status)
	}
}

// FR.EXPLAIN says where a key is and what the store has of it.
func TestExplain(t *testing.T) {
	p := start(t, nil)
	listen, _ := p.Addr(0)
	c := dial(t, listen)
	explained := func(key string) map[string]string {
		t.Helper()
		r, out := c.do("fr.explain", key), map[string]string{}
		for i := 0; i+1 < len(r.Elems); i += 2 {
			out[r.Elems[i].Text] = r.Elems[i+1].Text
		}
		return out
	}
	if e := explained("k"); e["store-exists"] != "no" || e["owned-here"] != "yes" || e["cached-here"] != "no" || e["address"] != listen || e["owner"] != e["this-node"] {
		t.Errorf("%v", e)
	}
	c.do("set", "k", "v", "ex", "1000")
	c.do("get", "k")
	e := explained("k")
	if e["store-exists"] != "yes" || e["cached-here"] != "yes" || e["cached-version"] != e["store-version"] || e["store-version"] == "0" || e["store-ttl"] == "0s" || e["age"] == "" {
		t.Errorf("%v", e)
	}
}

// A command with a token that is not taken writes nothing: neither for the session that it forges, nor in a transaction.
func TestAWriteWithABadTokenWritesNothing(t *testing.T) {
	_, all := causalNodes(t, 1)
	c := all[0]
	s := token(t, c.do("FR.BEGIN", "feeds"))
	s = token(t, c.do("FR.CSET", s, "k", "v"))
	tx := token(t, c.do("FR.TBEGIN", s))
	other := token(t, c.do("FR.BEGIN", "walls"))
	otherTx := token(t, c.do("FR.TBEGIN", other))
	forged := []byte(s)
	forged[len(forged)-5] ^= 1
	for what, bad := range map[string]string{"forged": string(forged), "none": "", "noise": "noise", "cut short": s[:len(s)-4], "of a transaction": tx} {
		for _, args := range [][]string{{"FR.CSET", bad, "k", "w"}, {"FR.CSET", bad, "k", "w", "REPLACE"}, {"FR.CDEL", bad, "k"}, {"FR.TBEGIN", bad}, {"FR.CGET", bad, "k"}, {"FR.CMGET", bad, "k"}, {"FR.CJOIN", s, bad}, {"FR.CJOIN", bad, s}, {"FR.CJOIN", s, s, bad}} {
			if r := c.do(args...); r.Kind != '-' || !strings.HasPrefix(r.Text, "BADTOKEN ") {
				t.Errorf("a token that is %s: %s: %v", what, args[0], r)
			}
		}
	}
	for what, bad := range map[string]string{"of a session": s, "noise": "noise", "none": ""} {
		for _, args := range [][]string{{"FR.TSET", bad, "k", "w"}, {"FR.TDEL", bad, "k"}, {"FR.TMGET", bad, "k"}, {"FR.TFORK", bad}, {"FR.TCOMMIT", bad}, {"FR.TJOIN", tx, bad}, {"FR.TJOIN", bad, tx}} {
			if r := c.do(args...); r.Kind != '-' || !strings.HasPrefix(r.Text, "BADTOKEN ") {
				t.Errorf("a token that is %s: %s: %v", what, args[0], r)
			}
		}
	}
	for want, args := range map[string][]string{"BADTOKEN": {"FR.CJOIN", s, other}, "ERR causal: not a branch": {"FR.TJOIN", tx, otherTx}, "ERR a key of 0 bytes": {"FR.CMGET", s, "k", ""}, "ERR after the value there may be REPLACE": {"FR.TSET", tx, "k", "w", "KEEP"}} {
		if r := c.do(args...); r.Kind != '-' || !strings.HasPrefix(r.Text, want) {
			t.Errorf("%s: %v, want %s", args[0], r, want)
		}
	}
	if r := c.do("FR.CGET", s, "k"); r.Elems[1].Text != "v" {
		t.Errorf("k is %v", r)
	}
	if r := c.do("FR.CGET", token(t, c.do("FR.TCOMMIT", tx)), "k"); r.Elems[1].Text != "v" {
		t.Errorf("k is %v in a transaction that was to write nothing", r)
	}
}

// A second space of a name or of a number is refused, and one of neither is not: also when both are told in YAML or in
// several flags.
func TestNamesAndNumbersOfSpacesAreTheirOwn(t *testing.T) {
	for text, want := range map[string]string{
		"a=causal;b=causal":                      "",
		"a=causal;b=causal;a=causal,db=4":        "names a twice",
		"a=causal,db=1;b=causal,db=1023":         "",
		"a=causal,db=1;b=causal;c=causal,db=1":   "--space c: a has db=1 already",
		"a=causal;b=causal;c=causal,merge=union": "",
	} {
		c := Defaults()
		c.Store = "memory:"
		for one := range strings.SplitSeq(text, ";") {
			if err := c.Spaces.Append(one); err != nil {
				t.Fatal(err)
			}
		}
		switch err := c.Check(); {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v", text, err)
		}
		var again Spaces
		if err := again.Replace(c.Spaces.GetSlice()); err != nil || fmt.Sprint(again) != fmt.Sprint(c.Spaces) {
			t.Errorf("%s becomes %v, %v", text, again, err)
		}
	}
	bad := Spaces{{Name: "was"}}
	if err := bad.Replace([]string{"no space"}); err == nil || len(bad) != 0 {
		t.Errorf("%v, %v", bad, err)
	}
	if err := bad.Set(" ; "); err != nil || len(bad) != 0 {
		t.Errorf("%v, %v", bad, err)
	}
}
