package bench

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/freshet-cache/freshet/node"
)

// TestMain lets the test's executable stand in for freshet serve, which the
// experiments start as a process of its own.
func TestMain(m *testing.M) {
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
