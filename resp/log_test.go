package resp

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Who is denied, refused or cut off is in the log, as events that programs can read, and
// what clients sent is not.
func TestWhoIsDeniedOrCutIsInTheLog(t *testing.T) {
	var log lockedBuffer
	s := serve(t, Options{Password: "secret", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	p := s.dial(t)
	p.says("AUTH wrongword", "-WRONGPASS...")
	p.says("AUTH secret", "OK")
	p.send("*1\r\n$-7\r\nprivate\r\n")
	_ = p.reply()
	p.ended()
	for _, want := range []string{`event=denied user="\"default\"" command=auth`, `event=client_cut why="it does not speak the Redis protocol"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, log.String())
		}
	}
	for _, secret := range []string{"wrongword", "secret", "private"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("what clients sent is in the log: %s", log.String())
		}
	}
	if st := s.Stats(); st.Denied != 1 || st.Protocol != 1 || st.In == 0 || st.Out == 0 {
		t.Errorf("%+v", st)
	}
}
