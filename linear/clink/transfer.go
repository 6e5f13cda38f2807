package clink

import (
	"slices"

	"github.com/freshet-cache/freshet/shard/lease"
)

// offers are entries of last owners that came before the guard stood.
type offers struct {
	list  []Offered
	bytes int
}

const (
	maxOffers     = 64 << 20 // bytes that wait for their guard
	offerOverhead = 128
	maxWritten    = 4096 // keys written in a period before nothing more is transferred
)

// offered takes an entry of the last owner (R19), now or when its guard stands.
func (p *Pod) offered(now lease.Tick, in Offered, out []Output) []Output {
	if pc, _ := p.guard(now, in.Key); pc != nil {
		return p.take(now, pc, in, out)
	}
	p.offers.list = append(p.offers.list, in)
	for p.offers.bytes += in.size(); p.offers.bytes > maxOffers; p.offers.list = p.offers.list[1:] {
		p.offers.bytes -= p.offers.list[0].size() // the oldest has waited long enough
	}
	return out
}

func (o Offered) size() int { return len(o.Key) + len(o.Row.Value) + offerOverhead }

// transfer takes what was offered for a piece whose guard has just been
// installed. Offers that this node can do nothing with any more are forgotten:
// those of generations that are older than what it holds.
func (p *Pod) transfer(now lease.Tick, pc *piece, out []Output) []Output {
	p.offers.list = slices.DeleteFunc(p.offers.list, func(o Offered) bool {
		if !pc.rng.Contains(o.Key) || o.After >= pc.gen {
			return false
		}
		out = p.take(now, pc, o, out)
		p.offers.bytes -= o.size()
		return true
	})
	return out
}

// take keeps an offered entry if it is surely the latest state: it was when the
// last owner's period ended, what that owner had in flight it had dropped, and
// nobody has written since.
func (p *Pod) take(now lease.Tick, pc *piece, o Offered, out []Output) []Output {
	switch e, kept := p.entry(o.Key); {
	case o.After == 0 || o.After != pc.after: // R19: another period lies in between
	case pc.written[o.Key]: // R19: we have written it ourselves since
	case kept && Serves(now, p.leases[e.Gen].Until, e.Until):
	default:
		out = p.keep(Keep{Key: o.Key, Row: o.Row, Gen: pc.gen}, append(out, Event{Transferred}))
	}
	return out
}

// wrote remembers that a key is being written in this period.
func (pc *piece) wrote(key string) {
	switch {
	case pc.after == 0:
	case len(pc.written) >= maxWritten:
		pc.after, pc.written = 0, nil
	case pc.written == nil:
		pc.written = map[string]bool{key: true}
	default:
		pc.written[key] = true
	}
}
