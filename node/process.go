package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/freshet-cache/freshet/clock"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// Start runs a process until Stop. Errors say what to do.
func Start(cfg Config) (*Process, error) {
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	p := &Process{cfg: cfg, failed: make(chan error, 1), members: map[string]applicant{}, replaced: map[string]string{}, databases: map[int]int{}, table: map[string]*resp.Command{},
		clock: clock.Clock{Boot: cfg.BootClock}, started: time.Now()}
	if err := p.openLog(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	p.commands = slices.Concat(resp.DataCommands(), ownCommands)
	for _, one := range promises {
		commands, _ := one.Commands()
		p.commands = append(p.commands, commands...)
	}
	p.commands = append(p.commands, helpCommands...)
	for i := range p.commands {
		p.table[p.commands[i].Name] = &p.commands[i]
	}
	if err := p.deny(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if err := p.start(); err != nil {
		_ = p.Stop(context.Background())
		return nil, err
	}
	return p, nil
}

func (p *Process) start() (err error) {
	if p.tls, err = p.cfg.tls(); err != nil {
		return err
	}
	if err := p.clampConns(); err != nil {
		return err
	}
	for i := range p.cfg.Nodes { // ports first: a port in use is the commonest mistake, and must not cost anything
		n, err := listen(p, i)
		if err != nil {
			return err
		}
		p.nodes = append(p.nodes, n)
	}
	done := p.progress("the coordinator at " + redacted(p.cfg.Coordinator))
	err = p.coordinate()
	if done(); err != nil {
		return p.refused(err)
	}
	p.events.SetCluster(p.cluster)
	done = p.progress("the store at " + redacted(p.cfg.Store))
	err = p.openStore()
	if done(); err != nil {
		return p.refused(err)
	}
	if p.coord != nil {
		p.assigner = shard.StartAssigner(p.coord, shard.AssignerOptions{
			AssignerOptions: lease.AssignerOptions{Length: ticks.Tick(p.cfg.Lease), First: p.firstCut(),
				Balance: lease.Balance{OneNode: uint64(p.cfg.ReplicateAt), MaxReplicas: p.cfg.MaxReplicas}},
			Clock: p.clock, Send: p.toNode, Changed: p.changed, Logger: p.log,
		})
	}
	if err := p.openPromises(); err != nil {
		return err
	}
	for _, n := range p.nodes {
		if err := n.start(); err != nil {
			return err
		}
	}
	p.startWatch()
	return nil
}

// deny marks the commands that --deny-commands names.
func (p *Process) deny() error {
	for _, name := range strings.FieldsFunc(strings.ToLower(p.cfg.DenyCommands), func(r rune) bool { return r == ',' || r == ' ' }) {
		cmd := p.table[name]
		if cmd == nil {
			return fmt.Errorf("--deny-commands: there is no command %q to deny; those of connections (PING, HELLO, AUTH, CLIENT and the like) cannot be denied", name)
		}
		cmd.Denied = "NOPERM the command '" + name + "' is denied by --deny-commands"
	}
	return nil
}

// firstCut spreads a new key space over several nodes from the beginning, by the
// first byte of printable keys; load moves the boundaries later.
func (p *Process) firstCut() (points []string) {
	n := 4 * p.cfg.Nodes
	switch {
	case p.cfg.shared():
		n = max(n, 16) // others will come
	case p.cfg.Nodes == 1:
		return nil
	}
	for i := 1; i < n; i++ {
		if b := string([]byte{byte('0' + i*('z'-'0')/n)}); len(points) == 0 || points[len(points)-1] != b {
			points = append(points, b)
		}
	}
	return points
}

// Ready waits until every key has an owner that takes writes, or ctx ends.
func (p *Process) Ready(ctx context.Context) error {
	for {
		ready := true
		for _, n := range p.nodes {
			ready = ready && n.ready()
		}
		if ready {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}
