package node

import (
	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/resp"
)

// session is what belongs to a connection.
type session struct {
	watch []watched
	hits  uint64 // not yet counted
	copy  uint64 // of them, from replicas
	names []string
	out   []linear.Entry[string]

	spaces map[int]*any // what promises keep of the connection, by database
}

// session is made when it is first needed.
func (n *Node) session(c *resp.Conn) *session {
	s, ok := c.State.(*session)
	if !ok {
		s = &session{}
		c.State = s
	}
	return s
}

// in is what a promise keeps of the connection in a database.
func (s *session) in(db int) *any {
	if s.spaces == nil {
		s.spaces = map[int]*any{}
	}
	if s.spaces[db] == nil {
		s.spaces[db] = new(any)
	}
	return s.spaces[db]
}

// Idle implements resp.Handler.
func (n *Node) Idle(c *resp.Conn) {
	if s, ok := c.State.(*session); ok && s.hits > 0 {
		n.m.hit(s.hits, s.copy)
		s.hits, s.copy = 0, 0
	}
}

// Reset implements resp.Resetter.
func (n *Node) Reset(c *resp.Conn) {
	n.Idle(c)
	c.State = nil
}

func (s *session) hit(replica bool) {
	if s.hits++; replica {
		s.copy++
	}
}
