package tracking

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/shard/lease"
)

// cluster has nodes that are called a, b and so on, each of which owns the keys that begin with its name.
// Their links and their clients' connections are pipes, and everything happens under virtual time.
type cluster struct {
	t     *testing.T
	nodes map[string]*member
	order []string

	mu   sync.Mutex
	rows map[string]string
	ttls map[string]time.Duration
	down map[string]bool // nodes that cannot be reached
}

// member is a node of a cluster: a tracking.Node, and a resp.Handler with GET, SET and a transaction.
type member struct {
	*cluster
	name   string
	track  *Tracking
	server *resp.Server
	conns  chan net.Conn
	links  map[string]*link.Link
	heard  map[byte]int // messages of other nodes, by kind
	work   sync.WaitGroup
}

// inCluster runs a test in a cluster of so many nodes.
func inCluster(t *testing.T, nodes, keys int, test func(c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, nodes: map[string]*member{}, rows: map[string]string{}, ttls: map[string]time.Duration{}, down: map[string]bool{}}
		ctx, cancel := context.WithCancel(t.Context())
		for i := range nodes {
			m := &member{cluster: c, name: string(rune('a' + i)), conns: make(chan net.Conn), links: map[string]*link.Link{}, heard: map[byte]int{}}
			c.nodes[m.name], c.order = m, append(c.order, m.name)
			m.track = New(m, Options{Keys: keys, Addr: m.name, Context: ctx})
			m.track.Start()
			m.server = resp.NewServer(handler{m}, resp.Options{Commands: resp.DataCommands()})
			m.work.Go(func() { _ = m.server.Serve(m) })
		}
		for _, name := range c.order { // they own what they own before clients come
			c.nodes[name].track.Acquired(held(name, name+"\xff"))
		}
		synctest.Wait()
		defer c.end(cancel)
		test(c)
	})
}

// end closes all nodes.
func (c *cluster) end(cancel func()) {
	for _, m := range c.nodes {
		_ = m.server.Close()
	}
	c.mu.Lock()
	for _, m := range c.nodes {
		c.down[m.name] = true
		for _, l := range m.links {
			l.Break()
		}
	}
	c.mu.Unlock()
	cancel()
	for _, m := range c.nodes {
		m.work.Wait()
		m.track.Wait()
	}
}

// reach says whether others reach a node.
func (c *cluster) reach(node string, reached bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down[node] = !reached
}

// breaks breaks the link that a node has opened to another one.
func (c *cluster) breaks(from, to string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[from].links[to].Break()
}

// heard is how many messages of a kind a node has had since the last time.
func (c *cluster) heard(node string, kind byte) int {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	defer delete(c.nodes[node].heard, kind)
	return c.nodes[node].heard[kind]
}

// Accept implements net.Listener, as do Close and Addr.
func (m *member) Accept() (net.Conn, error) {
	if nc, ok := <-m.conns; ok {
		return nc, nil
	}
	return nil, net.ErrClosed
}
func (m *member) Close() error   { defer func() { _ = recover() }(); close(m.conns); return nil }
func (m *member) Addr() net.Addr { return &net.UnixAddr{Name: m.name} }

// The methods of Node.

func (m *member) Table() *lease.Table {
	t := &lease.Table{Version: 1}
	for _, name := range m.order {
		t.Slices = append(t.Slices, lease.Route{Lease: lease.Lease{Gen: 1, Range: lease.Range{Low: name, High: name + "\xff"}}, Node: name, Addr: name})
	}
	return t
}

func (m *member) Newer(context.Context, uint64) bool { return false }

func (m *member) Living(context.Context) map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]bool{}
	for _, name := range m.order {
		out[name] = !m.down[name]
	}
	delete(out, m.name)
	return out
}

