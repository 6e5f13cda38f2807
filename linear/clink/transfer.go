package clink

import (
	"slices"

	"github.com/freshet-cache/freshet/ticks"
)

// offers are entries of previous owners that came before the guard was in force.
type offers struct {
	list  []Offered
	bytes int
}

const (
	maxOffers     = 64 << 20 // bytes of offers that wait for a guard
	offerOverhead = 128
	maxWritten    = 4096 // after so many keys written in a period, nothing more is transferred
)

// offered handles an entry of the previous owner (R19). It keeps the entry until the guard is in
// force.
func (p *Pod) offered(now ticks.Tick, in Offered, out []Output) []Output {
	if pc, _ := p.guard(now, in.Key); pc != nil {
		return p.take(now, pc, in, out)
	}
	p.offers.list = append(p.offers.list, in)
	for p.offers.bytes += in.size(); p.offers.bytes > maxOffers; p.offers.list = p.offers.list[1:] {
		p.offers.bytes -= p.offers.list[0].size() // bounded memory: drop the oldest first
	}
	return out
}

func (o Offered) size() int { return len(o.Key) + len(o.Row.Value) + offerOverhead }

// transfer takes the entries that were offered for a piece whose guard was just installed. It also
// forgets offers of generations older than the piece, because nothing can use them.
func (p *Pod) transfer(now ticks.Tick, pc *piece, out []Output) []Output {
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

// take keeps an offered entry if it is certainly the latest state. It was the latest when the
// previous period ended, because that owner had dropped the keys in flight; and nobody has written
// it since.
func (p *Pod) take(now ticks.Tick, pc *piece, o Offered, out []Output) []Output {
	switch e, kept := p.entry(o.Key); {
	case o.After == 0 || o.After != pc.after: // R19: another period lies in between
	case pc.written[o.Key]: // R19: this pod has written the key since
	case kept && Serves(now, p.leases[e.Gen].Until, e.Until):
	default:
		out = p.keep(Keep{Key: o.Key, Row: o.Row, Gen: pc.gen}, append(out, Event{Transferred}))
	}
	return out
}

// wrote records that a key was written in this period.
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
