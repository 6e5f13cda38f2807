// Package causalspace offers causal spaces at the nodes of a process: it joins their rings, and
// answers commands of sessions that carry tokens, and plain commands of connections that have
// selected a space. What a session may rely on is what package causal promises.
package causalspace

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"github.com/freshet-cache/freshet/causal"
	"github.com/freshet-cache/freshet/codec"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/member"
	"github.com/freshet-cache/freshet/member/view"
	"github.com/freshet-cache/freshet/node/promise"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/store/memory"
	"github.com/freshet-cache/freshet/store/pebble"
	"github.com/freshet-cache/freshet/store/postgres"
	"github.com/freshet-cache/freshet/ticks"
)

// Promise is the promise causal.
type Promise struct{}

// Name implements promise.Promise.
func (Promise) Name() string { return "causal" }

// Commands implements promise.Promise.
func (Promise) Commands() ([]resp.Command, string) { return commands, "session" }

// merges are the merge functions that a space knows by name.
var merges = map[string]func(a, b []byte) []byte{"max": causal.MergeMax, "union": causal.MergeUnion}

// versions is how many values of a key a space with transactions keeps.
const versions = 8

// Check implements promise.Promise.
func (p Promise) Check(all []promise.Space, at promise.Place) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	async := false
	for _, s := range all {
		async = async || s.Has("async")
		for name, value := range s.Options {
			switch {
			case name == "merge" && value != "" && merges[value] == nil:
				fail("--space %s: no merge function is called %.110q; there are max and union, or none", s.Name, value)
			case name == "merge" && value != "", (name == "tcc" || name == "async") && value == "":
			default:
				if value != "" {
					name += "=" + value
				}
				fail("--space %s: nothing is known of the option %.110q; there are merge=union, merge=max, tcc, async and db=NUMBER", s.Name, name)
			}
		}
		if s.Has("async") && s.Has("merge") {
			fail("--space %s: async does not go with merge", s.Name)
		}
	}
	if len(all) > 0 && at.Store != "pebble" && at.Store != "memory" && at.Store != "postgres" {
		fail("--space: causal spaces keep their rows in pebble:, memory: or postgres://, no other store")
	}
	if async && at.Data == "" {
		fail("--space: async acknowledges writes from a log on this node's disk; name a directory for it with --data")
	}
	if async && at.Store == "memory" {
		fail("--space: async promises to find writes again after a crash; --store memory: loses what they were written over, use pebble: or postgres://")
	}
	return errors.Join(errs...)
}

// spaces implements promise.Spaces.
type spaces struct {
	p   promise.Process
	all []*space
	log *pebble.Store // of spaces that are asynchronous
}

// Open implements promise.Promise.
func (Promise) Open(p promise.Process, all []promise.Space) (promise.Spaces, error) {
	out := &spaces{p: p}
	for _, one := range all {
		if err := out.open(one); err != nil {
			return nil, errors.Join(fmt.Errorf("the space %s: %w", one.Name, err), out.Close())
		}
	}
	return out, nil
}

// open opens a space, and leads its ring if this process coordinates.
func (s *spaces) open(one promise.Space) (err error) {
	if one.Has("async") && s.log == nil {
		s.log, err = pebble.Open(filepath.Join(s.p.Data, "causal-log"), pebble.Options{NoSync: s.p.NoSync, Logger: s.p.Log})
		if err != nil {
			return fmt.Errorf("the log of causal spaces: %w", err)
		}
	}
	sp := &space{Space: one, merge: merges[one.Options["merge"]]}
	if err = s.rows(sp); err == nil && one.Has("async") {
		sp.log, err = s.log.Journal(one.Name)
	}
	if err == nil {
		sp.seat, err = s.p.Coordinate("causal/" + one.Name)
	}
	if err != nil {
		return err
	}
	s.all = append(s.all, sp)
	if sp.seat.Coordinator != nil {
		sp.leader = member.StartLeader(sp.seat.Coordinator, member.LeaderOptions{Options: view.Options{Length: ticks.Tick(s.p.Lease)}, Clock: s.p.Clock, Logger: s.p.Log})
	}
	return nil
}