func (m *member) Link(_ context.Context, addr string) (*link.Link, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down[addr] || m.nodes[addr] == nil {
		return nil, errors.New("unreached")
	}
	if l := m.links[addr]; l != nil && l.Err() == nil {
		return l, nil
	}
	there := m.nodes[addr]
	ours, theirs := net.Pipe()
	over := &Asker{Addr: m.name}
	made := make(chan struct{})
	over.Link = link.New(theirs, bufio.NewReader(theirs), link.Options{Request: func(ctx context.Context, f []byte) []byte {
		<-made
		return there.serve(ctx, f, over)
	}})
	close(made)
	there.work.Go(func() {
		<-over.Done()
		there.track.LinkLost(over)
		over.Wait()
	})
	l := link.New(ours, bufio.NewReader(ours), link.Options{Request: func(ctx context.Context, f []byte) []byte { return m.serve(ctx, f, nil) }})
	m.work.Go(l.Wait)
	m.links[addr] = l
	return l, nil
}

func (m *member) serve(ctx context.Context, frame []byte, over *Asker) []byte {
	if key, ok := bytes.CutPrefix(frame, []byte("read ")); ok {
		m.track.Interest(over, string(key))
		m.mu.Lock()
		defer m.mu.Unlock()
		return []byte(m.rows[string(key)])
	}
	m.mu.Lock()
	m.heard[frame[0]]++
	m.mu.Unlock()
	if err := m.track.Serve(ctx, frame, over); err != nil {
		return []byte(err.Error())
	}
	return []byte("served")
}

func served(answer []byte, err error) error {
	if err == nil && string(answer) != "served" {
		return errors.New(string(answer))
	}
	return err
}

func (m *member) Tell(ctx context.Context, over *link.Link, message []byte) error {
	return served(over.Call(ctx, message))
}

func (m *member) Insist(ctx context.Context, addr string, message []byte, _ bool) error {
	l, err := m.Link(ctx, addr)
	if err != nil {
		return err
	}
	return served(l.Call(ctx, message))
}

func (m *member) Conn(id int64) *resp.Conn                { return m.server.Conn(id) }
func (m *member) Decided(context.Context, []string) error { return nil }
func (m *member) Draining() bool                          { return false }
func (m *member) Closed() bool                            { return false }

// The methods of resp.Handler.

// handler is a member as its server sees it, for a Handler and a Node both have a Closed.
type handler struct{ *member }

func (h handler) Track(c *resp.Conn, is resp.Tracking) string { h.track.Track(c, is); return "" }
func (h handler) Idle(*resp.Conn)                             {}
func (h handler) Closed(c *resp.Conn) {
	if c.Tracks() {
		h.track.Track(c, resp.Tracking{})
	}
}

func (m *member) Gets(c *resp.Conn, cmd *resp.Command, keys [][]byte, w *resp.Writer) {
	for _, k := range keys {
		m.Command(c, cmd, [][]byte{[]byte("get"), k}, w)
	}
}

func (m *member) Sets(c *resp.Conn, cmd *resp.Command, pairs [][]byte, w *resp.Writer) {
	for p := range slices.Chunk(pairs, 2) {
		m.Command(c, cmd, [][]byte{[]byte("set"), p[0], p[1]}, w)
	}
}

// Exec reads and writes at this node in one transaction.
func (m *member) Exec(c *resp.Conn, cmds []resp.Queued, w *resp.Writer) {
	by := Writer{Conn: c.ID()}
	var changed []string
	w.Array(len(cmds))
	for _, q := range cmds {
		if key := string(q.Args[1]); q.Cmd.Name == "get" {
			by.Reads = m.track.Reading(c, q.Args[1:], w)
			w.Bulk([]byte(m.row(key)))
		} else {
			m.set(key, string(q.Args[2]))
			changed = append(changed, key)
			w.SimpleString("OK")
		}
	}
	m.track.Changed(changed, by)
}

func (m *member) row(key string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rows[key]
}

func (m *member) set(key, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows[key] = value
}

// Command has GET, SET at the owner of the key, DEL of several keys of the node, and FLUSHALL.
func (m *member) Command(c *resp.Conn, cmd *resp.Command, args [][]byte, w *resp.Writer) {
	by := Writer{}
	if c.Tracks() {
		by.Conn = c.ID()
	}
	switch cmd.Name {
	case "get":
		m.get(c, args[1], w)
	case "set":
		key := string(args[1])
		m.set(key, string(args[2]))
		w.MayBlock()
		owner := m.nodes[key[:1]]
		if by.Conn != 0 && owner != m { // over the link that reads take, as a node forwards it
			if l, err := m.Link(c.Context(), owner.name); err == nil {
				_ = l.Err()
			}
			by = Writer{}
		}
		owner.track.Changed([]string{key}, by)
		w.SimpleString("OK")
	case "del":
		var keys []string
		for _, k := range args[1:] {
			keys = append(keys, string(k))
		}
		m.track.Changed(keys, by)
		w.Int(int64(len(keys)))
	default:
		w.Error("ERR not here")
	}
}

