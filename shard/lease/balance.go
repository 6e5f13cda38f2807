package lease

import (
	"maps"
	"slices"
	"strings"

	"github.com/freshet-cache/freshet/ticks"
)

// Balance says how eagerly slices are cut, joined and moved.
type Balance struct {
	// MaxSlices bounds the slices per living node. Default 32.
	MaxSlices int
	// SplitRate is the rate, in operations per second, above which a slice is cut. Two neighbours
	// are joined if they stay below a tenth of it together. Default 2000.
	SplitRate uint64
	// Slack is how much busier the busiest node may be than the least busy one, in percent of the
	// mean, before a slice moves. Default 20.
	Slack uint64
	// Churn bounds the load that moves in a minute, in percent of the whole load. Default 10.
	Churn uint64
	// OneNode is the rate, in operations per second, that one node should carry for one key. A key
	// above it is replicated. Default 0: keys are replicated only if an operator asks for it.
	OneNode uint64
	// MaxReplicas bounds the replicas of a key. Default 4.
	MaxReplicas int
}

func (b *Balance) defaults() {
	if b.MaxSlices <= 0 {
		b.MaxSlices = 32
	}
	if b.SplitRate == 0 {
		b.SplitRate = 2000
	}
	if b.Slack == 0 {
		b.Slack = 20
	}
	if b.Churn == 0 {
		b.Churn = 10
	}
	if b.MaxReplicas <= 0 {
		b.MaxReplicas = 4
	}
}

// budget counts the load moved in the current minute.
type budget struct {
	start ticks.Tick
	moved uint64
}

const (
	minute   = ticks.Tick(60e9)
	maxMoves = 16 // recalls begun in one beat
)

// report records the load that a node reports.
func (a *Assigner) report(node string, loads []Load) {
	for _, l := range loads {
		for i := range a.slices {
			s := &a.slices[i]
			switch {
			case s.Gen != l.Gen:
			case s.Node == node:
				s.load = l
			default:
				s.report(node, l.Rate)
			}
		}
	}
}

// balance cuts a hot slice, moves the slices of leaving nodes, replicates hot keys, evens out the
// load, and joins cold slices.
func (a *Assigner) balance(now ticks.Tick) {
	nodes := a.living(now)
	if len(nodes) == 0 {
		return
	}
	a.split(now, len(nodes)*a.opt.Balance.MaxSlices)
	a.relieve(now)
	a.replicate(now)
	a.even(now, nodes)
	a.merge(now)
}

// living returns the nodes that may get slices, sorted.
func (a *Assigner) living(now ticks.Tick) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(a.nodes)) {
		if a.alive(now, name) && !a.nodes[name].leaving {
			out = append(out, name)
		}
	}
	return out
}

// split cuts the busiest slice that is above the threshold or has a key too hot for one node. It
// cuts around that key, or around one that makes up most of the load; otherwise at the middle of
// the sample.
func (a *Assigner) split(now ticks.Tick, most int) {
	best := -1
	for i, s := range a.slices {
		if !s.recalled && s.Node != "" && (s.load.Rate >= a.opt.Balance.SplitRate || a.tooHot(s)) && s.Range != Point(s.Low) &&
			len(a.points(s)) > 0 && (best < 0 || s.load.Rate > a.slices[best].load.Rate) {
			best = i
		}
	}
	if best >= 0 && len(a.slices)+2 <= most {
		a.Cut(now, a.points(a.slices[best]))
	}
}

// tooHot reports whether the hottest key of s needs replicas. Such a key must be a slice of its
// own.
func (a *Assigner) tooHot(s slice) bool {
	one := a.opt.Balance.OneNode
	return one > 0 && len(s.load.Hot) > 0 && s.load.Hot[0].Rate > one
}

