package node

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/freshet-cache/freshet/resp"
)

func (p *Process) stateJSON(ctx context.Context) []byte {
	b, _ := json.Marshal(p.State(ctx))
	return b
}

// locked lets in who gives the password, if there is one: as HTTP Basic, under any
// name.
func (n *Node) locked(h http.Handler) http.Handler {
	want := sha256.Sum256([]byte(n.p.cfg.Password))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, given, _ := r.BasicAuth()
		got := sha256.Sum256([]byte(given))
		if n.p.cfg.Password != "" && subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="freshet"`)
			http.Error(w, "give the password, as HTTP Basic under any name", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// adminHandler asks for the password everywhere but at /healthz and /readyz.
func (n *Node) adminHandler() http.Handler {
	open, mux := http.NewServeMux(), http.NewServeMux()
	open.Handle("/", n.locked(mux))
	open.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	open.HandleFunc("GET /readyz", n.readyz)
	mux.HandleFunc("GET /api/v1/health", func(w http.ResponseWriter, _ *http.Request) {
		h := n.p.Health()
		w.Header().Set("Content-Type", "application/json")
		if h.Status != "SAFE" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(h)
	})
	mux.HandleFunc("POST /api/v1/log", func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"log-level", "log-format"} {
			if v := r.FormValue(name); v != "" {
				if err := n.p.setLog(name, v, r.RemoteAddr); err != nil {
					http.Error(w, err.Error(), http.StatusBadRequest)
					return
				}
			}
		}
		fmt.Fprintf(w, "log-level %s, log-format %s\n", n.p.events.Level(), n.p.events.Format())
	})
	mux.HandleFunc("GET /api/state", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(n.p.stateJSON(r.Context()))
	})
	mux.HandleFunc("POST /api/drain", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), n.p.cfg.Timeout)
		defer cancel()
		if err := n.Leave(ctx); err != nil {
			http.Error(w, "the node still owns slices: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "drained")
	})
	for _, one := range n.p.promised {
		for pattern, h := range one.Admin() {
			mux.HandleFunc(pattern, h)
		}
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(n.m.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return open
}

// explain answers FR.EXPLAIN.
func (n *Node) explain(ctx context.Context, key []byte, w *resp.Writer) {
	name := string(key)
	r, _ := n.shard.Table().Find(name)
	owner, _, _ := strings.Cut(r.Node, "/")
	cached, hit := n.cache.Peek(name)
	row, err := n.p.store.Load(ctx, name)
	if err != nil {
		w.Error(errorText(err))
		return
	}
	yes := map[bool]string{true: "yes", false: "no"}
	fields := [][2]string{
		{"owner", owner}, {"address", r.Addr}, {"slice", r.Range.String()}, {"generation", strconv.FormatUint(uint64(r.Gen), 10)},
		{"this-node", n.id}, {"owned-here", yes[n.cache.Owns(name)]}, {"cached-here", yes[hit]},
		{"cached-version", strconv.FormatUint(cached.Version, 10)}, {"store-exists", yes[row.Exists]},
		{"store-version", strconv.FormatUint(uint64(row.Version), 10)}, {"store-ttl", row.TTL.String()}, {"age", age(row.Written)},
		{"guard", fmt.Sprintf("%x", row.Guard[:])}, {"writer", fmt.Sprintf("%x", row.Writer[:])},
	}
	w.Map(len(fields))
	for _, f := range fields {
		w.BulkString(f[0])
		w.BulkString(f[1])
	}
}

// age is how long a row has stood as it is.
func age(written time.Time) string {
	if written.IsZero() {
		return "unknown"
	}
	return max(0, time.Since(written)).Round(time.Millisecond).String()
}
