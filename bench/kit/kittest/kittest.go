// Package kittest tests experiments: it runs one at the least size, and reads back all
// that a run leaves.
//
// What a test may rely on: Main lets the executable of the test stand in for freshet serve,
// and Tiny fails the test if a part of the results is missing, or if a system that
// promises right answers gave wrong ones.
package kittest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/freshet-cache/freshet/bench/kit"
	"github.com/freshet-cache/freshet/internal/pgserver"
	"github.com/freshet-cache/freshet/node"
)

// Main is the body of TestMain: experiments start freshet serve as a process of its own,
// and the executable of the test stands in for it.
func Main(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		if err := serve(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func serve(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c := node.Defaults()
	f := flag.NewFlagSet("serve", flag.ExitOnError)
	f.StringVar(&c.Listen, "listen", c.Listen, "")
	f.StringVar(&c.Admin, "admin", c.Admin, "")
	f.StringVar(&c.Data, "data", c.Data, "")
	f.StringVar(&c.Store, "store", c.Store, "")
	f.StringVar(&c.Coordinator, "coordinator", c.Coordinator, "")
	f.StringVar(&c.NodeID, "node-id", c.NodeID, "")
	f.DurationVar(&c.Lease, "lease", c.Lease, "")
	f.IntVar(&c.Nodes, "nodes", c.Nodes, "")
	f.Int64Var(&c.Memory, "memory", c.Memory, "")
	f.BoolVar(&c.NoSync, "no-sync", c.NoSync, "")
	f.IntVar(&c.ReplicateAt, "replicate-above", c.ReplicateAt, "")
	f.IntVar(&c.MaxReplicas, "max-replicas", c.MaxReplicas, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	p, err := node.Start(c)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	for i, n := range p.Nodes() {
		listen, admin := p.Addr(i)
		log.Info("listening", "node", n.ID(), "redis", listen, "admin", "http://"+admin)
	}
	<-ctx.Done()
	return p.Stop(context.Background())
}

// Find is the experiment of that name.
func Find(t *testing.T, all []kit.Experiment, name string) kit.Experiment {
	t.Helper()
	at := slices.IndexFunc(all, func(e kit.Experiment) bool { return e.Name == name })
	if at < 0 {
		t.Fatalf("there is no experiment %s", name)
	}
	return all[at]
}

// Tiny runs an experiment at the least size and reads the results back. Systems without a
// promise may answer wrongly.
func Tiny(t *testing.T, e kit.Experiment, opt kit.Options, without ...string) kit.Report {
	t.Helper()
	opt.Out, opt.Command, opt.Preset = t.TempDir(), "freshet bench "+e.Name, "tiny"
	var shown bytes.Buffer
	opt.Table = &shown
	progress := 0
	opt.Progress = func(string) { progress++ }
	if err := e.Measure(t.Context(), opt); err != nil {
		t.Fatal(err)
	}
	var r kit.Report
	b, err := os.ReadFile(filepath.Join(opt.Out, e.Name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(opt.Out, e.Name+".md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# " + e.Name, "Verdict of the checker", "Goals", "Machine: ", "Commit: ", "![", "`" + opt.Command + "`"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, kind := range []string{".png", ".svg"} {
		if b, err := os.ReadFile(filepath.Join(opt.Out, e.Name+kind)); err != nil || len(b) < 1000 {
			t.Errorf("the plot %s has %d bytes: %v", kind, len(b), err)
		}
	}
	if r.Experiment != e.Name || r.Commit == "" || r.Machine == "" || len(r.Headline) == 0 || progress == 0 || shown.Len() == 0 {
		t.Errorf("something is missing: %+v", r)
	}
	systems := opt.Systems
	if len(systems) == 0 {
		systems = e.Systems
	}
	for _, s := range systems {
		if !slices.ContainsFunc(r.Rows, func(row kit.Row) bool { return row["system"] == s }) {
			t.Errorf("%s has no row", s)
		}
	}
	for s, n := range r.Anomalies {
		if n != 0 && !slices.Contains(without, s) {
			t.Errorf("%s: %d anomalies", s, n)
		}
	}
	return r
}

// WithRedis are the systems that can be measured here: all if there is a redis-server, or
// else those that need none. Where FRESHET_TEST_REQUIRE is set, it must be there.
func WithRedis(t *testing.T, systems []string, needs func(system string) bool) []string {
	t.Helper()
	_, err := exec.LookPath("redis-server")
	return available(t, systems, err, needs)
}

// WithPostgres are the systems that can be measured here, as in WithRedis.
func WithPostgres(t *testing.T, systems []string, needs func(system string) bool) []string {
	t.Helper()
	var err error
	if pgserver.Bin() == "" {
		err = errors.New("PostgreSQL is not installed")
	}
	return available(t, systems, err, needs)
}

func available(t *testing.T, systems []string, missing error, needs func(system string) bool) []string {
	t.Helper()
	if missing == nil {
		return systems
	}
	if os.Getenv("FRESHET_TEST_REQUIRE") != "" {
		t.Fatal("FRESHET_TEST_REQUIRE is set: ", missing)
	}
	rest := slices.DeleteFunc(slices.Clone(systems), needs)
	if len(rest) == 0 {
		t.Skip(missing)
	}
	t.Log("without some systems: ", missing)
	return rest
}
