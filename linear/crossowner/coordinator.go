package crossowner

import (
	"maps"
	"slices"
)

// Token is a guard under which an owner locks a key.
type Token [16]byte

// Status says how the transaction ended.
type Status uint8

// The statuses.
const (
	OK            Status = iota // it was committed
	Mismatch                    // it was not and will not be: the store had another guard for a key
	Refused                     // it was not and will not be, for another reason
	StatusUnknown               // unknown: it may have been, or may still be
)

// Outcome is what an owner or the caller knows in the end.
type Outcome uint8

// The outcomes.
const (
	Done    Outcome = iota // it was committed
	Failed                 // it was not and will not be: the transaction itself failed
	Again                  // it was not and will not be, but another attempt may
	Unknown                // it may have been, or may still be
)

// Input is something that has happened.
type Input interface{ input() }

// Locked answers Lock: the caller may write the keys, each under its guard.
type Locked struct {
	Owner  string
	Guards []Token // in the order of the Lock's Keys
}

// Denied answers Lock: the owner refuses to lock the keys, or does not answer.
type Denied struct {
	Owner string
	Sure  bool // the owner has certainly locked no key
}

// Ran answers Run.
type Ran struct{ Status Status }

// Found answers a Settle whose Status is StatusUnknown: it says what the owner knows.
type Found struct {
	Owner   string
	Outcome Outcome
}

// GivenUp: the caller's deadline has passed.
type GivenUp struct{}

func (Locked) input()  {}
func (Denied) input()  {}
func (Ran) input()     {}
func (Found) input()   {}
func (GivenUp) input() {}

// Output is something for the runtime to do. Outputs are in order.
type Output interface{ output() }

// Lock asks an owner to lock keys, which are sorted.
type Lock struct {
	Owner string
	Keys  []string
}

// Run begins the transaction, which commits only if these guards cover their keys. The runtime
// answers Run within a time that the owners know.
type Run struct{ Guards map[string]Token }

// Settle tells an owner how the transaction ended. An owner answers only StatusUnknown.
type Settle struct {
	Owner  string
	Status Status
}

// Reply answers the caller.
type Reply struct{ Outcome Outcome }

func (Lock) output()   {}
func (Run) output()    {}
func (Settle) output() {}
func (Reply) output()  {}

// Coordinator runs one attempt at one transaction. It is not safe for concurrent use.
type Coordinator struct {
	keys   map[string][]string // the keys of each owner
	owners []string            // in the order in which they are asked (B1)
	asked  int                 // how many owners were asked; the last of them may not have answered
	guards map[string]Token
	state  state
	open   map[string]bool // owners that have not answered Settle yet
}

type state uint8

const (
	asking state = iota
	running
	finding
	ended
)

// New returns a coordinator and its first outputs. keys has the keys of each owner, sorted; it must
// have at least one key.
func New(keys map[string][]string) (*Coordinator, []Output) {
	b := &Coordinator{keys: keys, owners: slices.Sorted(maps.Keys(keys)), guards: map[string]Token{}, open: map[string]bool{}}
	return b, b.next(nil)
}

// Step takes one input and appends the outputs to out. After a Reply it does nothing.
func (b *Coordinator) Step(in Input, out []Output) []Output {
	switch in := in.(type) {
	case Locked:
		if b.state != asking || in.Owner != b.owners[b.asked-1] {
			return out
		}
		for i, k := range b.keys[in.Owner] {
			b.guards[k] = in.Guards[i]
		}
		return b.next(out)
	case Denied:
		if b.state != asking {
			return out
		}
		if in.Sure {
			b.asked--
		}
		return b.end(Again, Refused, out)
	case GivenUp:
		switch b.state {
		case asking: // the owner asked last may lock its keys later (B3)
			return b.end(Again, Refused, out)
		case finding:
			return b.reply(Unknown, out)
		}
		return out // the answer to Run decides
	case Ran:
		if b.state != running {
			return out
		}
		return b.ran(in.Status, out)
	case Found:
		return b.found(in, out)
	}
	panic("crossowner: unknown input")
}

// next asks the next owner (B1), or begins the transaction (B2).
func (b *Coordinator) next(out []Output) []Output {
	if b.asked == len(b.owners) {
		b.state = running
		return append(out, Run{b.guards})
	}
	b.asked++
	owner := b.owners[b.asked-1]
	return append(out, Lock{owner, b.keys[owner]})
}

func (b *Coordinator) ran(status Status, out []Output) []Output {
	switch status {
	case OK:
		return b.end(Done, OK, out)
	case Mismatch:
		return b.end(Again, Mismatch, out)
	case Refused:
		return b.end(Failed, Refused, out)
	}
	b.state = finding
	for _, o := range b.owners {
		b.open[o] = true
		out = append(out, Settle{o, StatusUnknown})
	}
	return out
}

// end settles with every owner that was asked (B3) and answers the caller.
func (b *Coordinator) end(o Outcome, status Status, out []Output) []Output {
	for _, owner := range b.owners[:b.asked] {
		out = append(out, Settle{owner, status})
	}
	return b.reply(o, out)
}

// found handles what one owner knows (B4).
func (b *Coordinator) found(in Found, out []Output) []Output {
	if b.state != finding || !b.open[in.Owner] {
		return out
	}
	delete(b.open, in.Owner)
	if in.Outcome != Unknown || len(b.open) == 0 {
		return b.reply(in.Outcome, out)
	}
	return out
}

func (b *Coordinator) reply(o Outcome, out []Output) []Output {
	b.state = ended
	return append(out, Reply{o})
}