// points returns where to cut a hot slice, or nothing if the sample does not say.
func (a *Assigner) points(s slice) []string {
	if len(s.load.Hot) > 0 {
		if hot := s.load.Hot[0]; (hot.Rate*2 >= s.load.Rate || a.tooHot(s)) && s.Contains(hot.Key) {
			p := Point(hot.Key)
			return slices.DeleteFunc([]string{p.Low, p.High}, func(at string) bool { return at <= s.Low || s.High != "" && at >= s.High })
		}
	}
	sample := slices.Sorted(slices.Values(s.load.Sample))
	if len(sample) < 3 {
		return nil
	}
	mid := len(sample) / 2
	if at := sample[mid]; at > s.Low && s.Contains(at) {
		return []string{separator(max(s.Low, sample[mid-1]), at)}
	}
	return nil
}

// separator returns the shortest key k with low < k <= high. low must be less than high.
func separator(low, high string) string {
	for i := range len(high) {
		if i >= len(low) || low[i] != high[i] {
			return high[:i+1]
		}
	}
	return high
}

// Cut cuts slices at the points. Nothing changes hands. It reports false, and does nothing, if
// there would be too many slices, or if their bounds would take too many bytes (A9).
func (a *Assigner) Cut(now ticks.Tick, points []string) bool {
	points = slices.Sorted(slices.Values(points))
	if !a.room(points) {
		return false
	}
	var next []slice
	for _, s := range a.slices {
		parts := s.Range.Cut(points)
		if len(parts) == 1 || s.recalled {
			next = append(next, s)
			continue
		}
		a.rev++
		for _, r := range parts {
			a.gen++
			p := s // including until: the old generation may be in use until then
			p.Lease, p.rev = Lease{r, a.gen}, a.rev
			if s.rev <= a.saved { // it may have been granted, and its owner may have written since and forgotten the keys
				p.after = 0
			}
			p.load = share(s.load, r, len(parts))
			p.fresh, p.apart = true, now+a.opt.Length
			next = append(next, p)
		}
	}
	a.slices = next
	return true
}

// room reports whether the state has room for cuts at the points (A9).
func (a *Assigner) room(points []string) bool {
	count, bytes := 0, 0
	for _, s := range a.slices {
		each := a.stateSize(&s)
		for _, r := range s.Range.Cut(points) {
			count++
			bytes += each + len(r.Low) + len(r.High)
		}
	}
	return count <= a.opt.MaxSlices && bytes <= a.opt.StateBytes
}

const (
	sliceBytes  = 32  // of a slice in the state, without its strings
	memberBytes = 256 // how much more the names of another owner or replica may take
)

// stateSize returns an upper bound of what a slice takes in the state, without its bounds. It
// leaves room for the names of later owners and replicas.
func (a *Assigner) stateSize(s *slice) int {
	n := sliceBytes + max(memberBytes, len(s.Node)+len(s.Addr)+len(s.Host))
	for range max(s.want, len(s.copies)) {
		n += memberBytes
	}
	return n
}

// share returns the part of a load that probably falls into r, one of n parts.
func share(l Load, r Range, n int) Load {
	out := Load{}
	for _, k := range l.Sample {
		if r.Contains(k) {
			out.Sample = append(out.Sample, k)
		}
	}
	out.Rate = l.Rate / uint64(n)
	if len(l.Sample) > 0 {
		out.Rate = l.Rate * uint64(len(out.Sample)) / uint64(len(l.Sample))
	}
	return out
}

// relieve moves the slices of nodes that leave.
func (a *Assigner) relieve(now ticks.Tick) {
	for i := range a.slices {
		s := &a.slices[i]
		if s.Node == "" || s.recalled || !a.nodes[s.Node].leaving {
			continue
		}
		if to := a.lightest(now); to != "" {
			s.recalled, s.next = true, to
		}
	}
}

