package wire

import "slices"

// Incarnation is one run of a node. Its number is not 0 and is never used again.
type Incarnation uint64

// Heartbeat says what its sender has published and heard.
type Heartbeat struct {
	Beat   uint64 // grows by one with each heartbeat of the incarnation, from 1
	Last   uint64 // the number of the latest notice (P2)
	Marks  uint64 // how many of the sender's mutations are under way
	Server uint64 // the server of the shared tier that the sender marks on; 0: none (T4)
	Hello  bool   // the sender writes nothing before all that it names have echoed it (P4)
	Echoes []Echo // one for every incarnation that the sender knows of, by number
}

// Echo is the largest Beat that the sender of a Heartbeat has heard of an incarnation, or 0.
type Echo struct {
	Of   Incarnation
	Beat uint64
}

// Notice announces a mutation that is about to be sent to the store, or closes one.
type Notice struct {
	Number uint64   // in the sender's feed
	Closes uint64   // the number of the notice that announced the mutation; 0: this one announces (Dirty)
	Names  []string // keys, and tags of keys
}

// Missing asks for the notices from one number to another, inclusive. From 0 asks for a Snapshot.
type Missing struct{ From, To uint64 }

// Snapshot stands for the notices up to Last: it has the mutations under way.
type Snapshot struct {
	Last  uint64
	Marks []Mark
}

// Mark is a mutation under way.
type Mark struct {
	Number uint64 // of the notice that announced it
	Names  []string
}

// Leave says that the sender ends with no mutation under way.
type Leave struct{ Last uint64 }

// Message is what nodes say to each other: a Heartbeat, Notice, Missing, Snapshot or Leave.
type Message interface{ message() }

func (Heartbeat) message() {}
func (Notice) message()    {}
func (Missing) message()   {}
func (Snapshot) message()  {}
func (Leave) message()     {}

// Moment is when a session last read or wrote at an incarnation: after its heartbeat Beat, and before
// the next one.
type Moment struct {
	Of        Incarnation
	Beat      uint64
	Elsewhere bool // what the session saw then may not have been in the incarnation's memory (S3)
}

// Token is what a session carries: at most three moments, one of an incarnation. A Token is never
// changed in place.
type Token []Moment

// Moments is how many moments a token has at most.
const Moments = 3

// With returns a token with one more moment. A fourth incarnation takes the place of the first one that
// is not self's, which becomes the moment self, elsewhere.
func (t Token) With(moment, self Moment) Token {
	t = slices.Clone(t)
	if i := slices.IndexFunc(t, func(o Moment) bool { return o.Of == moment.Of }); i >= 0 {
		t[i].Beat, t[i].Elsewhere = max(t[i].Beat, moment.Beat), t[i].Elsewhere || moment.Elsewhere
		return t
	}
	if t = append(t, moment); len(t) <= Moments {
		return t
	}
	i := slices.IndexFunc(t, func(o Moment) bool { return o.Of != self.Of })
	return slices.Delete(t, i, i+1).With(self, self)
}
