package causal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/check"
	"github.com/freshet-cache/freshet/clock"
	"github.com/freshet-cache/freshet/codec"
	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/leader"
	"github.com/freshet-cache/freshet/member"
	"github.com/freshet-cache/freshet/member/view"
	"github.com/freshet-cache/freshet/store/memory"
	"github.com/freshet-cache/freshet/ticks"
)

// throne is a coordinator at which several leaders stand for election. Who leads changes when the test says so, and who
// led may take itself for the leader for a while.
type throne struct {
	l         *luck
	faulty    *atomic.Bool
	mu        sync.Mutex
	successor int // who may lead
	term      uint64
	holder    int
	until     map[uint64]ticks.Tick // by term
	state     []byte
	begun     uint32 // the incarnation with which the current ring began
	news      chan struct{}
}

// seat is a leader's side of it.
type seat struct {
	*throne
	at int
}

const (
	leaseLength = 2 * time.Second
	leadSlack   = 600 * time.Millisecond
)

func newThrone(l *luck, faulty *atomic.Bool) *throne {
	return &throne{l: l, faulty: faulty, holder: -1, until: map[uint64]ticks.Tick{}, news: make(chan struct{})}
}

// crown lets another leader lead, none if successor is below 0.
func (c *throne) crown(next int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.successor = next
	if c.holder != next {
		c.holder = -1
	}
	close(c.news)
	c.news = make(chan struct{})
}

func (s seat) Lead(ctx context.Context) (leader.Leadership, error) {
	for {
		s.mu.Lock()
		if news := s.news; s.successor != s.at {
			s.mu.Unlock()
			select {
			case <-news:
			case <-ctx.Done():
				return leader.Leadership{}, ctx.Err()
			}
			continue
		}
		s.term++
		term, state := s.term, s.state
		s.holder = s.at
		s.mu.Unlock()
		return leader.Leadership{Term: term, State: state, Slack: ticks.Tick(leadSlack), Until: func() ticks.Tick { return s.leads(term) }}, nil
	}
}

// leads is until when a term lasts.
func (s seat) leads(term uint64) ticks.Tick {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.term == term && s.holder == s.at {
		s.until[term] = clock.Clock{}.Now() + ticks.Tick(leadSlack)
	}
	return s.until[term]
}

func (s seat) Save(_ context.Context, term uint64, state []byte) error {
	if s.faulty.Load() {
		time.Sleep(time.Duration(s.l.upto(100)) * time.Millisecond)
		if s.l.upto(10) == 0 {
			return errors.New("not stored")
		}
	}
	s.mu.Lock()
	if s.term != term {
		s.mu.Unlock()
		return leader.ErrDeposed
	}
	s.begins(state)
	s.state = state
	s.mu.Unlock()
	if s.faulty.Load() && s.l.upto(10) == 0 {
		return errors.New("the answer was lost")
	}
	return nil
}

// begins remembers where a ring begins anew: nobody of the one before is in it.
func (c *throne) begins(state []byte) {
	was, _ := view.DecodeView(c.state)
	is, err := view.DecodeView(state)
	if err != nil {
		panic(err)
	}
	if len(is.Ring) > 0 && !slices.ContainsFunc(is.Ring, func(p view.Place) bool { return slices.Contains(was.Ring, p) }) {
		c.begun = is.Ring[0].Incarnation
	}
}

// stored is the latest view that was stored.
func (c *throne) stored(t *testing.T) (v view.View) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == nil {
		return v
	}
	v, err := view.DecodeView(c.state)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// kingdom is a ring of servers that come and go, and those who keep it. The clients of its cluster know servers by the
// places of their spaces.
type kingdom struct {
	cluster
	l       *luck
	faulty  atomic.Bool
	throne  *throne
	leaders []*member.Leader
	rings   []*Ring
	ended   []bool
	mute    []bool // nobody who keeps the ring is heard there
	silence time.Duration
	roads   []*road
	with    func(*Options)
}

// newKingdom begins one that ends with the test. Who is not heard of for as long as silence is left out.
func newKingdom(t *testing.T, l *luck, silence time.Duration, st memory.Options) *kingdom {
	k := &kingdom{l: l, silence: silence}
	t.Cleanup(k.close)
	k.store, k.throne = memory.NewJournal(st), newThrone(l, &k.faulty)
	for i := range 2 {
		k.leaders = append(k.leaders, k.ringLeader(i))
	}
	return k
}

func (k *kingdom) at(addr string) (i int) {
	_, _ = fmt.Sscan(addr, &i)
	return i
}

