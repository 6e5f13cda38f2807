package etcd

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/freshet-cache/freshet/internal/etcdserver"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/storetest"
)

var server struct {
	sync.Once
	*etcdserver.Cluster
	dir string
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if server.Cluster != nil {
		server.Stop()
	}
	_ = os.RemoveAll(server.dir)
	os.Exit(code)
}

// start makes an etcd of one member for these tests, if there is one.
func start(t testing.TB) *etcdserver.Cluster {
	t.Helper()
	if etcdserver.Bin() == "" {
		if os.Getenv("FRESHET_TEST_REQUIRE") != "" {
			t.Fatal("no etcd, and FRESHET_TEST_REQUIRE is set")
		}
		t.Skip("no etcd: install etcd-server, or name the program in FRESHET_TEST_ETCD")
	}
	server.Do(func() {
		if server.dir, server.err = os.MkdirTemp("", "freshet-etcd"); server.err == nil {
			server.Cluster, server.err = etcdserver.Start(context.Background(), server.dir, 1)
		}
	})
	if server.err != nil {
		t.Fatal(server.err)
	}
	return server.Cluster
}

// of is the URL of a prefix in a cluster.
func of(c *etcdserver.Cluster, prefix string) string {
	return "etcd://" + strings.Join(c.Endpoints(), ",") + "/" + prefix
}

var prefixes atomic.Int64

// fresh is the URL of a prefix of its own.
func fresh(t testing.TB) string {
	t.Helper()
	return of(start(t), fmt.Sprint("test", prefixes.Add(1)))
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

func token(n uint64) (t store.Token) { binary.BigEndian.PutUint64(t[8:], n); return t }

func put(key, value string, guard store.Token) []store.Mutation {
	return []store.Mutation{{Key: key, Value: []byte(value), Guard: guard}}
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Store { return open(t, Options{URL: fresh(t)}) })
}
