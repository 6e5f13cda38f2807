package node

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/node/promise"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/redis"
	"github.com/freshet-cache/freshet/redis/tracking"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
)

// Node is one node of a process.
type Node struct {
	p           *Process
	id          string
	log         *slog.Logger
	incarnation string
	addr        string // where others reach it
	adminAddr   string

	listener, adminListener net.Listener

	cache       *linear.Cache[string]
	leased      linear.Participant // the cache, as its leases and other nodes see it
	shard       *shard.Node
	peers       *peer.Peers
	services    peer.Services // what other nodes ask for by name
	server      *resp.Server
	admin       *http.Server
	m           *metrics
	track       *tracking.Tracking
	members     []promise.Member // of this node, as Process.promised
	ctx         context.Context  // ends with the node
	stop        context.CancelFunc
	cursors     cursors
	flushing    flushing
	rate        opsRate
	size        keyCount
	spaces      spaces
	begun       chan struct{} // closed when all of the above is there
	roundRobins atomic.Uint64 // of the members of groups
	draining    atomic.Bool
	work        sync.WaitGroup

	linksMu sync.Mutex
	links   map[*link.Link]bool // that other nodes have opened
	parting bool                // none is to be opened any more
}

// listen takes the ports of the i-th node.
func listen(p *Process, i int) (*Node, error) {
	n := &Node{p: p, id: p.cfg.NodeID, begun: make(chan struct{})}
	n.ctx, n.stop = context.WithCancel(context.Background())
	if p.cfg.Nodes > 1 {
		n.id = strings.TrimRight(p.cfg.NodeID, "0123456789") + strconv.Itoa(i+1)
	}
	n.incarnation = n.id + "/" + unique()
	n.log = p.log.With("node", n.id)
	var err error
	if n.listener, err = bind("listen", at(p.cfg.Listen, i)); err != nil {
		return nil, err
	}
	if n.adminListener, err = bind("admin", at(p.cfg.Admin, i)); err != nil {
		n.listener.Close()
		return nil, err
	}
	n.addr, n.adminAddr = n.listener.Addr().String(), n.adminListener.Addr().String()
	if p.cfg.Advertise != "" {
		n.addr = at(p.cfg.Advertise, i)
	}
	return n, nil
}

// start serves. The process's assigner is running.
func (n *Node) start() error {
	ctls, err := n.p.clientTLS()
	if err != nil {
		return err
	}
	n.track = tracking.New(tracked{n}, tracking.Options{
		Keys: n.p.cfg.TrackingKeys, Addr: n.addr, Timeout: n.p.cfg.Timeout, Context: n.ctx, Clock: n.p.clock, Logger: n.log,
	})
	n.m = newMetrics(n)
	n.peers = peer.New(peer.Options{Version: frameVersion, Password: n.p.cfg.Password, Addr: n.addr, MaxFrame: n.p.maxFrame(), TLS: ctls, Message: n.message, Request: n.whenBegun})
	n.server = resp.NewServer(n, resp.Options{
		Commands: n.p.commands, Password: n.p.cfg.Password, TLS: n.p.tls, MaxConns: n.p.cfg.MaxConns, Spare: spareConns, Databases: n.p.cfg.Spaces.databases(),
		MaxBulk: max(n.p.cfg.MaxKey, n.p.cfg.MaxValue), Logger: n.log,
	})
	n.cache, err = linear.New(linear.Options[string]{
		Store: n.p.store, Codec: linear.String(), MaxBytes: n.p.cfg.Memory, Timeout: n.p.cfg.Timeout, Clock: n.p.clock, VersionsOnly: n.p.cfg.VersionsOnly,
		Peers: keyspace{&Space{n: n}}, Recorder: n.m, Logger: n.log,
	})
	if err != nil {
		return err
	}
	if err := n.joinPromises(); err != nil {
		return err
	}
	n.work.Go(func() {
		if err := n.server.Serve(n.listener); !errors.Is(err, resp.ErrClosed) {
			n.log.Error("the listener failed; this node takes no more connections", "err", err)
		}
	})
	close(n.begun)
	n.admin = &http.Server{Handler: n.adminHandler(), ReadHeaderTimeout: adminTimeout, IdleTimeout: adminTimeout}
	n.work.Go(func() { _ = n.admin.Serve(n.adminListener) })
	n.track.Start()
	n.shard.Hurry()
	n.started()
	return nil
}

// whenBegun answers what is asked over a link that this node has opened, which it may
// have done before it was complete.
func (n *Node) whenBegun(ctx context.Context, frame []byte) []byte {
	select {
	case <-n.begun:
		return n.serve(ctx, frame, nil)
	case <-ctx.Done(): // the link is broken
		return nil
	}
}

// running reports whether the node has begun: others may ask before that.
func (n *Node) running() bool {
	select {
	case <-n.begun:
		return true
	default:
		return false
	}
}