// openTimeout bounds how long a store may take to open.
const openTimeout = 30 * time.Second

// rows opens where a space keeps its rows.
func (s *spaces) rows(sp *space) (err error) {
	switch st := s.p.Rows.(type) {
	case *pebble.Store:
		sp.store, err = st.Journal(sp.Name)
	case *postgres.Store:
		sp.store, err = st.Journal(sp.Name)
	default:
		sp.store = memory.NewJournal(memory.Options{})
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	return sp.store.KeepSiblings(ctx, sp.merge != nil)
}

// Admin implements promise.Spaces.
func (s *spaces) Admin() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{"POST /api/causal/give-up": func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), s.p.Timeout)
		defer cancel()
		incarnation, _ := strconv.ParseUint(r.FormValue("incarnation"), 10, 64)
		if err := s.giveUp(ctx, r.FormValue("space"), incarnation); err != nil {
			http.Error(w, "nothing is known to have happened: "+err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintln(w, "given up")
	}}
}

// giveUp ends the waiting for the log of an incarnation.
func (s *spaces) giveUp(ctx context.Context, name string, incarnation uint64) error {
	for _, sp := range s.all {
		if sp.Name == name && sp.log != nil && incarnation > 0 && incarnation == uint64(uint32(incarnation)) {
			s.p.Log.Warn("the log of an incarnation is given up; what only it had is lost", "space", name, "incarnation", incarnation)
			return causal.GiveUp(ctx, sp.store, uint32(incarnation))
		}
	}
	return errors.New("name a causal space with async, and one of the incarnations in the rings of /api/state")
}

// Close implements promise.Spaces.
func (s *spaces) Close() (err error) {
	for _, sp := range s.all {
		if sp.leader != nil {
			sp.leader.Close()
			err = errors.Join(err, sp.seat.Close())
		}
	}
	if s.log != nil {
		err = errors.Join(err, s.log.Close())
	}
	return err
}

// Join implements promise.Spaces: it asks for a place in the ring of every space.
func (s *spaces) Join(at promise.Node) (promise.Member, error) {
	n := &node{Node: at, p: s.p}
	metrics := newMetrics(n)
	for _, sp := range s.all {
		c := &part{is: sp}
		var err error
		settings := causal.Settings{Timeout: s.p.Timeout, Versions: 1, Concurrent: sp.merge != nil, Keys: s.p.Keys, Bytes: s.p.Memory, Recorder: metrics.space(sp.Name), Logger: at.Log, Log: sp.log}
		if sp.Has("tcc") {
			settings.Versions = versions
		}
		c.ring, err = causal.Join(causal.Options{
			Store: sp.store, Addr: at.Addr, Host: sp.seat.Host, Clock: s.p.Clock, Beat: min(s.p.Lease/10, 200*time.Millisecond),
			Ask: func(ctx context.Context, request []byte) ([]byte, error) { return n.askLeader(ctx, sp, request) },
			Dial: func(_ context.Context, to causal.RingServer, deliver func([]byte)) (causal.Conn, error) {
				l, err := at.Peers.Stream(to.Addr, sp.ring(), deliver)
				if err != nil {
					return nil, err
				}
				return l, nil
			},
			Settings: settings,
		})
		if err != nil {
			n.Close()
			return nil, err
		}
		n.all = append(n.all, c)
		c.space, err = spaceOf(n, c, causal.SpaceOptions[[]byte]{Codec: codec.Bytes(), Merge: sp.merge})
		if err != nil {
			n.Close()
			return nil, err
		}
		c.keyed = s.p.Secret != ""
		at.Services.OfferStream(sp.ring(), func(l *link.Link) func([]byte) { return c.ring.Accept(l) })
		at.Services.Offer(sp.ring(), func(_ context.Context, request []byte) ([]byte, error) { return sp.answer(request) })
	}
	return n, nil
}
