package blackbox

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/internal/etcdserver"
	"github.com/freshet-cache/freshet/internal/mariadbserver"
)

// overMariaDB starts a server. It skips the test if MariaDB is not installed.
func overMariaDB(t *testing.T) string {
	if mariadbserver.Bin() == "" {
		if os.Getenv("FRESHET_TEST_REQUIRE") != "" {
			t.Fatal("no MariaDB, and FRESHET_TEST_REQUIRE is set")
		}
		t.Skip("no MariaDB: install mariadb-server-core, or run make test")
	}
	s, err := mariadbserver.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s.URL("admin", "app")
}

// overEtcd is the same with etcd.
func overEtcd(t *testing.T) string {
	if etcdserver.Bin() == "" {
		if os.Getenv("FRESHET_TEST_REQUIRE") != "" {
			t.Fatal("no etcd, and FRESHET_TEST_REQUIRE is set")
		}
		t.Skip("no etcd: install etcd-server, or run make test")
	}
	c, err := etcdserver.Start(t.Context(), t.TempDir(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return "etcd://" + strings.Join(c.Endpoints(), ",") + "/app"
}

// What was acknowledged over each store is there after a restart and a kill; another
// cluster is refused until it is told to adopt.
func TestStores(t *testing.T) {
	for name, over := range map[string]func(*testing.T) string{"mysql": overMariaDB, "etcd": overEtcd} {
		t.Run(name, func(t *testing.T) {
			url, dir := over(t), t.TempDir()
			if out, err := command(t, nil, "migrate", "--store", url); err != nil {
				t.Fatal(err, out)
			}
			want := map[string]string{}
			for round, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGTERM} {
				p := run(t, 2, "--store", url, "--data", dir, "--lease", "1s")
				c := p.client(1)
				for k, v := range want {
					if got, err := c.Get(t.Context(), k).Result(); err != nil || got != v {
						t.Errorf("round %d: %s is %q, %v", round, k, got, err)
					}
				}
				for i := range 20 {
					k, v := fmt.Sprintf("%c%d", 'a'+i, round), fmt.Sprint(round, i)
					if err := c.Set(t.Context(), k, v, 0).Err(); err != nil {
						t.Fatal(err)
					}
					want[k] = v
				}
				pipe := c.Pipeline() // more bytes than etcd takes at once, from one owner
				for i := range 8 {
					k := fmt.Sprint("large", i)
					want[k] = strings.Repeat(fmt.Sprint(round), 300_000)
					pipe.Set(t.Context(), k, want[k], 0)
				}
				if _, err := pipe.Exec(t.Context()); err != nil {
					t.Errorf("round %d: a pipeline of large values: %v", round, err)
				}
				if err := c.Set(t.Context(), "brief", "v", time.Hour).Err(); err != nil {
					t.Error(err)
				}
				if left, err := c.PTTL(t.Context(), "brief").Result(); err != nil || left <= 0 || left > time.Hour {
					t.Errorf("an incarnation of an hour: %v, %v", left, err)
				}
				if n, err := c.Incr(t.Context(), "count").Result(); err != nil || n != int64(round+1) {
					t.Errorf("round %d: counted to %d, %v", round, n, err)
				}
				_ = p.ends(how)
			}
			if out, err := command(t, nil, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--store", url, "--data", t.TempDir()); err == nil || !strings.Contains(out, "--adopt") {
				t.Errorf("another cluster over the same store: %v\n%s", err, out)
			}
			if out, err := command(t, nil, "migrate", "--store", url, "--adopt"); err != nil {
				t.Error(err, out)
			}
			p := run(t, 1, "--store", url, "--data", t.TempDir())
			if v, err := p.client(0).Get(t.Context(), "a0").Result(); err != nil || v != want["a0"] {
				t.Errorf("after it was adopted: %q, %v", v, err)
			}
		})
	}
}
