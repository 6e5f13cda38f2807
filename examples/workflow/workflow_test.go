package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet-cache/freshet/node"
)

// serve runs three nodes with the space that the examples want.
func serve(t *testing.T) (addrs []string) {
	t.Helper()
	cfg := node.Defaults()
	cfg.Listen, cfg.Admin, cfg.Store, cfg.Nodes, cfg.Spaces = "127.0.0.1:0", "127.0.0.1:0", "memory:", 3, node.Spaces{{Name: "feeds", Promise: "causal"}}
	p, err := node.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	for i := range 3 {
		addr, _ := p.Addr(i)
		addrs = append(addrs, addr)
		c := redis.NewClient(&redis.Options{Addr: addr})
		for c.Do(t.Context(), "FR.CGET", c.Do(t.Context(), "FR.BEGIN", "feeds").Val(), "feed").Err() != nil {
		}
		_ = c.Close()
	}
	return addrs
}

func TestWorkflow(t *testing.T) {
	name := t.TempDir() + "/out"
	out, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), serve(t), out); err != nil {
		t.Error(err)
	}
	_ = out.Close()
	published(t, name)
}

func published(t *testing.T, name string) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil || strings.Count(string(b), "published ") != 3 || strings.Count(string(b), " lists: ") != 9 {
		t.Errorf("%s%v", b, err)
	}
}

func TestWorkflowInPython(t *testing.T) {
	python := os.Getenv("FRESHET_TEST_PYTHON")
	if python == "" && os.Getenv("FRESHET_TEST_REQUIRE") != "" {
		t.Fatal("FRESHET_TEST_PYTHON is not set, and tests that need it may not be skipped")
	}
	if python == "" {
		t.Skip("no Python with redis-py: name one in FRESHET_TEST_PYTHON, or run make test")
	}
	b, err := exec.CommandContext(t.Context(), python, append([]string{"workflow.py"}, serve(t)...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	name := t.TempDir() + "/out"
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	published(t, name)
}