func (k *kingdom) ringLeader(i int) *member.Leader {
	return member.StartLeader(seat{k.throne, i}, member.LeaderOptions{Options: view.Options{Length: ticks.Tick(leaseLength), Silence: ticks.Tick(k.silence)}})
}

// join begins another process, whose node asks for a place.
func (k *kingdom) join(t *testing.T) int {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	i := len(k.rings)
	opt := Options{
		Store: k.store, Addr: fmt.Sprint(i), Host: fmt.Sprint("host ", i), Beat: 200 * time.Millisecond,
		Ask:  func(ctx context.Context, request []byte) ([]byte, error) { return k.ask(ctx, i, request) },
		Dial: k.dialRoad, Settings: Settings{Round: 20 * time.Millisecond, Timeout: time.Second, Versions: 2},
	}
	if k.with != nil {
		k.with(&opt)
	}
	r, err := Join(opt)
	if err != nil {
		t.Fatal(err)
	}
	sp, err := NewSpace(r, SpaceOptions[string]{Codec: codec.String(), Name: "test", Key: []byte("secret")})
	if err != nil {
		t.Fatal(err)
	}
	k.rings, k.ended, k.mute, k.spaces = append(k.rings, r), append(k.ended, false), append(k.mute, false), append(k.spaces, sp)
	return i
}

// ask takes a request to who leads, or to who does not, late, in vain or twice.
func (k *kingdom) ask(ctx context.Context, from int, request []byte) ([]byte, error) {
	to, none := k.leader(), errors.New("nobody says anything")
	if k.isMute(from) {
		return nil, none
	}
	if k.faulty.Load() {
		switch k.l.upto(12) {
		case 0:
			to = k.l.upto(2)
		case 1:
			return nil, none
		case 2:
			go func() { // it arrives twice, and late
				time.Sleep(time.Duration(k.l.upto(3000)) * time.Millisecond)
				k.answer(k.l.upto(2), request)
			}()
		}
		time.Sleep(time.Duration(k.l.upto(40)) * time.Millisecond)
	}
	answer := k.answer(to, request)
	if k.faulty.Load() {
		time.Sleep(time.Duration(k.l.upto(40)) * time.Millisecond)
		if k.l.upto(12) == 0 {
			answer = nil
		}
	}
	if answer == nil || ctx.Err() != nil {
		return nil, none
	}
	return answer, nil
}

func (k *kingdom) isMute(i int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return i < len(k.mute) && k.mute[i]
}

func (k *kingdom) setMute(i int, mute bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mute[i] = mute
}

func (k *kingdom) leader() int {
	k.throne.mu.Lock()
	defer k.throne.mu.Unlock()
	return max(0, k.throne.holder)
}

func (k *kingdom) answer(to int, request []byte) []byte {
	k.mu.Lock()
	leader := k.leaders[to]
	k.mu.Unlock()
	return leader.Answer(request)
}

// living are the places of processes that have not ended.
func (k *kingdom) living() (out []int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.rings {
		if !k.ended[i] {
			out = append(out, i)
		}
	}
	return out
}

// end ends a process: without a word, or by leaving the ring first.
func (k *kingdom) end(i int, leave bool) {
	k.mu.Lock()
	r := k.rings[i]
	k.ended[i] = true
	k.mu.Unlock()
	if leave {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = r.Leave(ctx)
	} else if s, err := r.Server(); err == nil {
		s.crash()
	}
	r.Close()
}

