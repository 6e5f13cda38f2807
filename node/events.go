package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/freshet-cache/freshet/internal/eventlog"
	"github.com/freshet-cache/freshet/redis"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/store"
)

// openLog makes the process's log: lines for Config.LogOutput, or for the handler of
// Config.Logger.
func (p *Process) openLog() (err error) {
	opt := eventlog.Options{Out: p.cfg.LogOutput, Level: p.cfg.LogLevel, Format: p.cfg.LogFormat, Node: p.cfg.NodeID}
	if p.cfg.Logger != nil {
		opt.Out, opt.Next = nil, p.cfg.Logger.Handler()
	}
	if p.events, err = eventlog.New(opt); err == nil {
		p.log = slog.New(p.events)
	}
	return err
}

// setLog changes a setting of the log while the process runs.
func (p *Process) setLog(name, value, by string) (err error) {
	switch name {
	case "log-level":
		err = p.events.SetLevel(value)
	case "log-format":
		if p.cfg.LogOutput == nil || p.cfg.Logger != nil {
			return errors.New("log-format: the program that embeds freshet writes the log")
		}
		err = p.events.SetFormat(value)
	default:
		return fmt.Errorf("%s cannot be changed at run time; log-level and log-format can", name)
	}
	if err == nil {
		eventlog.ConfigChanged.Log(p.log, name+" is "+value+" from here on", "name", name, "value", value, "by", by)
	}
	return err
}

// started says that a node listens.
func (n *Node) started() {
	eventlog.NodeStarted.Log(n.log, "listening", "version", Version, "store", redacted(n.p.cfg.Store), "lease", n.p.cfg.Lease.String(),
		"redis", n.addr, "admin", "http://"+n.adminAddr)
}

// refused says that a store or a coordinator holds data that this process must not
// use; one that only does not answer is no such case.
func (p *Process) refused(err error) error {
	var ne net.Error
	if err != nil && !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &ne) {
		eventlog.DataRefused.Log(p.log, "the process does not start", "why", err.Error())
	}
	return err
}

// leaving says that a node begins to hand over what it owns; call the result when it
// has ended.
func (n *Node) leaving() (done func(err error)) {
	if !n.running() {
		return func(error) {}
	}
	began := time.Now()
	slices, _ := n.leased.Leases()
	eventlog.DrainBegan.Log(n.log, "the node begins to hand over its slices", "slices", slices)
	return func(err error) {
		left, _ := n.leased.Leases()
		if err != nil {
			n.log.Warn("the node could not hand over all of its slices", "slices", left, "err", err)
			return
		}
		eventlog.DrainDone.Log(n.log, "the node has handed over its slices", "slices", slices-left, "ms", eventlog.Ms(time.Since(began)))
	}
}

// hashed is how a key stands in the log: as a few digits of its hash, or as it is with
// --log-keys.
func (p *Process) hashed(key string) string {
	if p.cfg.LogKeys || key == "" {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "#" + hex.EncodeToString(sum[:6])
}

// hashedRange is how a range of keys stands in the log.
func (p *Process) hashedRange(r lease.Range) string {
	if r.High == "" {
		return "[" + p.hashed(r.Low) + ",end)"
	}
	return "[" + p.hashed(r.Low) + "," + p.hashed(r.High) + ")"
}

// uncertain says, behind a job, that its outcome is unknown; before is how long the
// answer was until then.
func (n *Node) uncertain(j *job, keys []string, w *resp.Writer, before int) {
	if b := w.Bytes(); before > len(b) || !bytes.HasPrefix(b[before:], []byte("-UNKNOWN ")) {
		return
	}
	name := "exec"
	if !j.multi {
		name = redis.Lower(j.cmds[0][0])
	}
	eventlog.OutcomeUnknown.Log(n.log, "a write may or may not take effect", "key_hash", strings.TrimPrefix(n.p.hashed(keys[0]), "#"), "request", name)
}

// slowCommand is how long a command takes at least of which the log speaks.
const slowCommand = time.Second

// timed measures a command, or several of one name that are done at once. The log
// speaks of one that took long.
func (n *Node) timed(c *resp.Conn, name string, args [][]byte, commands int) func() {
	began := time.Now()
	return func() {
		took := time.Since(began)
		n.m.took(name, commands, took)
		n.slow(c, name, args, took)
	}
}

// slow says that a command took long.
func (n *Node) slow(c *resp.Conn, name string, args [][]byte, took time.Duration) {
	if took < slowCommand {
		return
	}
	size := 0
	for _, a := range args {
		size += len(a)
	}
	client := ""
	if c != nil {
		client = c.RemoteAddr()
	}
	eventlog.SlowCommand.Log(n.log, "a command took long", "name", name, "ms", eventlog.Ms(took), "bytes", size, "client", client)
}
