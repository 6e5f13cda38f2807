package postgres

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/freshet-cache/freshet/internal/pgserver"
	"github.com/freshet-cache/freshet/store/storetest"
)

var server struct {
	sync.Once
	*pgserver.Server
	dir string
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if server.Server != nil {
		server.Stop()
	}
	_ = os.RemoveAll(server.dir)
	os.Exit(code)
}

// start makes a PostgreSQL of its own for these tests, if there is one.
func start(t testing.TB) *pgserver.Server {
	t.Helper()
	if pgserver.Bin() == "" {
		if os.Getenv("FRESHET_TEST_REQUIRE") != "" {
			t.Fatal("no PostgreSQL, and FRESHET_TEST_REQUIRE is set")
		}
		t.Skip("no PostgreSQL: install it, or name its programs' directory in FRESHET_TEST_PGBIN")
	}
	server.Do(func() {
		if server.dir, server.err = os.MkdirTemp("", "freshet-pg"); server.err == nil {
			server.Server, server.err = pgserver.Start(context.Background(), server.dir, "fsync=off")
		}
	})
	if server.err != nil {
		t.Fatal(server.err)
	}
	return server.Server
}

var schemas atomic.Int64

// fresh is the URL of a schema of its own, migrated.
func fresh(t testing.TB, m Migration) string {
	t.Helper()
	url := fmt.Sprintf("%s&schema=s%d", start(t).URL("admin", "postgres"), schemas.Add(1))
	if err := Migrate(t.Context(), url, m); err != nil {
		t.Fatal(err)
	}
	return url
}

func open(t testing.TB, opt Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// forgetful loses its guards on request, as in a crash.
type forgetful struct{ *Store }

func (f forgetful) Restart(ctx context.Context, _ string) error {
	_, err := f.guards.Exec(ctx, "TRUNCATE "+f.schema+".guards")
	return err
}

func TestConformance(t *testing.T) {
	for name, m := range map[string]Migration{"one table": {}, "partitions": {Partitions: []string{"m", "b"}}} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) storetest.Store { return forgetful{open(t, Options{URL: fresh(t, m)})} })
		})
	}
}