// join asks for leases, in the cache's name.
func (n *Node) join(w shard.Watcher) {
	n.shard = shard.StartNode(shard.NodeOptions{
		NodeOptions: lease.NodeOptions{Node: n.incarnation, Addr: n.addr, Host: n.p.host, Drift: 200, Groups: true},
		Clock:       n.p.clock, Beat: min(n.p.cfg.Lease/5, defaultBeat), Watch: watcher{w, n.m, n.track},
		Send: func(m any) {
			if leaderAddr := n.p.leaderAddr(); leaderAddr != "" { // else nobody leads, and the next beat asks again
				n.peers.Send(leaderAddr, lease.Append([]byte{frameVersion, frameLease}, m), n.again)
			}
		},
		Loads: n.loads,
	})
}

// again asks for leases at once, for the link to the assigner stands again, or is
// broken. Before the node has begun there is nobody to ask: start does.
func (n *Node) again(stands bool) {
	if n.running() {
		if !stands {
			n.track.Away()
		}
		n.shard.Hurry()
	}
}

func (n *Node) loads() []lease.Load {
	if !n.running() { // the first beat comes while the cache is being made
		return nil
	}
	return n.spaceLoads(n.leased.Loads())
}

// message takes a message that came over a link which this node has opened.
func (n *Node) message(frame []byte) {
	if !n.fromMember(frame) {
		n.fromAssigner(frame)
	}
}

// fromAssigner takes a message that came back over the link to the assigner.
func (n *Node) fromAssigner(frame []byte) {
	if len(frame) > 2 && frame[0] == frameVersion && frame[1] == frameNo {
		n.p.fail(string(frame[2:]))
		return
	}
	if len(frame) < 2 || frame[0] != frameVersion || frame[1] != frameLease || !n.running() {
		return // a message may be lost; the next beat asks again
	}
	m, err := lease.Decode(frame[2:])
	if err != nil {
		n.log.Warn("the assigner sent what cannot be read", "err", err)
		return
	}
	n.shard.Deliver(m)
	n.track.Back()
}

// Command implements resp.Handler.
func (n *Node) Command(c *resp.Conn, cmd *resp.Command, args [][]byte, w *resp.Writer) {
	if c.DB() != 0 {
		n.inSpace(c, cmd, args, w)
		return
	}
	if cmd.Name == "get" { // nearly every command is this one, and a hit
		key := args[1]
		track := c.Tracks() && len(key) > 0 && n.track.Reading(c, args[1:], w)
		if e, ok := n.cache.Peek(view(key)); ok && !(track && e.Copy) {
			if track {
				n.track.Read(key, e.TTL)
			}
			n.session(c).hit(e.Copy)
			redis.Value(e, w)
			return
		}
	}
	defer n.timed(c, cmd.Name, args, 1)()
	if bad := n.badKey(cmd, args); bad != "" {
		w.Error(bad)
		return
	}
	switch cmd.Name {
	case "fr.version":
		n.version(c, args[1], w)
		return
	case "mset":
		if redis.Unpaired(args, w) { // else it might be done in part
			return
		}
	case "eval", "evalsha":
		if !redis.KnownScript(args, w) {
			return
		}
	}
	switch run, writing := redis.Lookup(cmd.Name); {
	case run == nil:
		n.other(c, cmd, args, w)
	case writing:
		n.runWrite(c, cmd, args, w)
	default:
		n.runRead(c, cmd, run, args, w)
	}
}

// badKey says what is wrong with a command's keys.
func (n *Node) badKey(cmd *resp.Command, args [][]byte) string {
	for _, k := range cmd.Keys(args) {
		if len(k) == 0 || len(k) > n.p.cfg.MaxKey {
			return "ERR a key of " + strconv.Itoa(len(k)) + " bytes: keys have 1 to " + strconv.Itoa(n.p.cfg.MaxKey)
		}
	}
	return ""
}

func (n *Node) runRead(c *resp.Conn, cmd *resp.Command, run redis.Command, args [][]byte, w *resp.Writer) {
	r := &reader{n: n, c: c, w: w, track: c.Tracks() && n.track.Reading(c, cmd.Keys(args), w)}
	tmp := resp.NewWriter(w.Proto())
	if run(r, args, tmp); r.err != nil {
		w.Error(errorText(r.err))
		return
	}
	w.Raw(tmp.Bytes())
}

// runWrite has a command done by the owner of its keys. Those that Redis does to
// many keys at once, and whose keys have several owners, are taken apart.
func (n *Node) runWrite(c *resp.Conn, cmd *resp.Command, args [][]byte, w *resp.Writer) {
	j := &job{proto: w.Proto(), cmds: [][][]byte{args}}
	keys := n.keysOf(j)
	step := several[cmd.Name]
	switch {
	case len(keys) == 1 || step == 0 && n.sameOwner(keys):
		n.run(c, j, keys, w)
		return
	case step == 0:
		w.Error(errCrossOwner.Error())
		return
	}
	w.MayBlock()
	ctx, cancel := context.WithTimeout(c.Context(), n.p.cfg.Timeout)
	defer cancel()
	if n.sameOwner(keys) && (n.p.batch == 0 || len(keys) <= n.p.batch) {
		tmp := resp.NewWriter(w.Proto())
		if n.runWithin(ctx, c, j, keys, tmp); !bytes.HasPrefix(tmp.Bytes(), []byte("-CROSSSLOT ")) {
			w.Raw(tmp.Bytes())
			return
		} // else the keys changed owners just then, and nothing was done
	}
	n.splitByOwner(ctx, c, cmd.Name, args[1:], step).reply(w)
}