func (m *member) get(c *resp.Conn, key []byte, w *resp.Writer) {
	name := string(key[:1])
	tracks := c.Tracks() && m.track.Reading(c, [][]byte{key}, w)
	if name == m.name || !tracks {
		w.Bulk([]byte(m.row(string(key))))
	} else {
		w.MayBlock()
		b, err := m.track.Call(c.Context(), name, append([]byte("read "), key...), c, [][]byte{key}, w)
		if err != nil { // the store has it, and nobody tells
			m.track.Disown(c, key)
			b = []byte(m.row(string(key)))
		}
		w.Bulk(b)
	}
	m.mu.Lock()
	ttl := m.ttls[string(key)]
	m.mu.Unlock()
	if tracks {
		m.track.Read(key, ttl)
	}
}

// client is a client of a node.
type client struct {
	t       *testing.T
	nc      net.Conn
	r       *bufio.Reader
	replies chan reply // as they arrive: a client that does not read is cut off
}

// reply is a reply or a push.
type reply struct {
	kind  byte
	words string
}

// dial connects a client to a node. With options it tracks.
func (c *cluster) dial(node string, tracking ...string) *client {
	c.t.Helper()
	ours, theirs := net.Pipe()
	c.nodes[node].conns <- theirs
	x := &client{c.t, ours, bufio.NewReader(ours), make(chan reply, 10000)}
	go func() {
		defer close(x.replies)
		for {
			r, err := x.read()
			if err != nil {
				return
			}
			x.replies <- r
		}
	}()
	c.t.Cleanup(func() { ours.Close() })
	x.do("HELLO 3")
	if tracking != nil {
		if got := x.do(strings.TrimSpace("CLIENT TRACKING ON " + strings.Join(tracking, " "))); !strings.HasPrefix(got, "OK") {
			c.t.Fatalf("CLIENT TRACKING ON %v: %s", tracking, got)
		}
	}
	return x
}

// do sends a command, and returns its answer, and behind it what was pushed before, as words.
func (x *client) do(line string) string {
	x.t.Helper()
	fmt.Fprintf(x.nc, "%s\r\n", line)
	var out []string
	for r := range x.replies {
		out = append(out, r.words)
		if r.kind != '>' {
			return strings.Join(append(out[len(out)-1:len(out):len(out)], out[:len(out)-1]...), " | ")
		}
	}
	x.t.Error("the connection has ended")
	return ""
}

// told returns what was pushed by now.
func (x *client) told() string {
	x.t.Helper()
	synctest.Wait()
	got := x.do("PING")
	return strings.TrimPrefix(strings.TrimPrefix(got, "PONG"), " | ")
}

// read reads one reply or push.
func (x *client) read() (reply, error) {
	line, err := x.r.ReadString('\n')
	if err != nil {
		return reply{}, err
	}
	line = strings.TrimSpace(line)
	kind, n := line[0], 0
	fmt.Sscan(line[1:], &n)
	switch kind {
	case '$':
		b := make([]byte, n+2)
		_, err := io.ReadFull(x.r, b)
		return reply{kind, string(b[:n])}, err
	case '*', '>', '%':
		if kind == '%' {
			n *= 2
		}
		var all []string
		for range n {
			r, err := x.read()
			if err != nil {
				return r, err
			}
			all = append(all, r.words)
		}
		return reply{kind, strings.Join(all, " ")}, nil
	case '_':
		return reply{kind, "everything"}, nil
	}
	return reply{kind, line[1:]}, nil
}

// hears wants pushes.
func (x *client) hears(what string, want string) {
	x.t.Helper()
	if got := x.told(); got != want {
		x.t.Errorf("%s: hears %q, want %q", what, got, want)
	}
}
