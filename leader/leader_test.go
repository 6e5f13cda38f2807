package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/ticks"
)

// office is a coordinator that answers as the test says: one error for each save to come, then none.
type office struct {
	mu    sync.Mutex
	term  uint64
	saves []error
	state string
	gate  chan struct{} // a save waits until it is closed; nil: it does not
}

func (o *office) Lead(ctx context.Context) (Leadership, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.term++
	return Leadership{Term: o.term, State: []byte(o.state)}, ctx.Err()
}

func (o *office) Save(_ context.Context, _ uint64, state []byte) error {
	if o.gate != nil {
		<-o.gate
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.saves) > 0 {
		err := o.saves[0]
		o.saves = o.saves[1:]
		return err
	}
	o.state = string(state)
	return nil
}

// diary is a candidate that writes down what it is told, and leads until it is told to stop.
type diary struct {
	mu    sync.Mutex
	lines []string
	over  bool // its leadership
	bad   bool // it cannot read the state
}

func (d *diary) add(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) Elected(l Leadership) error {
	d.add("elected %d %q until %v", l.Term, l.State, l.Ends() == 1<<63-1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over = false; d.bad {
		return errors.New("cannot read it")
	}
	return nil
}

func (d *diary) Beat(Leadership) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.over
}

func (d *diary) Saved(s State, size int, err error) {
	d.add("saved %d.%d, %d bytes: %v", s.Term, s.Number, size, err)
}

func (d *diary) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// Every save has one answer, a save that has not begun gives way to a later one, and who no longer
// leads stands again with what was stored last.
func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		broken := errors.New("no answer")
		o, d := &office{saves: []error{broken, ErrStateTooLarge, ErrDeposed}}, &diary{}
		l := New(o, Options{Beat: time.Second, Name: "scribe", Halts: "nothing moves", Logger: slog.New(slog.NewTextHandler(&log, nil))})
		l.Start(d)
		synctest.Wait()
		state := func(n uint64, text string) State {
			return State{Term: 1, Number: n, Encode: func() []byte { return []byte(text) }}
		}
		for n := uint64(1); n <= 4; n++ {
			l.Save(state(n, "abcd"[:n]))
			synctest.Wait()
			if trouble := l.Trouble(); (n <= 2) != strings.Contains(trouble, "nothing moves") {
				t.Errorf("after save %d the trouble is %q", n, trouble)
			}
			time.Sleep(1500 * time.Millisecond)
		}
		o.gate = make(chan struct{})
		l.Save(state(5, "five"))
		synctest.Wait()
		l.Save(state(6, "six"))
		l.Save(state(7, "seven"))
		close(o.gate)
		synctest.Wait()
		d.set(func() { d.over, d.bad = true, true })
		time.Sleep(2500 * time.Millisecond)
		if !strings.Contains(l.Trouble(), "no scribe leads here: cannot read it") {
			t.Errorf("the trouble is %q", l.Trouble())
		}
		d.set(func() { d.bad = false })
		time.Sleep(2 * time.Second)
		if l.Trouble() != "" {
			t.Errorf("it leads, and the trouble is %q", l.Trouble())
		}
		l.Close()
		want := []string{
			`elected 1 "" until true`,
			"saved 1.1, 1 bytes: no answer", "saved 1.2, 2 bytes: " + ErrStateTooLarge.Error(), "saved 1.3, 3 bytes: " + ErrDeposed.Error(), "saved 1.4, 4 bytes: <nil>",
			"saved 1.5, 4 bytes: <nil>", "saved 1.7, 5 bytes: <nil>", `elected 2 "seven" until true`, `elected 3 "seven" until true`,
		}
		if got := strings.Join(d.lines, "\n"); got != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
		if !strings.Contains(log.String(), "scribe does not lead") || strings.Count(log.String(), "coordinator does not save") != 2 {
			t.Errorf("the log is %s", log.String())
		}
	})
}

// A leadership without an end or a host list says so.
func TestLeadershipWithoutDetails(t *testing.T) {
	l := Leadership{}
	if l.Ends() != 1<<63-1 || l.Ended("host") {
		t.Errorf("it ends at %d, a host has ended: %v", l.Ends(), l.Ended("host"))
	}
	l = Leadership{Until: func() ticks.Tick { return 7 }, Gone: func(host string) bool { return host == "a" }}
	if l.Ends() != 7 || !l.Ended("a") || l.Ended("b") {
		t.Error("it does not say what the coordinator says")
	}
}