// sameOwner reports whether the keys seem to have one owner.
func (n *Node) sameOwner(keys []string) bool {
	t := n.shard.Table()
	owner := ""
	for i, k := range keys {
		r, _ := t.Find(k)
		if i > 0 && r.Node != owner {
			return false
		}
		owner = r.Node
	}
	return true
}

// Exec implements resp.Handler.
func (n *Node) Exec(c *resp.Conn, cmds []resp.Queued, w *resp.Writer) {
	defer n.timed(c, "exec", nil, 1)()
	if c.DB() != 0 {
		w.Error("EXECABORT Transaction discarded because of: MULTI does not work in a causal space; use FR.TBEGIN, or SELECT 0")
		return
	}
	j := &job{proto: w.Proto(), multi: true}
	if s, ok := c.State.(*session); ok {
		j.watch, s.watch = s.watch, nil
	}
	for _, q := range cmds {
		if q.Cmd.Name == "eval" || q.Cmd.Name == "evalsha" { // the owner may not have been sent the script; an unknown one answers when its turn comes
			redis.KnownScript(q.Args, resp.NewWriter(2))
		}
		if bad := n.badKey(q.Cmd, q.Args); bad != "" {
			w.Error("EXECABORT Transaction discarded because of: " + bad)
			return
		}
		j.cmds = append(j.cmds, q.Args)
	}
	keys := n.keysOf(j)
	switch {
	case len(keys) == 0:
		w.Array(len(cmds))
		for _, q := range cmds {
			n.one(nil, q.Args, w)
		}
	case !n.sameOwner(keys):
		w.Error(errCrossOwner.Error())
	default:
		if c.Tracks() {
			if reads := n.readsOf(j); len(reads) > 0 {
				j.track = n.track.Reading(c, reads, w)
			}
		}
		n.run(c, j, keys, w)
	}
}

const maxWatched = 1024

// watch remembers the versions of keys, for EXEC.
func (n *Node) watch(c *resp.Conn, args [][]byte, w *resp.Writer) {
	s := n.session(c)
	if len(s.watch)+len(args)-1 > maxWatched {
		w.Error("ERR too many watched keys; UNWATCH, and watch up to " + strconv.Itoa(maxWatched))
		return
	}
	for _, key := range args[1:] {
		e, err := n.read(c, key, w, false)
		if err != nil {
			w.Error(errorText(err))
			return
		}
		s.watch = append(s.watch, watched{string(key), e.Version})
	}
	w.SimpleString("OK")
}

// ready reports whether the node routes every key, and owns what it should.
func (n *Node) ready() bool {
	if n.draining.Load() || !n.running() {
		return false
	}
	t := n.shard.Table()
	if len(t.Slices) == 0 {
		return false
	}
	for _, r := range t.Slices {
		if r.Node == "" || r.Node == n.incarnation && !n.cache.Owns(r.Low) {
			return false
		}
	}
	return true
}

// Leave moves everything this node owns elsewhere and goes on serving by
// forwarding. It fails if there is nowhere to go before ctx ends.
func (n *Node) Leave(ctx context.Context) error {
	n.draining.Store(true)
	done := n.leaving()
	err := n.shard.Leave(ctx)
	done(err)
	return err
}

// Stay ends Leave: the node can be given slices again. It fails if the process is
// stopping.
func (n *Node) Stay() error {
	n.p.mu.Lock()
	defer n.p.mu.Unlock()
	if n.p.stopping {
		return errStopping
	}
	n.draining.Store(false)
	n.shard.Stay()
	return nil
}

var errStopping = errors.New("ERR the process is stopping; start it again instead")

// drain finishes what clients have asked.
func (n *Node) drain(ctx context.Context) {
	if n.server != nil {
		_ = n.server.Shutdown(ctx) // links go on: the other nodes' clients need them
	}
}

// close ends everything.
func (n *Node) close(ctx context.Context) error {
	var err error
	if n.admin != nil {
		_ = n.admin.Close()
	}
	if n.server != nil {
		_ = n.server.Close()
	}
	if n.shard != nil {
		n.shard.Close()
	}
	for _, m := range n.members {
		m.Close()
	}
	if n.peers != nil {
		n.peers.Close()
	}
	n.stop() // after the links: what was written for others is told until then
	if n.cache != nil {
		err = n.cache.Close(ctx)
	}
	n.listener.Close()
	n.adminListener.Close()
	n.work.Wait()
	if n.track != nil {
		n.track.Wait()
	}
	return err
}

// ID is the node's name.
func (n *Node) ID() string { return n.id }
