package mysql

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	mariadb "github.com/go-sql-driver/mysql"

	"github.com/freshet-cache/freshet/internal/mariadbserver"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/storetest"
)

var server struct {
	sync.Once
	*mariadbserver.Server
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

// start makes a MariaDB of its own for these tests, if there is one.
func start(t testing.TB) *mariadbserver.Server {
	t.Helper()
	if mariadbserver.Bin() == "" {
		if os.Getenv("FRESHET_TEST_REQUIRE") != "" {
			t.Fatal("no MariaDB, and FRESHET_TEST_REQUIRE is set")
		}
		t.Skip("no MariaDB: install mariadb-server-core, or name the program in FRESHET_TEST_MARIADB")
	}
	server.Do(func() {
		if server.dir, server.err = os.MkdirTemp("", "freshet-mariadb"); server.err == nil {
			server.Server, server.err = mariadbserver.Start(context.Background(), server.dir)
		}
	})
	if server.err != nil {
		t.Fatal(server.err)
	}
	return server.Server
}

var databases atomic.Int64

// fresh is the URL of a database of its own, migrated.
func fresh(t testing.TB, m Migration) string {
	t.Helper()
	url := start(t).URL("admin", fmt.Sprint("d", databases.Add(1)))
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

// admin is a connection that may do everything, in a database.
func admin(t testing.TB, url string) *sql.DB {
	t.Helper()
	cfg, _, err := parse(url, migrateTimeout, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Logger = &mariadb.NopLogger{}
	c, err := mariadb.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(c)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func exec(t testing.TB, db *sql.DB, q string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), q); err != nil {
		t.Fatal(q, err)
	}
}

func token(n uint64) (t store.Token) { binary.BigEndian.PutUint64(t[8:], n); return t }

func put(key, value string, guard store.Token) []store.Mutation {
	return []store.Mutation{{Key: key, Value: []byte(value), Guard: guard}}
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Store { return open(t, Options{URL: fresh(t, Migration{})}) })
}
