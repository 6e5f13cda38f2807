package blackbox

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// exported are the metrics of the usual dashboards for prometheus-redis-exporter.
var exported = []string{
	`redis_up 1`, `redis_exporter_last_scrape_error{err=""} 0`, `redis_start_time_seconds \d`, `redis_uptime_in_seconds \d`, `redis_connected_clients [1-9]`,
	`redis_blocked_clients 0`, `redis_memory_used_bytes [1-9]`, `redis_memory_max_bytes [1-9]`, `redis_memory_used_rss_bytes [1-9]`,
	`redis_commands_processed_total [1-9]`, `redis_keyspace_hits_total [1-9]`, `redis_keyspace_misses_total [1-9]`, `redis_net_input_bytes_total [1-9]`,
	`redis_net_output_bytes_total [1-9]`, `redis_db_keys{db="db0"} [1-9]`, `redis_db_keys_expiring{db="db0"} 0`, `redis_expired_keys_total \d`,
	`redis_evicted_keys_total \d`, `redis_commands_total{cmd="get"} [1-9]`, `redis_commands_duration_seconds_total{cmd="set"} [0-9]`,
	`redis_rejected_connections_total 0`, `redis_instance_info{.*role="master"`, `redis_cpu_user_seconds_total \d`, `redis_connected_slaves 0`,
}

// The usual exporter for Redis fills its dashboard from a freshet.
func TestRedisExporter(t *testing.T) {
	path, err := exec.LookPath("prometheus-redis-exporter")
	if err != nil {
		if os.Getenv("FRESHET_TEST_REQUIRE") != "" {
			t.Fatal("no prometheus-redis-exporter in PATH, and FRESHET_TEST_REQUIRE is set")
		}
		t.Skip("no prometheus-redis-exporter: install it, or run make test")
	}
	p := run(t, 1, "--store", "memory:")
	c := p.client(0)
	for i := range 10 {
		for _, cmd := range [][]any{{"SET", fmt.Sprint("k", i), "v"}, {"GET", fmt.Sprint("k", i)}, {"GET", fmt.Sprint("none", i)}} {
			if err := c.Do(t.Context(), cmd...).Err(); err != nil && err != redis.Nil {
				t.Fatal(err)
			}
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // a free port
	if err != nil {
		t.Fatal(err)
	}
	web := l.Addr().String()
	l.Close()
	cmd := exec.Command(path, "-redis.addr", "redis://"+p.addrs[0], "-web.listen-address", web)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var page string
	p.eventually(func() bool {
		r, err := http.Get("http://" + web + "/metrics")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		page = string(b)
		return strings.Contains(page, "redis_up")
	})
	for _, want := range exported {
		if !regexp.MustCompile(`(?m)^` + strings.NewReplacer("{db", `\{db`, "{cmd", `\{cmd`, "{err", `\{err`, "{.*", `\{.*`).Replace(want)).MatchString(page) {
			t.Errorf("the exporter does not tell %s", want)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}
