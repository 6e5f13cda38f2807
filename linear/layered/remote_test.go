package layered_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/freshet-cache/freshet/linear/layered"
	"github.com/freshet-cache/freshet/node"
)

// A layered cache as it is run: freshet keeps versions, a real Redis keeps values, and
// programs talk to both. What one has written the others read, though Redis is emptied
// under them.
func TestRemote(t *testing.T) {
	addr := os.Getenv("FRESHET_TEST_REDIS")
	if addr == "" {
		if os.Getenv("FRESHET_TEST_REQUIRE") != "" {
			t.Fatal("FRESHET_TEST_REDIS is not set, and FRESHET_TEST_REQUIRE is")
		}
		t.Skip("no Redis: run scripts/with-servers, or set FRESHET_TEST_REDIS")
	}
	cfg := node.Defaults()
	cfg.Listen, cfg.Admin, cfg.Store, cfg.Nodes, cfg.VersionsOnly = "127.0.0.1:0", "127.0.0.1:0", "memory:", 3, true
	p, err := node.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Stop(context.Background()) }()
	if err := p.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	prefix := fmt.Sprintf("remote-%d:", time.Now().UnixNano())
	var all []*layered.Client
	for i := range 3 {
		near, _ := p.Addr(i)
		c, err := layered.New(layered.Options{Versions: layered.Remote(redis(t, near)), Values: layered.Redis(redis(t, addr), prefix)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(context.Background()) }()
		all = append(all, c)
	}
	race(t, all, redis(t, addr), prefix)
	for all[0].Stats().Hits == 0 {
		if v, ok, err := all[0].Get(t.Context(), "k"); v != fmt.Sprint(last) || !ok || err != nil {
			t.Fatalf("%q %v %v", v, ok, err)
		}
	}
	if err := all[1].Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if v, ok, err := c.Get(t.Context(), "k"); ok || err != nil {
			t.Errorf("after a delete: %q %v %v", v, ok, err)
		}
	}
	if err := all[0].SetTTL(t.Context(), "k", "short", time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for ok := true; ok; {
		_, ok, err = all[2].Get(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
	}
}

const last = 300

// race has one client write, and all read, while the values are taken away under them.
func race(t *testing.T, all []*layered.Client, values rueidis.Client, prefix string) {
	var acked atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := int64(1); i <= last; i++ {
			if err := all[i%3].Set(t.Context(), "k", fmt.Sprint(i)); err != nil {
				t.Error(err)
			}
			acked.Store(i)
		}
	})
	wg.Go(func() {
		for acked.Load() < last {
			if err := values.Do(t.Context(), values.B().Del().Key(prefix+"k").Build()).Error(); err != nil {
				t.Error(err)
			}
		}
	})
	for w := range 3 {
		wg.Go(func() {
			for before := int64(0); before < last; {
				before = acked.Load()
				v, _, err := all[w].Get(t.Context(), "k")
				var n int64
				_, _ = fmt.Sscan(v, &n)
				if err != nil || n < before {
					t.Errorf("%q was read when %d was acknowledged: %v", v, before, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func redis(t *testing.T, addr string) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
