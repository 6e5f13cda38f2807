package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/freshet-cache/freshet/causal"
	"github.com/freshet-cache/freshet/codec"
	"github.com/freshet-cache/freshet/leader/embedded"
	"github.com/freshet-cache/freshet/leader/etcd"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/member"
	memberview "github.com/freshet-cache/freshet/member/view"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/store/memory"
	"github.com/freshet-cache/freshet/store/pebble"
	"github.com/freshet-cache/freshet/store/postgres"
	"github.com/freshet-cache/freshet/ticks"
)

// tccVersions is how many values of a key a space with transactions keeps.
const tccVersions = 8

// causalSpace is a causal space in this process: what its nodes share.
type causalSpace struct {
	name       string
	db         int // what SELECT takes for it; 0: nothing
	versions   int
	merge      func(a, b []byte) []byte // nil: the larger stamp wins
	store      causal.RingStore
	host       string
	coord      coordinator    // nil if the leader is in another process
	leader     *member.Leader // nil if coord is
	leaderAddr func() string  // the address of the process whose leader leads
	log        causal.Log     // nil unless it is asynchronous
}

// ring is how nodes call the space among themselves: who acknowledges from a log and who does
// not would not understand each other.
func (s *causalSpace) ring() string {
	if s.log != nil {
		return s.name + " async"
	}
	return s.name
}

// causalNode is a node's part of a space.
type causalNode struct {
	is    *causalSpace
	ring  *causal.Ring
	space *causal.Space[[]byte]
	keyed bool // the key of its tokens was given
}

// merges are the merge functions that a space knows by name.
var merges = map[string]func(a, b []byte) []byte{"max": causal.MergeMax, "union": causal.MergeUnion}

// openCausal opens the spaces, and keeps who is in their rings if this process coordinates.
func (p *Process) openCausal() error {
	if p.cfg.Spaces.async() {
		var err error
		p.causalLog, err = pebble.Open(filepath.Join(p.cfg.Data, "causal-log"), pebble.Options{NoSync: p.cfg.NoSync, Logger: p.log})
		if err != nil {
			return fmt.Errorf("the log of causal spaces: %w", err)
		}
	}
	for _, one := range p.cfg.Spaces {
		s := &causalSpace{name: one.Name, db: one.DB, versions: 1, merge: merges[one.Merge], host: p.host, leaderAddr: p.leaderAddr}
		if one.TCC {
			s.versions = tccVersions
		}
		var err error
		if s.store, err = p.causalStore(s); err == nil && one.Async {
			s.log, err = p.causalLog.Journal(s.name)
		}
		if err == nil {
			err = p.coordinateCausal(s)
		}
		if err != nil {
			return fmt.Errorf("the space %s: %w", s.name, err)
		}
		p.causal = append(p.causal, s)
		if s.coord != nil {
			s.leader = member.StartLeader(s.coord, member.LeaderOptions{Options: memberview.Options{Length: ticks.Tick(p.cfg.Lease)}, Clock: p.clock, Logger: p.log})
		}
	}
	return nil
}

