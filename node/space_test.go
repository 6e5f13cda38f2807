package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/freshet-cache/freshet/internal/pgserver"
	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/store/postgres"
)

// service is one process of an application that caches its own tables.
type service struct {
	p     *Process
	s     *postgres.Store
	view  *linear.View[int, pgx.Tx]
	loads atomic.Int64
}

func (v *service) load(ctx context.Context, tx pgx.Tx, key string) (n int, ok bool, err error) {
	v.loads.Add(1)
	err = tx.QueryRow(ctx, "SELECT n FROM counters WHERE name = $1", key).Scan(&n)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	return n, err == nil, err
}

func count(keys ...string) func(ctx context.Context, tx pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		for _, k := range keys {
			if _, err := tx.Exec(ctx, "INSERT INTO counters VALUES ($1, 1) ON CONFLICT (name) DO UPDATE SET n = counters.n + 1", k); err != nil {
				return err
			}
		}
		return nil
	}
}

func startService(t *testing.T, url, coordinator, id string) *service {
	t.Helper()
	v := &service{}
	v.p = start(t, func(c *Config) {
		c.Store, c.Coordinator, c.NodeID, c.Lease, c.Timeout, c.Data = url, coordinator, id, 2*time.Second, time.Second, t.TempDir()
	})
	var err error
	if v.s, err = postgres.Open(t.Context(), postgres.Options{URL: url + "&schema=counts", Timeout: time.Second}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.s.Close() })
	tables, err := v.s.Tables(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	space, err := v.p.Space("counts")
	if err != nil {
		t.Fatal(err)
	}
	v.view, err = linear.NewView(tables, v.load, linear.Options[int]{Codec: linear.JSON[int](), Peers: space, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.view.Close(context.Background()) })
	return v
}

const spaceKeys = 12 // of all owners

func spaceKey(i int) string { return fmt.Sprintf("%c-counter", "059CHLQVchmv"[i%spaceKeys]) }

// startPostgres is the URL of a server of its own, in which counters are guarded.
func startPostgres(t *testing.T) (url string) {
	t.Helper()
	if pgserver.Bin() == "" {
		if os.Getenv("FRESHET_TEST_REQUIRE") != "" {
			t.Fatal("no PostgreSQL, and FRESHET_TEST_REQUIRE is set")
		}
		t.Skip("no PostgreSQL: install it, or name its programs' directory in FRESHET_TEST_PGBIN")
	}
	pg, err := pgserver.Start(t.Context(), t.TempDir(), "fsync=off")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pg.Stop)
	url = pg.URL("admin", "postgres")
	for _, u := range []string{url, url + "&schema=counts"} {
		if err := postgres.Migrate(t.Context(), u, postgres.Migration{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = connect(t, url).Exec(t.Context(), "CREATE TABLE counters (name text PRIMARY KEY, n int NOT NULL); SELECT counts.guard_table('counters', '{name}')")
	if err != nil {
		t.Fatal(err)
	}
	return url
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// startServices starts three processes over one PostgreSQL, with strict mode on, and waits
// until each owns some of the keys.
func startServices(t *testing.T) ([]*service, *pgx.Conn) {
	url := startPostgres(t)
	all := []*service{startService(t, url, "embedded", "s1")}
	leaderAddr, _ := all[0].p.Addr(0)
	for _, id := range []string{"s2", "s3"} {
		all = append(all, startService(t, url, joinScheme+leaderAddr, id))
	}
	for deadline, owners := time.Now().Add(20*time.Second), 0; owners < 3; {
		seen := map[string]bool{}
		for i := range spaceKeys {
			r, _ := all[0].p.nodes[0].shard.Table().Find(spaceKey(i))
			seen[r.Addr] = r.Addr != ""
		}
		if owners = len(seen); time.Now().After(deadline) {
			t.Fatalf("the keys have only %d owners", owners)
		}
		<-time.After(time.Millisecond)
	}
	return all, connect(t, url)
}

// Three processes of an application share a view of its tables: each writes keys of all
// owners in one transaction, none reads what is stale, and what one built others get.
func TestSpaceOfSeveralProcesses(t *testing.T) {
	all, conn := startServices(t)
	const keys, rounds = spaceKeys, 60
	var acked [keys]atomic.Int64
	var wg sync.WaitGroup
	for w, v := range all {
		wg.Go(func() {
			for i := range rounds {
				a, b := (i*5+w)%keys, (i*7+3*w+1)%keys
				if a == b {
					continue
				}
				err := v.view.Update(t.Context(), []string{spaceKey(a), spaceKey(b)}, count(spaceKey(a), spaceKey(b)))
				if err != nil {
					t.Errorf("%s and %s at %d: %v", spaceKey(a), spaceKey(b), w, err)
					return
				}
				acked[a].Add(1)
				acked[b].Add(1)
				least := acked[b].Load()
				if n, _, err := all[(w+i)%3].view.Get(t.Context(), spaceKey(b)); err != nil || int64(n) < least {
					t.Errorf("%s is %d at %d, though %d were acknowledged: %v", spaceKey(b), n, (w+i)%3, least, err)
				}
			}
		})
	}
	wg.Wait()
	for i := range keys {
		for w, v := range all {
			if n, _, err := v.view.Get(t.Context(), spaceKey(i)); err != nil || int64(n) != acked[i].Load() {
				t.Errorf("%s is %d at %d, and %d were acknowledged: %v", spaceKey(i), n, w, acked[i].Load(), err)
			}
		}
	}
	testkit.True(t, "1000 reads build no more values than there are keys, for all are in some memory", func() bool { // a lease that lapses takes its entries along
		built := func() int64 { return all[0].loads.Load() + all[1].loads.Load() + all[2].loads.Load() }
		before := built()
		for i := range 1000 {
			if _, _, err := all[i%3].view.Get(t.Context(), spaceKey(i)); err != nil {
				t.Fatal(err)
			}
		}
		return built()-before <= keys
	})
	if _, err := all[0].p.Space("counts"); err == nil {
		t.Error("a space was opened twice")
	}
	if _, err := conn.Exec(t.Context(), "SELECT counts.unguard_table('counters'); UPDATE counters SET n = n + 1000"); err != nil { // a migration, say
		t.Fatal(err)
	}
	for i := range keys {
		if err := all[i%3].view.Invalidate(t.Context(), spaceKey(i)); err != nil {
			t.Error(err)
		}
		for w, v := range all {
			if err := v.view.Ready(t.Context(), spaceKey(i)); err != nil {
				t.Error(err)
			}
			if n, _, err := v.view.Get(t.Context(), spaceKey(i)); err != nil || n < 1000 {
				t.Errorf("after %s was invalidated it is %d at %d: %v", spaceKey(i), n, w, err)
			}
		}
	}
	if _, err := conn.Exec(t.Context(), "SELECT counts.guard_table('counters', '{name}')"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "UPDATE counters SET n = 0"); err == nil {
		t.Error("rows were changed behind the caches")
	}
}