// judge looks into all servers at one instant: what is visible at one of them was received by all members. What was
// visible in a ring whose members are all gone comes back when it is recovered.
func (k *kingdom) judge(t *testing.T) {
	v := k.throne.stored(t)
	defer func() {
		if why := recover(); why != nil {
			t.Fatal(why)
		}
	}()
	k.throne.mu.Lock()
	begun := k.throne.begun
	k.throne.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	var members, others []*mesh.Server
	for i, r := range k.rings {
		s, err := r.Server()
		if err != nil || k.ended[i] {
			continue
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		switch member := slices.ContainsFunc(v.Ring, func(p view.Place) bool { return p.Incarnation == s.opt.Incarnation }); {
		case s.machine == nil || s.closed || s.opt.Incarnation < begun:
		case member:
			members = append(members, s.machine)
		default:
			others = append(others, s.machine)
		}
		if s.machine != nil {
			s.machine.Check()
		}
	}
	mesh.CheckRing(members, others...)
}

// turn lets something happen to the kingdom.
func (k *kingdom) turn(t *testing.T) {
	switch living := k.living(); k.l.upto(12) {
	case 0, 1:
		k.throne.crown(k.l.upto(2))
	case 2:
		k.throne.crown(-1)
		time.Sleep(time.Duration(k.l.upto(4000)) * time.Millisecond)
		k.throne.crown(k.l.upto(2))
	case 3: // a process ends in which a leader runs
		i := k.l.upto(2)
		k.mu.Lock()
		old := k.leaders[i]
		k.leaders[i] = k.ringLeader(i)
		k.mu.Unlock()
		old.Close()
		k.throne.crown(1 - i)
	case 4, 5:
		k.setMute(living[k.l.upto(len(living))], true)
	case 6:
		for _, i := range living {
			k.setMute(i, false)
		}
	case 7, 8, 9:
		if len(living) < 5 {
			k.join(t)
		}
	default:
		if len(living) > 2 || k.l.upto(8) == 0 {
			k.end(living[k.l.upto(len(living))], k.l.upto(3) == 0)
		}
		if len(k.living()) == 0 {
			k.join(t)
		}
	}
}

// reign lets clients roam while the kingdom is disturbed, and waits until everything is in order again.
func (k *kingdom) reign(t *testing.T, seed, turns int) *history {
	h, stop := &history{}, make(chan struct{})
	var wg, links sync.WaitGroup
	links.Go(func() { k.breakRoads(stop) })
	k.faulty.Store(true)
	for i := range 4 {
		cl := &client{h: h, c: &k.cluster, r: rand.New(rand.NewPCG(uint64(seed), uint64(i))), name: fmt.Sprint("c", i), s: k.spaces[0].Begin(), at: k.living}
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(k.l.upto(120)) * time.Millisecond):
					cl.act(t)
				}
			}
		})
	}
	defer func() {
		k.faulty.Store(false)
		for _, i := range k.living() {
			k.setMute(i, false)
		}
		close(stop)
		wg.Wait()
		links.Wait()
	}()
	for range turns {
		for range 5 {
			time.Sleep(time.Duration(k.l.upto(300)) * time.Millisecond)
			k.judge(t)
		}
		k.turn(t)
	}
	return h
}

// peace waits until every process is in the ring and all agree with the store. It does not ask that every incarnation that is
// over be retired.
func (k *kingdom) peace(t *testing.T) {
	k.throne.crown(0)
	living := k.living()
	testkit.Eventually(t, func() bool {
		v := k.throne.stored(t)
		return len(v.Ring) == len(living) && !slices.ContainsFunc(living, func(i int) bool {
			s, err := k.rings[i].Server()
			return err != nil || !s.Joined()
		})
	})
	var spaces []*Space[string]
	for _, i := range living {
		spaces = append(spaces, k.spaces[i])
	}
	whole := cluster{store: k.store, spaces: spaces}
	whole.agrees(t)
}

func (k *kingdom) close() {
	for _, i := range k.living() {
		k.end(i, false)
	}
	for _, leader := range k.leaders {
		leader.Close()
	}
	for _, r := range k.roads {
		r.Break()
	}
	time.Sleep(10 * time.Second) // of virtual time: what is late has arrived
}

// The ring that ships, with its leaders, over virtual time: who keeps it changes, servers join, leave and end without a
// word, what they ask is late, lost or repeated, connections break, and the store is slow and does not answer. What
// workflows see is causally consistent, what is visible anywhere is everywhere, and in the end all agree with the store.
func TestLeadersInVirtualTime(t *testing.T) {
	seeds := 12
	if testing.Short() {
		seeds = 3
	}
	acts, views := 0, uint64(0)
	for seed := range seeds {
		emptyPools()
		synctest.Test(t, func(t *testing.T) {
			var k *kingdom
			l := &luck{r: rand.New(rand.NewPCG(uint64(seed), 13))}
			slow := l.slowly(3*time.Second, func() bool { return k.faulty.Load() })
			k = newKingdom(t, l, leaseLength/time.Duration(1+3*(seed%2)), memory.Options{Before: slow, After: slow})
			for range 3 {
				k.join(t)
			}
			h := k.reign(t, seed, 40)
			k.peace(t)
			acts += len(h.acts)
			views += k.throne.stored(t).Number
			if v := check.Causal(h.acts); !v.OK {
				t.Fatalf("seed %d: %s\n%s", seed, v.Reason, strings.Join(v.Witness, "\n"))
			}
		})
	}
	emptyPools()
	t.Logf("%d acts, %d views", acts, views)
	if acts < 300*seeds || views < uint64(10*seeds) {
		t.Error("too little has happened to judge")
	}
}
