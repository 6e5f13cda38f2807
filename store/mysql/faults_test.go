package mysql

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/internal/mariadbserver"
	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/storetest"
)

// The fence holds while connections are killed under it, in the middle of writes and
// of guards.
func TestFenceOverKilledConnections(t *testing.T) {
	url := fresh(t, Migration{})
	s := open(t, Options{URL: url})
	db := admin(t, url)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	kills := 0
	wg.Go(func() {
		for ctx.Err() == nil {
			var id int64
			err := db.QueryRowContext(ctx, `SELECT ID FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND ID <> CONNECTION_ID()
				AND COMMAND = 'Query' ORDER BY RAND() LIMIT 1`).Scan(&id)
			if err != nil {
				continue
			}
			if _, err := db.ExecContext(ctx, fmt.Sprintf("KILL %d", id)); err == nil {
				kills++
			}
		}
	})
	err := storetest.Fence{Rounds: 400, Faults: true}.Holds(t.Context(), s)
	stop()
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if kills < 50 {
		t.Errorf("only %d connections were killed", kills)
	}
}

// A crash of the server loses no write that was acknowledged; an owner goes on by
// itself.
func TestServerCrash(t *testing.T) {
	start(t) // or skip
	server, err := mariadbserver.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	url := server.URL("admin", "app")
	if err := Migrate(t.Context(), url, Migration{}); err != nil {
		t.Fatal(err)
	}
	s := open(t, Options{URL: url})
	cache, err := linear.New(linear.Options[string]{Store: s, Codec: linear.String(), Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cache.Close(context.Background()) }()
	acked, tried := make([]int, 8), make([]int, 8)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for w := range acked {
		wg.Go(func() {
			for i := 1; ctx.Err() == nil; i++ {
				tried[w] = i
				if cache.Set(t.Context(), fmt.Sprint("k", w), fmt.Sprint(i)) == nil {
					acked[w] = i
				}
				if v, ok, err := cache.Get(t.Context(), fmt.Sprint("k", w)); err == nil {
					n := 0
					_, _ = fmt.Sscan(v, &n)
					if n < acked[w] || n > tried[w] || !ok && acked[w] > 0 {
						t.Errorf("k%d is %q after %d was acknowledged", w, v, acked[w])
					}
				}
			}
		})
	}
	for range 3 {
		server.Crash()
		if err := server.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		again, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		for cache.Set(again, "after", "v") != nil && again.Err() == nil {
		}
		if again.Err() != nil {
			t.Error("no write succeeded after the crash")
		}
		cancel()
	}
	stop()
	wg.Wait()
	for w := range acked {
		r, err := s.Load(t.Context(), fmt.Sprint("k", w))
		n := 0
		_, _ = fmt.Sscan(string(r.Value), &n)
		if err != nil || n < acked[w] || acked[w] == 0 {
			t.Errorf("k%d is %q, %v: %d was acknowledged", w, r.Value, err, acked[w])
		}
	}
}

// proxy passes a server's connections on, and cuts those on which a statement is sent,
// when the server has answered it, before the answer arrives.
type proxy struct {
	net.Listener
	to  string
	cut atomic.Pointer[string] // what the statement contains
	n   atomic.Int64           // statements cut
}

func (p *proxy) serve() {
	for {
		client, err := p.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		var doomed atomic.Bool
		go func() {
			defer server.Close()
			b := make([]byte, 64<<10)
			for {
				n, err := client.Read(b)
				if what := p.cut.Load(); what != nil && bytes.Contains(b[:n], []byte(*what)) {
					doomed.Store(true)
					p.n.Add(1)
				}
				if _, err2 := server.Write(b[:n]); err != nil || err2 != nil {
					return
				}
			}
		}()
		go func() {
			defer client.Close()
			b := make([]byte, 64<<10)
			for {
				n, err := server.Read(b)
				if err != nil || doomed.Load() {
					return
				}
				if _, err := client.Write(b[:n]); err != nil {
					return
				}
			}
		}()
	}
}

// What may have been done is not sent again: neither by the driver, nor by
// database/sql, nor by the store. The caller hears that nobody knows.
func TestNothingIsSentTwice(t *testing.T) {
	url := fresh(t, Migration{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := &proxy{Listener: l, to: start(t).Addr()}
	go p.serve()
	direct := open(t, Options{URL: url})
	s := open(t, Options{URL: strings.Replace(url, p.to, l.Addr().String(), 1)})
	checked := put("k", "v", store.Token{})
	for i, c := range []struct {
		cut string
		do  func() error
	}{
		{"INSERT INTO freshet_rows", func() error { _, err := s.Commit(t.Context(), store.ID{1}, put("k", "v", store.Token{})); return err }},
		{"\x03COMMIT", func() error { _, err := s.Commit(t.Context(), store.ID{2}, checked); return err }},
		{"\x03COMMIT", func() error { return s.SetGuard(t.Context(), "a", "b", token(7)) }},
	} {
		if i == 0 { // where the guard begins must be known: the first statement finds out
			if _, err := s.Commit(t.Context(), store.ID{9}, put("other", "v", store.Token{})); err != nil {
				t.Fatal(err)
			}
		}
		before, err := direct.Load(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		checked[0].Check, checked[0].Expect = true, before.Version
		p.n.Store(0)
		p.cut.Store(&c.cut)
		err = c.do()
		p.cut.Store(nil)
		if err == nil || store.Definite(err) || p.n.Load() != 1 {
			t.Errorf("%d: sent %d times, %v", i, p.n.Load(), err)
		}
		after, err := direct.Load(t.Context(), "k")
		if err != nil || i < 2 && (!after.Exists || after.Writer != store.ID{byte(i + 1)} || i > 0 && after.Version != before.Version+2) {
			t.Errorf("%d: %+v became %+v, %v", i, before, after, err)
		}
	}
	if r, err := direct.Load(t.Context(), "a"); err != nil || r.Guard != token(7) {
		t.Errorf("the guard that was not answered is %v, %v", r.Guard, err)
	}
	// What was cut before anything lasting was sent is definite.
	statement := "LOCK IN SHARE MODE"
	p.cut.Store(&statement)
	checked[0].Expect = 0
	if _, err := s.Commit(t.Context(), store.ID{3}, checked); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a transaction that never came to its end: %v", err)
	}
	p.cut.Store(nil)
	// A connection that has died in the pool costs nothing.
	for range 3 {
		kill(t, url)
		if _, err := s.Commit(t.Context(), store.ID{4}, put("k", "v", store.Token{})); err != nil && !store.Definite(err) && !errors.Is(err, io.EOF) {
			t.Logf("killed as it was sent: %v", err)
		}
	}
	if _, err := s.Commit(t.Context(), store.ID{5}, put("k", "v", store.Token{})); err != nil {
		t.Error(err)
	}
}

// kill ends every connection to a database.
func kill(t *testing.T, url string) {
	t.Helper()
	db := admin(t, url)
	rows, err := db.QueryContext(t.Context(), "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND ID <> CONNECTION_ID()")
	if err != nil {
		t.Fatal(err)
	}
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		_, _ = db.ExecContext(t.Context(), fmt.Sprintf("KILL %d", id))
	}
}

// The guards always cover all keys once, whatever ranges they were set over, and
// stand where they were set last.
func TestGuardsCoverAllKeys(t *testing.T) {
	s := open(t, Options{URL: fresh(t, Migration{})})
	r := rand.New(rand.NewPCG(7, 7))
	stands := map[string]store.Token{}
	keys := strings.Split("a b c d e f g h", " ")
	for n := range uint64(300) {
		low, high := "", ""
		if i := r.IntN(len(keys) + 1); i < len(keys) {
			low = keys[i]
		}
		if j := r.IntN(len(keys) + 1); j < len(keys) && keys[j] > low {
			high = keys[j]
		}
		if r.IntN(3) == 0 && low != "" {
			high = low + "\x00"
		}
		if err := s.SetGuard(t.Context(), low, high, token(n+1)); err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			if k >= low && (high == "" || k < high) {
				stands[k] = token(n + 1)
			}
			if row, err := s.Load(t.Context(), k); err != nil || row.Guard != stands[k] {
				t.Fatalf("after %d: the guard over %s is %v, %v, want %v", n, k, row.Guard, err, stands[k])
			}
		}
		k := keys[r.IntN(len(keys))]
		if _, err := s.Commit(t.Context(), store.ID{1}, put(k, "v", stands[k])); err != nil {
			t.Fatalf("after %d: a write under the guard over %s: %v", n, k, err)
		}
		if err := covered(t.Context(), s); err != nil {
			t.Fatalf("after %d: %v", n, err)
		}
	}
	var wg sync.WaitGroup
	for w := range 6 { // and by several at once
		wg.Go(func() {
			r := rand.New(rand.NewPCG(8, uint64(w)))
			for n := range uint64(40) {
				i := r.IntN(len(keys) - 1)
				low, high := keys[i], keys[i+1+r.IntN(len(keys)-1-i)]
				if err := s.SetGuard(t.Context(), low, high, token(1000*uint64(w)+n)); err != nil {
					if !errors.Is(err, store.ErrUnavailable) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	wg.Wait()
	if err := covered(t.Context(), s); err != nil {
		t.Fatalf("after several at once: %v", err)
	}
}

// A guard over a part of what another covers waits for the writes under the other, and
// ends what they may do there.
func TestPartOfAGuardIsFenced(t *testing.T) {
	url := fresh(t, Migration{})
	s := open(t, Options{URL: url, Timeout: 300 * time.Millisecond})
	tx, err := admin(t, url).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "SELECT * FROM freshet_guards WHERE low = '' LOCK IN SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	if err := s.SetGuard(t.Context(), "m", "n", token(1)); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a guard over a part of one that a write has checked: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Options{URL: url})
	if err := (storetest.Fence{Rounds: 80}).Holds(t.Context(), &parts{Store: s}); err != nil {
		t.Fatal(err)
	}
}

// parts installs every other guard over everything in pieces, which it cuts from the
// end of the one that stands.
type parts struct {
	*Store
	rounds int
	pieces [][2]string
}

// Splits pretends to boundaries every other time.
func (p *parts) Splits(context.Context, string, string) ([]string, error) {
	if p.rounds++; p.rounds%2 == 0 {
		return nil, nil
	}
	return []string{"a", "b", "m", "m\x00", "n", "z"}, nil
}

// SetGuard gathers the pieces, and begins with the last.
func (p *parts) SetGuard(ctx context.Context, low, high string, token store.Token) error {
	p.pieces = append(p.pieces, [2]string{low, high})
	if high != "" {
		return nil
	}
	for _, piece := range slices.Backward(p.pieces) {
		if err := p.Store.SetGuard(ctx, piece[0], piece[1], token); err != nil {
			return err
		}
	}
	p.pieces = nil
	return nil
}

func covered(ctx context.Context, s *Store) error {
	rows, err := s.db.QueryContext(ctx, "SELECT low, high FROM freshet_guards ORDER BY low")
	if err != nil {
		return err
	}
	defer rows.Close()
	end, n := "", 0
	for rows.Next() {
		var low, high []byte
		if err := rows.Scan(&low, &high); err != nil {
			return err
		}
		if string(low) != end || n > 0 && end == "" {
			return fmt.Errorf("a guard begins at %q where the last ended at %q", low, end)
		}
		end, n = string(high), n+1
	}
	if n == 0 || end != "" {
		return fmt.Errorf("%d guards end at %q", n, end)
	}
	return rows.Err()
}

// A version is not drawn from the floor while the sweeper raises it.
func TestVersionsWaitForTheFloor(t *testing.T) {
	url := fresh(t, Migration{})
	s := open(t, Options{URL: url, Timeout: 300 * time.Millisecond})
	tx, err := admin(t, url).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "UPDATE freshet_meta SET floor = base + 1001"); err != nil {
		t.Fatal(err)
	}
	checked := put("k", "v", store.Token{})
	checked[0].Check = true
	for _, muts := range [][]store.Mutation{put("l", "v", store.Token{}), checked} {
		if _, err := s.Commit(t.Context(), store.ID{1}, muts); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("a version was drawn from a floor that rises: %v", err)
		}
	}
	var floor int64
	if err := errors.Join(tx.QueryRowContext(t.Context(), "SELECT floor FROM freshet_meta").Scan(&floor), tx.Commit()); err != nil {
		t.Fatal(err)
	}
	for _, muts := range [][]store.Mutation{put("l", "v", store.Token{}), checked} {
		if stamps, err := s.Commit(t.Context(), store.ID{1}, muts); err != nil || stamps[0].Version <= store.Version(floor) || stamps[0].Version%2 != 0 {
			t.Errorf("after the floor %d: %+v, %v", floor, stamps, err)
		}
	}
}

// Nobody can hold a guard for longer than the time limit.
func TestSetGuardIsBounded(t *testing.T) {
	url := fresh(t, Migration{})
	s := open(t, Options{URL: url, Timeout: 300 * time.Millisecond})
	if err := s.SetGuard(t.Context(), "", "", token(1)); err != nil {
		t.Fatal(err)
	}
	hold := func(begin func(q string) error) {
		t.Helper()
		if err := errors.Join(begin("START TRANSACTION"), begin("SELECT * FROM freshet_guards WHERE low = '' LOCK IN SHARE MODE")); err != nil {
			t.Fatal(err)
		}
	}
	// A transaction of ours that checked its guard, and then says nothing more: the
	// server ends it.
	conn, err := s.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	hold(func(q string) error { _, err := conn.ExecContext(t.Context(), q); return err })
	for n := range 20 {
		if err = s.SetGuard(t.Context(), "", "", token(2)); err == nil || !errors.Is(err, store.ErrUnavailable) {
			break
		}
		t.Logf("attempt %d: %v", n, err)
	}
	if err != nil {
		t.Errorf("the guard was held for longer than transactions may be idle: %v", err)
	}
	// One that is not ours, and is not bounded: the wait is.
	tx, err := admin(t, url).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	hold(func(q string) error {
		if q == "START TRANSACTION" {
			return nil
		}
		_, err := tx.ExecContext(t.Context(), q)
		return err
	})
	if err := s.SetGuard(t.Context(), "", "", token(3)); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a guard over one that somebody holds: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := s.SetGuard(t.Context(), "", "", token(4)); err != nil {
		t.Error(err)
	}
}
