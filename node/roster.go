package node

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
)

// ClusterMember is a node of the cluster, as the process with the assigner sees it.
type ClusterMember struct {
	ID          string    `json:"id"`
	Incarnation string    `json:"incarnation"`
	Addr        string    `json:"addr"`
	Leaving     bool      `json:"leaving,omitempty"`
	Lost        bool      `json:"lost,omitempty"`       // it has ended or stands still, and did not say so before
	Since       time.Time `json:"since,omitzero"`       // when it was lost
	Slices      int       `json:"slices"`               // that it owns
	Writable    time.Time `json:"writable_at,omitzero"` // when others take writes for the slices of a lost node; zero: not known
}

// Membership is all members, and the slices that take no writes because of them.
type Membership struct {
	Members    []ClusterMember `json:"members"`
	Unwritable int             `json:"unwritable_slices"`
	Writable   time.Time       `json:"writable_at,omitzero"`
}

const (
	lostAfter   = 500 * time.Millisecond // that the link of a node has been broken
	silentBeats = 3                      // without a renewal, after which a node is lost too
	forgetAfter = time.Hour              // a lost node that owns nothing
)

// beat is how often nodes renew their leases.
func (p *Process) beat() time.Duration { return min(p.cfg.Lease/5, defaultBeat) }

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

// askMembers asks the process with the assigner how the members are.
func (p *Process) askMembers(ctx context.Context, leaderAddr string) (m Membership, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, membersTimeout)
	defer cancel()
	b, err := p.nodes[0].ask(ctx, leaderAddr, []byte{frameVersion, frameMembers})
	if err != nil || len(b) < 2 || b[0] != answerDone || json.Unmarshal(b[1:], &m) != nil {
		return Membership{}, false
	}
	return m, true
}

// membersFrame answers that question.
func (p *Process) membersFrame() []byte {
	m := p.watch.membership.Load()
	if !p.leads() || m == nil {
		return append([]byte{answerError}, "ERR no assigner is here"...)
	}
	b, _ := json.Marshal(m)
	return append([]byte{answerDone}, b...)
}

// absent is the membership as a process knows it that does not reach the leader at
// addr, which has been so since then: the others are as they were.
func (p *Process) absent(old Membership, addr string, since time.Time) Membership {
	out := Membership{Members: slices.Clone(old.Members)}
	t := p.nodes[0].shard.Table()
	lost := map[string]bool{}
	for i := range out.Members {
		m := &out.Members[i]
		m.Slices = 0
		for _, s := range t.Slices {
			if s.Node == m.Incarnation {
				m.Slices++
			}
		}
		if m.Addr == addr && !m.Lost {
			m.Lost, m.Since = true, since
			if _, onEtcd, _ := p.cfg.etcd(); onEtcd { // another leader is elected, and waits for a lease
				m.Writable = since.Add(p.cfg.Lease * 3 / 2)
			}
		}
		if m.Lost {
			lost[m.Incarnation] = true
		}
	}
	for _, s := range t.Slices {
		if s.Node == "" || lost[s.Node] {
			out.Unwritable++
		}
	}
	out.Members = slices.DeleteFunc(out.Members, func(m ClusterMember) bool { return m.Addr == addr && m.Lost && m.Slices == 0 }) // it handed over first
	for _, m := range out.Members {
		if m.Lost && m.Writable.After(out.Writable) {
			out.Writable = m.Writable
		}
	}
	return out
}
