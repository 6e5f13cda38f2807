package bench

import (
	"context"
	"net"
	"strings"
	"testing"
)

// A load that cannot connect says why.
func TestLoadWithoutAServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	if _, err := newLoad(context.Background(), addr, 2); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("connected to nobody: %v", err)
	}
}
