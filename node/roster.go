package node

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
)

const (
	lostAfter   = 500 * time.Millisecond // that the link of a node has been broken
	silentBeats = 3                      // without a renewal, after which a node is lost too
	forgetAfter = time.Hour              // a lost node that owns nothing
)

// roster is what the process with the assigner knows of the members.
type roster struct {
	mu  sync.Mutex
	all map[string]*standing // by incarnation
}

type standing struct {
	ClusterMember
	seen  time.Time
	link  *link.Link
	broke time.Time // zero while the link stands
}

func idOf(incarnation string) string {
	id, _, _ := strings.Cut(incarnation, "/")
	return id
}

// renewed takes that a node has asked for leases over a link.
func (r *roster) renewed(in *lease.Renew, over *link.Link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]*standing{}
	}
	s := r.all[in.Node]
	if s == nil {
		if len(r.all) >= maxMembers {
			return
		}
		s = &standing{ClusterMember: ClusterMember{ID: idOf(in.Node), Incarnation: in.Node}}
		r.all[in.Node] = s
	}
	s.Addr, s.Leaving, s.seen, s.link, s.broke = in.Addr, in.Leaving, time.Now(), over, time.Time{}
}

// broken takes that a link broke.
func (r *roster) broken(l *link.Link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.all {
		if s.link == l && s.broke.IsZero() {
			s.broke = time.Now()
		}
	}
}

// begin fills the roster of a process that has become the leader with the members that
// it knew before, and the owners of slices.
func (r *roster) begin(known []ClusterMember, owners []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]*standing{}
	}
	for _, o := range owners {
		known = append(known, ClusterMember{ID: idOf(o), Incarnation: o})
	}
	for _, m := range known {
		if m.Incarnation != "" && r.all[m.Incarnation] == nil && len(r.all) < maxMembers {
			s := &standing{ClusterMember: m, seen: time.Now()}
			if m.Lost {
				s.broke = m.Since
			}
			r.all[m.Incarnation] = s
		}
	}
}

// end forgets everything: another process leads.
func (r *roster) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.all)
}

// survey says how the members are now. endings are what the assigner has granted, own
// the incarnations of this process.
func (r *roster) survey(now time.Time, silence time.Duration, endings map[string]shard.Ending, own map[string]bool) Membership {
	r.mu.Lock()
	defer r.mu.Unlock()
	newest := map[string]*standing{} // by id
	for name, s := range r.all {
		s.Slices = endings[name].Slices
		broke := !s.broke.IsZero()
		switch {
		case own[name]:
			s.Lost = false
		case broke && s.Leaving && s.Slices == 0, s.Lost && s.Slices == 0 && now.Sub(s.Since) > forgetAfter:
			delete(r.all, name) // it has left
			continue
		case broke && now.Sub(s.broke) >= lostAfter, now.Sub(s.seen) > silence:
			if !s.Lost {
				s.Lost, s.Since = true, now
				if broke {
					s.Since = s.broke
				}
			}
		default:
			s.Lost, s.Since = false, time.Time{}
		}
		if s.Writable = (time.Time{}); s.Lost {
			s.Writable = now.Add(endings[name].Left)
		}
		if o := newest[s.ID]; o == nil || o.seen.Before(s.seen) {
			newest[s.ID] = s
		}
	}
	out := Membership{Members: []ClusterMember{}}
	for name, s := range r.all {
		if newest[s.ID] != s { // the same node incarnations again
			if s.Slices == 0 {
				delete(r.all, name)
			}
			continue
		}
		out.Members = append(out.Members, s.ClusterMember)
	}
	for name, e := range endings {
		if s := r.all[name]; name == "" || s == nil || s.Lost || newest[s.ID] != s {
			out.Unwritable += e.Slices
			if at := now.Add(e.Left); at.After(out.Writable) {
				out.Writable = at
			}
		}
	}
	slices.SortFunc(out.Members, func(a, b ClusterMember) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
