// Package leader elects one process at a time to decide for a cluster, and keeps what it decided: a
// [Candidate] leads only while its coordinator says so, and learns of each state that it saved
// whether the state will survive it.
//
// A [Coordinator] implements the election: leader/embedded for one process and its directory,
// leader/etcd for several processes. A [Loop] stands for election with it and carries out what the
// Candidate decides.
package leader

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/internal/drive"
	"github.com/freshet-cache/freshet/ticks"
)

// Leadership is the right to decide, for one term.
type Leadership struct {
	Term  uint64
	State []byte // the state that the predecessor saved; nil if there was none
	// Gone reports whether a host, and every node on it, has certainly ended. Nil: no host is known
	// to have ended.
	Gone func(host string) bool
	// Slack is how long the predecessor might still believe that it leads.
	Slack ticks.Tick
	// Until returns when the leadership ends unless it is renewed, by the clock of the process. Nil:
	// it lasts as long as the coordinator is open.
	Until func() ticks.Tick
}

// Ends returns when the leadership ends unless it is renewed.
func (l Leadership) Ends() ticks.Tick {
	if l.Until == nil {
		return 1<<63 - 1
	}
	return l.Until()
}

// Ended reports whether a host has certainly ended.
func (l Leadership) Ended(host string) bool { return l.Gone != nil && l.Gone(host) }

// Coordinator elects one leader at a time and stores the state that must survive the leader.
type Coordinator interface {
	// Lead waits until this process leads.
	Lead(ctx context.Context) (Leadership, error)
	// Save stores state durably. It returns ErrDeposed if term is not the newest, and
	// ErrStateTooLarge if the state will never be stored. After any other error the state may be
	// stored or not, but it must not be stored after a later one.
	Save(ctx context.Context, term uint64, state []byte) error
}

var (
	// ErrDeposed means that another process leads. Stop deciding.
	ErrDeposed = errors.New("leader: deposed: another process leads a newer term")
	// ErrStateTooLarge means that a state was not stored and never will be.
	ErrStateTooLarge = errors.New("leader: the state is too large for the coordinator")
)

// State is a state to be saved. Term and Number name it; Encode is called once, outside the
// Candidate's locks.
type State struct {
	Term, Number uint64
	Encode       func() []byte
}

// Candidate decides while it leads. A Loop calls its methods from two goroutines: Elected and Beat
// from one, Saved from the other. They may call Loop.Save.
type Candidate interface {
	// Elected begins a term. It returns an error if it cannot read the state.
	Elected(l Leadership) error
	// Beat is called once a beat during the term. It reports false if the term is over, which the
	// Candidate decides by its clock.
	Beat(l Leadership) (leads bool)
	// Saved says what became of a state: it was stored (nil), never will be (ErrDeposed,
	// ErrStateTooLarge), or may be stored or not. In the last case the Candidate passes the state,
	// or a newer one, to Save again.
	Saved(s State, size int, err error)
}

// Options configure a Loop. Clock readings are the Candidate's own.
type Options struct {
	// Beat is the time between two calls of Candidate.Beat, and between two attempts at anything
	// that failed. It must be positive.
	Beat time.Duration
	// Name says in the log who leads, and Halts what stands still while no state can be saved.
	Name, Halts string
	Logger      *slog.Logger // required
}

// Loop stands for election for one Candidate, until Close. All methods are safe for concurrent use.
type Loop struct {
	opt       Options
	coord     Coordinator
	candidate Candidate
	saves     chan State
	stop      context.CancelFunc
	done      sync.WaitGroup
	trouble   trouble
}

// New returns a Loop, which does nothing before Start.
func New(coord Coordinator, opt Options) *Loop {
	return &Loop{opt: opt, coord: coord, saves: make(chan State, 1), stop: func() {}}
}

// Start begins to stand for election. It must be called once, before any Save.
func (l *Loop) Start(c Candidate) {
	ctx, cancel := context.WithCancel(context.Background())
	l.candidate, l.stop = c, cancel
	l.done.Go(func() { l.run(ctx) })
	l.done.Go(func() { l.saveAll(ctx) })
}

func (l *Loop) run(ctx context.Context) {
	tick := time.NewTicker(l.opt.Beat)
	defer tick.Stop()
	for ctx.Err() == nil {
		lead, err := l.coord.Lead(ctx)
		if err == nil {
			err = l.lead(ctx, lead, tick.C)
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		if errors.Is(err, ErrDeposed) || l.trouble.is("no "+l.opt.Name+" leads here: "+err.Error()) {
			l.opt.Logger.Error(l.opt.Name+" does not lead", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// lead has the candidate decide until the leadership is lost.
func (l *Loop) lead(ctx context.Context, lead Leadership, tick <-chan time.Time) error {
	if err := l.candidate.Elected(lead); err != nil {
		return err
	}
	l.trouble.is("")
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick:
		}
		if !l.candidate.Beat(lead) {
			return ErrDeposed
		}
	}
}

// Save has a state saved, and Candidate.Saved called with the outcome. A state whose save has not
// begun is replaced, so the caller must save one state at a time in each term. Save does not block,
// but the calls must not be concurrent.
func (l *Loop) Save(s State) {
	select {
	case <-l.saves: // of an older term, and not begun: no term waits for it
	default:
	}
	l.saves <- s
}

// saveAll stores one state after the other.
func (l *Loop) saveAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-l.saves:
			l.save(ctx, s)
		}
	}
}

// save stores a state, and tells the candidate the outcome.
func (l *Loop) save(ctx context.Context, s State) {
	state := s.Encode()
	err := l.coord.Save(ctx, s.Term, state)
	switch {
	case ctx.Err() != nil:
		return
	case err == nil, errors.Is(err, ErrDeposed):
		l.trouble.is("")
		l.candidate.Saved(s, len(state), err)
		return
	}
	if l.trouble.is("the coordinator does not save, so " + l.opt.Halts + ": " + err.Error()) {
		l.opt.Logger.Error("coordinator does not save; "+l.opt.Halts+" until it does", "err", err, "bytes", len(state))
	}
	drive.Pause(ctx, l.opt.Beat) // the candidate may ask for another attempt at once
	if ctx.Err() != nil {
		return
	}
	l.candidate.Saved(s, len(state), err)
}

// Trouble returns why this process can neither lead nor save. It is empty if it can, or if another
// process leads.
func (l *Loop) Trouble() string {
	l.trouble.mu.Lock()
	defer l.trouble.mu.Unlock()
	return l.trouble.what
}

// Close stops deciding, and waits until no method of the Candidate runs any more.
func (l *Loop) Close() {
	l.stop()
	l.done.Wait()
}

// trouble is the reason why nothing can be decided at the moment.
type trouble struct {
	mu   sync.Mutex
	what string
	said time.Time
}

// retell is how often the same trouble is logged.
const retell = time.Minute

// is records the trouble, which is empty if there is none, and reports whether to log it.
func (t *trouble) is(what string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if what == t.what && (what == "" || time.Since(t.said) < retell) {
		return false
	}
	t.what, t.said = what, time.Now()
	return true
}
