package node

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"net"
)

// maxFrame is the longest that nodes say to each other: any command that a client may
// send, and what surrounds it.
func (p *Process) maxFrame() int { return max(64<<20, 2*p.cfg.MaxValue) + 4<<20 }

// ask sends a request to another node. See peer.Peers.Call for its errors.
func (n *Node) ask(ctx context.Context, addr string, frame []byte) ([]byte, error) {
	return n.peers.Call(ctx, addr, laneOf(frame), frame)
}

// unique is a name nothing else has.
func unique() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// clientTLS is how nodes talk to each other: with the certificate they serve,
// whose issuer, or itself, they trust.
func (p *Process) clientTLS() (*tls.Config, error) {
	if p.tls == nil {
		return nil, nil
	}
	name := p.cfg.TLSCA
	if name == "" {
		name = p.cfg.TLSCert
	}
	pool, err := trusted(name)
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

func bind(flag, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("--%s %s: %w; stop who listens there, or choose another port", flag, addr, err)
	}
	return l, nil
}
