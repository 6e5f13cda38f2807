package causalbase

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/freshet-cache/freshet/check"
)

// History records what workflows did, for package check.
type History struct {
	mu    sync.Mutex
	acts  []check.Act
	flows int
	// Servers is the number of servers to draw from. Aborts counts how often workflows were
	// aborted.
	Servers int
	Aborts  atomic.Int64
}

// Acts returns the recorded acts. No workflow may run any more.
func (h *History) Acts() []check.Act { return h.acts }

// Flows returns how many workflows have ended.
func (h *History) Flows() int { return h.flows }

// maxTries bounds how often a workflow begins.
const maxTries = 1000

// Do runs a workflow, repeats it while it is aborted, and records it. Each try draws new servers.
func (h *History) Do(ctx context.Context, s System, places []int, keys []string, body func(f *Recorded) error) error {
	for range maxTries {
		t := &trail{unit: s.Act()}
		f, err := s.Begin(ctx, places, keys)
		if err == nil {
			r := &Recorded{f: f, t: t}
			if err = body(r); err == nil {
				err = f.End(ctx)
			}
		}
		switch {
		case err == nil:
			h.add(t)
			return nil
		case !errors.Is(err, ErrAgain):
			return err
		}
		h.Aborts.Add(1)
		for i := range places {
			places[i] = rand.IntN(h.Servers)
		}
	}
	return fmt.Errorf("causalbase: given up after %d tries: %w", maxTries, ErrAgain)
}

// add adds the acts of a workflow.
func (h *History) add(t *trail) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flows++
	base, session := len(h.acts), fmt.Sprint("w", h.flows)
	for _, a := range t.acts {
		a.Session = session
		for i := range a.After {
			a.After[i] += base
		}
		h.acts = append(h.acts, a)
	}
}

// trail has the acts of one workflow, numbered from its first.
type trail struct {
	unit Act
	mu   sync.Mutex
	acts []check.Act
}

func (t *trail) add(last []int, a check.Act) []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unit == TheWorkflow {
		if len(t.acts) == 0 {
			t.acts = append(t.acts, check.Act{})
		}
		t.acts[0].Reads, t.acts[0].Writes = append(t.acts[0].Reads, a.Reads...), append(t.acts[0].Writes, a.Writes...)
		return nil
	}
	a.After = append([]int{}, last...)
	t.acts = append(t.acts, a)
	return []int{len(t.acts) - 1}
}

// Recorded is a Flow whose reads and writes are recorded.
type Recorded struct {
	f    Flow
	t    *trail
	last []int
	own  map[string]bool // keys that this transaction wrote: reading them depends on no other workflow
}

// Read reads keys, as Flow does.
func (r *Recorded) Read(ctx context.Context, keys ...string) ([]string, error) {
	values, err := r.f.Read(ctx, keys)
	if err != nil {
		return nil, err
	}
	var a check.Act
	for i, v := range values {
		cell := check.Cell{Key: keys[i], Write: name(v)}
		switch {
		case r.own[keys[i]]:
		case r.t.unit == EachRead:
			r.last = r.t.add(r.last, check.Act{Reads: []check.Cell{cell}})
		default:
			a.Reads = append(a.Reads, cell)
		}
	}
	if len(a.Reads) > 0 {
		r.last = r.t.add(r.last, a)
	}
	return values, nil
}

// Write sets a key, as Flow does.
func (r *Recorded) Write(ctx context.Context, key, value string) error {
	if err := r.f.Write(ctx, key, value); err != nil {
		return err
	}
	if r.t.unit == TheWorkflow {
		if r.own == nil {
			r.own = map[string]bool{}
		}
		r.own[key] = true
	}
	r.last = r.t.add(r.last, check.Act{Writes: []check.Cell{{Key: key, Write: name(value)}}})
	return nil
}

// Move goes to another server, as Flow does.
func (r *Recorded) Move(to int) error { return r.f.Move(to) }

// Siblings runs parallel functions, each in a fork at its own server, and joins them.
func (r *Recorded) Siblings(places []int, body func(i int, f *Recorded) error) error {
	forks, errs := make([]*Recorded, len(places)), make([]error, len(places))
	var wg sync.WaitGroup
	for i, at := range places {
		f := &Recorded{f: r.f.Fork(), t: r.t, last: r.last, own: maps.Clone(r.own)}
		forks[i] = f
		wg.Go(func() {
			if errs[i] = f.Move(at); errs[i] == nil {
				errs[i] = body(i, f)
			}
		})
	}
	wg.Wait()
	for _, f := range forks {
		r.f.Join(f.f)
		r.last = append(append([]int{}, r.last...), f.last...)
		for k := range f.own {
			if r.own == nil {
				r.own = map[string]bool{}
			}
			r.own[k] = true
		}
	}
	return errors.Join(errs...)
}