// even moves slices from the busiest node to the least busy one, as long as it helps and the churn
// budget lasts. A slice that moved lately stays, because a second move at once would lose the
// entries that are being transferred.
func (a *Assigner) even(now ticks.Tick, nodes []string) {
	if now-a.budget.start >= minute {
		a.budget = budget{start: now}
	}
	for range maxMoves {
		weight, total := a.weights(nodes)
		hi, lo := nodes[0], nodes[0]
		for _, n := range nodes {
			if weight[n] > weight[hi] {
				hi = n
			}
			if weight[n] < weight[lo] {
				lo = n
			}
		}
		gap := weight[hi] - weight[lo]
		if gap*100*uint64(len(nodes)) <= total*a.opt.Balance.Slack {
			return
		}
		best, idle := -1, a.idle()
		for i, s := range a.slices {
			if s.Node == hi && !s.recalled && now >= s.stays && len(s.copies) == 0 && s.load.Rate+idle <= gap/2 && (best < 0 || s.load.Rate > a.slices[best].load.Rate) {
				best = i
			}
		}
		if best < 0 {
			return
		}
		s := &a.slices[best]
		if s.load.Rate > 0 && (a.budget.moved+s.load.Rate)*100 > a.rate()*a.opt.Balance.Churn {
			return
		}
		a.budget.moved += s.load.Rate
		s.recalled, s.next = true, lo
	}
}

// weights sums the weights of slices and replicas by the node that has them or will have them.
func (a *Assigner) weights(nodes []string) (map[string]uint64, uint64) {
	weight, idle := map[string]uint64{}, a.idle()
	var total uint64
	for _, s := range a.slices {
		to := s.Node
		if s.recalled {
			to = s.next
		}
		if slices.Contains(nodes, to) {
			weight[to] += s.load.Rate + idle
			total += s.load.Rate + idle
		}
		for _, c := range s.copies {
			if slices.Contains(nodes, c.Node) {
				weight[c.Node] += c.rate + 1
				total += c.rate + 1
			}
		}
	}
	return weight, total
}

// idle returns the weight of a slice without any load, so that idle slices spread over the nodes
// too.
func (a *Assigner) idle() uint64 { return 1 + a.rate()/uint64(8*len(a.slices)) }

// rate returns the load of all slices.
func (a *Assigner) rate() (sum uint64) {
	for _, s := range a.slices {
		sum += s.load.Rate
	}
	return sum
}

// merge joins the first two cold neighbours of one node. It leaves the cuts in First, and recent
// cuts, because an operator who cuts wants to move a part.
func (a *Assigner) merge(now ticks.Tick) {
	cold := a.opt.Balance.SplitRate / 10
	for i := 0; i+1 < len(a.slices); i++ {
		s, t := a.slices[i], a.slices[i+1]
		switch {
		case s.Node == "" || s.Node != t.Node || s.bound() || t.bound():
		case s.load.Rate+t.load.Rate >= cold || now < s.apart || now < t.apart:
		case slices.ContainsFunc(a.opt.First, func(at string) bool { return strings.Compare(at, t.Low) == 0 }):
		default:
			a.Join(t.Low)
			return
		}
	}
}

// Join removes the boundary at a point if one node owns both sides. Nothing changes hands. It
// reports false if it cannot.
func (a *Assigner) Join(at string) bool {
	for i := 0; i+1 < len(a.slices); i++ {
		s, t := a.slices[i], a.slices[i+1]
		if t.Low != at || s.Node != t.Node || s.bound() || t.bound() {
			continue
		}
		a.gen++
		a.rev++
		s.Lease = Lease{Range{s.Low, t.High}, a.gen}
		s.until, s.rev, s.after = max(s.until, t.until), a.rev, 0
		s.fresh, s.stays = true, max(s.stays, t.stays)
		s.load = Load{Rate: s.load.Rate + t.load.Rate, Sample: append(slices.Clone(s.load.Sample), t.load.Sample...)}
		a.slices = slices.Replace(a.slices, i, i+2, s)
		return true
	}
	return false
}

// Move begins to move the slice that holds key to another node. It reports false if it cannot.
func (a *Assigner) Move(key, to string) bool {
	for i := range a.slices {
		s := &a.slices[i]
		if _, ok := a.nodes[to]; ok && s.Contains(key) && s.Node != "" && s.Node != to && !s.recalled {
			s.recalled, s.next = true, to
			return true
		}
	}
	return false
}

// lightest returns the living node with the least weight, or "" if there is none.
func (a *Assigner) lightest(now ticks.Tick) string {
	nodes := a.living(now)
	weight, _ := a.weights(nodes)
	best := ""
	for _, n := range nodes {
		if best == "" || weight[n] < weight[best] {
			best = n
		}
	}
	return best
}
