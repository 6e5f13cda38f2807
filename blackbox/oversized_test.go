package blackbox

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Where writes are acknowledged from logs, a session carries them whole until every node has them. A value that no token
// has room for is written and told of when it needs no more carrying; and when that takes too long, nobody is told that
// nothing was written.
func TestOversizedSessions(t *testing.T) {
	c := &cluster{t: t, pg: postgres(t), dir: t.TempDir()}
	c.args = func(i int) []string {
		args := []string{"--data", filepath.Join(c.dir, fmt.Sprint(i)), "--lease", "20s", "--timeout", "2s", "--space", "feeds=causal,async,db=1"}
		if i > 0 {
			args = append(args, "--coordinator", "freshet://"+c.addrs[0])
		}
		return args
	}
	c.start(3)
	cset(t, c.procs[0].client(0), "small", "v")
	large := strings.Repeat("l", 3<<20)
	ctx := t.Context()
	begin := func(i int) string {
		t.Helper()
		token, err := c.procs[i].client(0).Do(ctx, "FR.BEGIN", "feeds").Text()
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	token := begin(1)
	for i, key := range []string{"large", "larger", "largest"} {
		var err error
		if token, err = c.procs[i].client(0).Do(ctx, "FR.CSET", token, key, large).Text(); err != nil {
			t.Fatalf("a large value: %v", err)
		}
	}
	got, err := c.procs[1].client(0).Do(ctx, "FR.CMGET", token, "large", "larger", "largest").Slice()
	if err != nil || fmt.Sprint(got[1]) != fmt.Sprint([]any{large, large, large}) {
		t.Errorf("large values are read as %.100v, %v", got, err)
	}
	tx, err := c.procs[0].client(0).Do(ctx, "FR.TBEGIN", token).Text()
	for _, key := range []string{"a", "b", "c"} { // the session has no room for what the transaction has
		if err == nil {
			tx, err = c.procs[0].client(0).Do(ctx, "FR.TSET", tx, key, large[:250<<10]).Text()
		}
	}
	if err == nil {
		token, err = c.procs[0].client(0).Do(ctx, "FR.TCOMMIT", tx).Text()
	}
	if err != nil {
		t.Errorf("a large transaction: %v", err)
	}
	c.procs[2].signal(syscall.SIGSTOP) // nothing goes round
	defer c.procs[2].signal(syscall.SIGCONT)
	err = c.procs[0].client(0).Do(ctx, "FR.CSET", token, "stuck", large).Err()
	if err == nil || !strings.HasPrefix(err.Error(), "UNKNOWN") {
		t.Errorf("a large value that nobody else has is answered with %v", err)
	}
	session := c.procs[0].client(0).Conn() // of a database: it need not be told
	defer session.Close()
	set := func(key string) error { return session.Do(ctx, "SET", key, large).Err() }
	if err := errors.Join(session.Do(ctx, "SELECT", 1).Err(), set("kept")); err != nil {
		t.Errorf("a large value in a database: %v", err)
	}
	if err := set("refused"); err == nil || !strings.HasPrefix(err.Error(), "TRYAGAIN") {
		t.Errorf("a session that carries too much writes: %v", err)
	}
	if got, err := session.Do(ctx, "MGET", "kept", "refused").Slice(); err != nil || got[0] != large || got[1] != nil {
		t.Errorf("the session reads %.100v, %v", got, err)
	}
	c.procs[2].signal(syscall.SIGCONT)
	c.procs[0].eventually(func() bool { return cget(t, c.procs[1].client(0), "stuck") == large })
	c.procs[0].eventually(func() bool { return set("taken") == nil })
}
