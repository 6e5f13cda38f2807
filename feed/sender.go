package feed

// DefaultRing is how many messages a Sender keeps unless it is told otherwise.
const DefaultRing = 1024

// Sender numbers the messages of one incarnation. It is not safe for concurrent use.
type Sender[M any] struct {
	ring []M // the message with number n is at n modulo its length (F2)
	last uint64
}

// NewSender returns a Sender that keeps the last size messages. Default DefaultRing.
func NewSender[M any](size int) *Sender[M] {
	if size <= 0 {
		size = DefaultRing
	}
	return &Sender[M]{ring: make([]M, size)}
}

// Next returns the number that the next message takes.
func (s *Sender[M]) Next() uint64 { return s.last + 1 }

// Last returns the number of the latest message, or 0 if there is none.
func (s *Sender[M]) Last() uint64 { return s.last }

// Oldest returns the smallest number that can be sent again. It is Next if there is none.
func (s *Sender[M]) Oldest() uint64 {
	if size := uint64(len(s.ring)); s.last >= size {
		return s.last - size + 1
	}
	return 1
}

// Append gives a message the next number (F1) and keeps it.
func (s *Sender[M]) Append(m M) uint64 {
	s.last++
	s.ring[s.last%uint64(len(s.ring))] = m
	return s.last
}

// Resend answers a request for the messages from one number to another, inclusive, with at most so
// many of them, the first of which has the number from. If ok is false, the first is no longer here,
// and the receiver needs a snapshot (F2).
func (s *Sender[M]) Resend(from, to uint64, most int) (msgs []M, ok bool) {
	if from < s.Oldest() {
		return nil, false // F2
	}
	for n := from; n <= min(to, s.last) && len(msgs) < most; n++ {
		msgs = append(msgs, s.ring[n%uint64(len(s.ring))])
	}
	return msgs, true
}
