package kit

import (
	"bufio"
	"errors"
	"net"
	"time"

	"github.com/freshet-cache/freshet/resp"
)

// info returns what a redis-server answers to INFO; empty if it does not answer.
func info(addr string) string {
	c, err := DialPlain(addr)
	if err != nil {
		return ""
	}
	defer c.Close()
	r, err := c.Do("INFO", "server")
	if err != nil {
		return ""
	}
	return r.Text
}

// Plain is a simple connection, for requests that need not be fast.
type Plain struct {
	net.Conn
	r *bufio.Reader
}

// DialPlain connects.
func DialPlain(addr string) (*Plain, error) {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil, err
	}
	return &Plain{c, bufio.NewReader(c)}, nil
}

// Do sends a command and reads its answer. An error answer is returned as an error.
func (p *Plain) Do(args ...string) (resp.Reply, error) {
	if err := p.SetDeadline(time.Now().Add(quietLimit)); err != nil {
		return resp.Reply{}, err
	}
	if _, err := p.Write(resp.AppendCommand(nil, args...)); err != nil {
		return resp.Reply{}, err
	}
	r, err := resp.ReadReply(p.r)
	if err == nil && r.Kind == '-' {
		err = errors.New(r.Text)
	}
	return r, err
}