func (p *Process) causalStore(of *causalSpace) (rows causal.RingStore, err error) {
	switch s := p.store.(type) {
	case *pebble.Store:
		rows, err = s.Journal(of.name)
	case *postgres.Store:
		rows, err = s.Journal(of.name)
	default:
		rows = memory.NewJournal(memory.Options{})
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	return rows, rows.KeepSiblings(ctx, of.merge != nil)
}

// coordinateCausal opens the coordinator of a space's ring, beside that of the assigner.
func (p *Process) coordinateCausal(s *causalSpace) error {
	if strings.HasPrefix(p.cfg.Coordinator, joinScheme) {
		return nil
	}
	if opt, ok, err := p.cfg.etcd(); ok || err != nil {
		if err != nil {
			return err
		}
		if opt.Prefix == "" {
			opt.Prefix = "freshet/"
		}
		opt.Prefix += "causal/" + s.name + "/"
		opt.Addr, opt.TTL, opt.Clock, opt.Logger = p.nodes[0].addr, p.cfg.Lease/2, p.clock, p.log
		ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
		defer cancel()
		c, err := etcd.Open(ctx, opt)
		if err != nil {
			return err
		}
		s.coord, s.leaderAddr = c, c.Leader
		return nil
	}
	dir := ""
	if p.cfg.Store != "memory:" {
		dir = filepath.Join(p.cfg.Data, "coordinator-causal-"+s.name)
	}
	c, err := embedded.Open(dir)
	if err != nil {
		return err
	}
	s.coord, s.host = c, c.Host()
	return nil
}

// causalMemory bounds what the keys of a space take in memory.
func (c *Config) causalMemory() int {
	if c.CausalMemory > 0 {
		return int(c.CausalMemory)
	}
	return int(c.Memory)
}

// joinRings asks for a place in the ring of every space.
func (n *Node) joinRings() error {
	n.causal = map[string]*causalNode{}
	for _, s := range n.p.causal {
		c := &causalNode{is: s}
		var err error
		c.ring, err = causal.Join(causal.Options{
			Store: s.store, Addr: n.addr, Host: s.host, Clock: n.p.clock, Beat: min(n.p.cfg.Lease/10, 200*time.Millisecond),
			Ask:      func(ctx context.Context, request []byte) ([]byte, error) { return n.askLeader(ctx, s, request) },
			Dial:     c.dialer(n),
			Settings: causal.Settings{Timeout: n.p.cfg.Timeout, Versions: s.versions, Concurrent: s.merge != nil, Keys: n.p.cfg.CausalKeys, Bytes: n.p.cfg.causalMemory(), Recorder: n.m.causal.space(n, s.name), Logger: n.log, Log: s.log},
		})
		if err != nil {
			return err
		}
		key := n.p.cfg.TokenKey
		if key == "" {
			key = n.p.cfg.Password
		}
		c.space, err = causal.NewSpace(c.ring, causal.SpaceOptions[[]byte]{Codec: codec.Bytes(), Merge: s.merge, MaxValue: n.p.cfg.MaxValue, Name: n.p.cluster + "/" + s.name, Key: []byte(key)})
		if err != nil {
			return err
		}
		c.keyed = key != ""
		n.causal[s.name] = c
	}
	return nil
}

// askLeader asks whoever keeps the ring of a space.
func (n *Node) askLeader(ctx context.Context, s *causalSpace, request []byte) ([]byte, error) {
	leaderAddr := s.leaderAddr()
	switch {
	case leaderAddr == "":
		return nil, errors.New("node: nobody keeps the ring; a leader is being elected")
	case s.leader != nil && leaderAddr == n.p.nodes[0].addr:
		if b := s.leader.Answer(request); b != nil {
			return b, nil
		}
		return nil, errors.New("node: the leader of the ring is being elected")
	}
	b, err := n.peers.call(ctx, leaderAddr, append(appendBytes([]byte{frameVersion, frameRing}, []byte(s.ring())), request...))
	switch {
	case err != nil:
		return nil, err
	case len(b) > 1 && b[0] == answerDone:
		return b[1:], nil
	}
	return nil, fmt.Errorf("node: the process at %s does not keep the ring of %s; start all processes with the same --space flags", leaderAddr, s.name)
}

// keep answers what a node of another process asks the leader of a ring.
func (n *Node) keep(frame []byte) []byte {
	s := scan{b: frame[2:]}
	name := string(s.bytes())
	for _, is := range n.p.causal {
		if is.ring() == name && is.leader != nil && !s.bad {
			if b := is.leader.Answer(s.b); b != nil {
				return append([]byte{answerDone}, b...)
			}
		}
	}
	return append([]byte{answerError}, "ERR no leader of this ring is here"...)
}

// dialer opens connections to the next server of a ring.
func (c *causalNode) dialer(n *Node) func(ctx context.Context, to causal.RingServer, deliver func([]byte)) (causal.Conn, error) {
	return func(_ context.Context, to causal.RingServer, deliver func([]byte)) (causal.Conn, error) {
		nc, r, err := n.peers.open(to.Addr, "causal", c.is.ring())
		if err != nil {
			return nil, err
		}
		return link.New(nc, r, link.Options{MaxFrame: n.p.maxFrame(), MaxQueue: ringQueue, Message: deliver}), nil
	}
}

// ringQueue is the most that waits to be sent to another server of a ring. The windows of
// all servers bound it: what did not fit would be sent again, and would not fit again.
const ringQueue = math.MaxInt

// ringLink lets another node have a connection as the one before this node in a ring.
func (n *Node) ringLink(c *resp.Conn, name string, w *resp.Writer) {
	is := n.causal[strings.TrimSuffix(name, " async")]
	if is == nil || is.is.ring() != name {
		w.Error(fmt.Sprintf("ERR no causal space %.64q is open at this node; start all processes with the same --space flags", name))
		return
	}
	w.SimpleString("OK")
	c.Hijack(func(nc net.Conn, r *bufio.Reader) {
		var deliver func([]byte)
		made := make(chan struct{})
		l := link.New(nc, r, link.Options{MaxFrame: n.p.maxFrame(), MaxQueue: ringQueue, Message: func(f []byte) {
			<-made
			deliver(f)
		}})
		deliver = is.ring.Accept(l)
		close(made)
		<-l.Done()
		l.Wait()
	})
}

// leaveRings has the others go on without this node.
func (n *Node) leaveRings(ctx context.Context) {
	for _, c := range n.causal {
		if len(c.ring.View().Ring) < 2 {
			continue
		}
		if err := c.ring.Leave(ctx); err != nil {
			n.log.Warn("this node could not leave a ring; the others go on without it when its lease is over", "space", c.is.name, "err", err)
		}
	}
}

func (n *Node) closeRings() {
	for _, c := range n.causal {
		c.ring.Close()
	}
}

func (p *Process) closeCausal() (err error) {
	for _, s := range p.causal {
		if s.leader != nil {
			s.leader.Close()
			err = errors.Join(err, s.coord.Close())
		}
	}
	if p.causalLog != nil {
		err = errors.Join(err, p.causalLog.Close())
	}
	return err
}

// RingState is the ring of a causal space, as a node sees it.
type RingState struct {
	Space    string   `json:"space"`
	View     uint64   `json:"view"`
	Ring     []string `json:"ring"`     // addresses
	Departed int      `json:"departed"` // former incarnations whose writes not every server has yet
	Joined   bool     `json:"joined"`
	// Incarnations are the departed ones; in an asynchronous space until their logs are back.
	Incarnations []uint32 `json:"incarnations,omitempty"`
	// Owes counts the writes of this node that are in its log and not in the store.
	Owes uint64 `json:"owes,omitempty"`
}

// giveUp ends the waiting for the log of an incarnation.
func (p *Process) giveUp(ctx context.Context, space string, incarnation uint64) error {
	for _, s := range p.causal {
		if s.name == space && s.log != nil && incarnation > 0 && incarnation == uint64(uint32(incarnation)) {
			p.log.Warn("the log of an incarnation is given up; what only it had is lost", "space", space, "incarnation", incarnation)
			return causal.GiveUp(ctx, s.store, uint32(incarnation))
		}
	}
	return errors.New("name a causal space with async, and one of the incarnations in the rings of /api/state")
}

// rings are those of this node.
func (n *Node) rings() (out []RingState) {
	for _, s := range n.p.causal {
		c := n.causal[s.name]
		if c == nil {
			continue
		}
		v := c.ring.View()
		r := RingState{Space: s.name, View: v.Number, Departed: len(v.Departed), Ring: []string{}, Incarnations: v.Departed}
		for _, m := range v.Ring {
			r.Ring = append(r.Ring, m.Addr)
		}
		server, err := c.ring.Server()
		if r.Joined = err == nil && server.Joined(); r.Joined {
			r.Owes = server.Owes()
		}
		out = append(out, r)
	}
	return out
}
