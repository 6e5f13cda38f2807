package explore

import (
	"fmt"
	"slices"

	"github.com/freshet-cache/freshet/eventual/fanout"
	"github.com/freshet-cache/freshet/eventual/fanout/tier"
)

// reach lets a node find the server of the tier.
func (w *caches) reach(i int) {
	if n := w.nodes[i]; w.left.Tier && !n.ended {
		n.run = w.run
		w.step(i, fanout.Reached{Server: n.run})
	}
}

// share carries out what a node asks of the tier. What it asks is done at once; the answer to a Fetch is
// on its way until it arrives.
func (w *caches) share(i int, n *cacher, out fanout.Output) {
	server := func(id uint64) *tier.Tier {
		if w.tiers[id] == nil {
			w.tiers[id] = tier.New()
		}
		return w.tiers[id]
	}
	mark := func(op fanout.Op) tier.MarkID { return tier.MarkID{Of: uint64(n.id), Op: uint64(op)} }
	switch out := out.(type) {
	case fanout.MarkTier:
		in := fanout.TierMarked{Op: out.Op, Server: out.Server, Names: out.Names, Seq: out.Seq}
		switch {
		case n.run == 0:
			in.Status = fanout.Unknown
		case out.Op == 0 && len(out.Names) == 0:
			server(out.Server).Clear()
		default:
			server(out.Server).Mark(mark(out.Op), out.Names, w.now+out.TTL)
		}
		w.todo = append(w.todo, func() { w.step(i, in) })
	case fanout.UnmarkTier:
		if n.run != 0 {
			server(out.Server).Unmark(mark(out.Op), out.Names)
		}
	case fanout.Fetch:
		f := &fetching{node: i, load: out.Load, key: out.Key, tier: true, read: true, got: map[string]int{}, in: fanout.Fetched{Load: out.Load, Status: fanout.Unknown}}
		if n.run != 0 {
			v, found, lease, counter := server(out.Server).Get(w.now, out.Key)
			f.got[out.Key] = v.Version
			f.in = fanout.Fetched{Load: out.Load, Found: found, Tags: v.Tags, Lease: lease, Counter: counter}
		}
		w.loads = append(w.loads, f)
	case fanout.Fill:
		for _, f := range w.loads {
			if n.run != 0 && f.node == i && f.load == out.Load && !f.tier {
				server(out.Server).Set(w.now, out.Key, out.Lease, tier.Value{Tags: out.Tags, Counter: out.Counter, Version: f.got[out.Key]})
			}
		}
	}
	for _, t := range w.tiers {
		t.Check()
	}
}

func (w *caches) tierChoices(spend func(*int, text, func()), add func(text, func())) {
	if !w.left.Tier {
		return
	}
	spend(&w.left.Failovers, says("another server of the tier takes over"), func() { w.run++ })
	for i, n := range w.nodes {
		switch {
		case !n.runs():
		case n.run != w.run:
			add(says("%d reaches server %d of the tier", n.id, w.run), func() { w.reach(i) })
		default:
			spend(&w.left.TierCuts, says("%d and the tier do not hear each other", n.id), func() { n.run = 0 })
		}
	}
	for _, key := range w.left.Keys {
		spend(&w.left.TierLoses, says("the tier evicts %s", key), func() {
			for _, t := range w.tiers {
				t.Evict(key)
			}
		})
	}
}

// finish lets a load come to its end, whoever is asked.
func (w *caches) finish(f *fetching) {
	if !f.tier {
		w.fetch(f)
	}
	w.fetched(f)
}

// dumpTiers returns the tier as text.
func (w *caches) dumpTiers() (out []string) {
	for id, t := range w.tiers {
		out = append(out, fmt.Sprint(id, t.Dump()))
	}
	slices.Sort(out)
	return append(out, fmt.Sprint(w.run, w.epoch, w.names))
}

// shared says whether a node asks the tier for what it does not have.
func (w *caches) shared(i int, n *cacher, key string) {
	delete(n.entries, key)
	w.step(i, fanout.Evicted{Key: key})
	w.read(i, key, false)
	if len(w.loads) == 0 || !w.loads[0].tier {
		w.fail("faults are over, and %d does not use the tier", n.id)
	}
	for len(w.loads) > 0 {
		w.finish(w.loads[0])
	}
}
