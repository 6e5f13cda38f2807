package lease

import (
	"maps"
	"slices"
	"strings"
)

// Balance says how eagerly slices are split, merged and moved.
type Balance struct {
	// MaxSlices bounds the slices per living node. Default 32.
	MaxSlices int
	// SplitRate is the operations per second above which a slice is split, and a
	// tenth of which two neighbours must stay below to be merged. Default 2000.
	SplitRate uint64
	// Slack is how much busier than the least busy node the busiest may be, in
	// percent of the mean, before a slice moves. Default 20.
	Slack uint64
	// Churn bounds the load moved in a minute, in percent of all. Default 10.
	Churn uint64
	// OneNode is the operations per second of one key that one node should carry;
	// above it the key is replicated. Default 0: only if an operator says so.
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

// budget counts the load moved in the present minute.
type budget struct {
	start Tick
	moved uint64
}

const (
	minute   = Tick(60e9)
	maxMoves = 16 // recalls begun in one beat
)

// report takes a node's load.
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

// balance splits what is hot, relieves who leaves, evens out, and merges what
// is cold.
func (a *Assigner) balance(now Tick) {
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

// living are the nodes that may be given slices, sorted.
func (a *Assigner) living(now Tick) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(a.nodes)) {
		if a.alive(now, name) && !a.nodes[name].leaving {
			out = append(out, name)
		}
	}
	return out
}

// split cuts the busiest slice above the threshold, or with a key that is too much for
// one node: around such a key, or one that makes up most of it, else at the middle of
// its sample.
func (a *Assigner) split(now Tick, most int) {
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

// tooHot reports whether the key of s that is asked most needs replicas, for which it
// must be alone.
func (a *Assigner) tooHot(s slice) bool {
	one := a.opt.Balance.OneNode
	return one > 0 && len(s.load.Hot) > 0 && s.load.Hot[0].Rate > one
}

// points are where a hot slice is to be cut; none if nothing is known.
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

// separator is the shortest key k with low < k <= high; low is less than high.
func separator(low, high string) string {
	for i := range len(high) {
		if i >= len(low) || low[i] != high[i] {
			return high[:i+1]
		}
	}
	return high
}

// Cut splits slices at the points. Nothing changes hands. It reports false, and does
// nothing, if there would be too many slices, or their bounds would take too many bytes
// (A9).
func (a *Assigner) Cut(now Tick, points []string) bool {
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
			p := s // the lease book too: the old generation may be in use until then
			p.Lease, p.rev = Lease{r, a.gen}, a.rev
			if s.rev <= a.saved { // it may have been granted: its owner may have written since, and forgotten what
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

// room reports whether slices can be cut at the points (A9).
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
	sliceBytes  = 32  // of a slice in a state, beside its texts
	memberBytes = 256 // what the names of another owner or replica may take more
)

// stateSize is at least what a slice takes in a state, without its bounds. It leaves room
// for the names of those who will hold it.
func (a *Assigner) stateSize(s *slice) int {
	n := sliceBytes + max(memberBytes, len(s.Node)+len(s.Addr)+len(s.Host))
	for range max(s.want, len(s.copies)) {
		n += memberBytes
	}
	return n
}

// share is the part of a load that likely falls into r, one of n parts.
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
func (a *Assigner) relieve(now Tick) {
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

// even moves slices from the busiest node to the least busy one, as long as it
// helps and the churn budget lasts. What has moved lately stays, for a slice that
// moves on at once leaves its memory behind.
func (a *Assigner) even(now Tick, nodes []string) {
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

// weights sums the slices by the node that has or will have them.
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

// idle is what a slice weighs besides its load, for being a slice at all: idle ones
// spread too.
func (a *Assigner) idle() uint64 { return 1 + a.rate()/uint64(8*len(a.slices)) }

// rate is the load of all slices.
func (a *Assigner) rate() (sum uint64) {
	for _, s := range a.slices {
		sum += s.load.Rate
	}
	return sum
}

// merge joins the first two cold neighbours of one node, but not the cut a new
// cluster began with, nor what was cut lately: who cuts wants to move a part.
func (a *Assigner) merge(now Tick) {
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

// Join removes the boundary at a point if both sides are one node's. Nothing
// changes hands.
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

// Move begins to move the slice that holds key to another node.
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

// lightest is the living node with the least weight.
func (a *Assigner) lightest(now Tick) string {
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
