package causalbase

import "context"

// bare does what every system must do at least: functions move, and the store acknowledges the
// writes, once. It reads nothing. It measures the cost of the emulation and the clients.
type bare struct{ w *World }

// NewBare returns a system that only waits.
func NewBare(w *World) System { return bare{w} }

// Act implements System.
func (bare) Act() Act { return TheWorkflow }

// Settle implements System.
func (bare) Settle(context.Context) error { return nil }

// Metadata implements System.
func (bare) Metadata() int { return 0 }

// Close implements System.
func (bare) Close(context.Context) error { return nil }

// Begin implements System.
func (b bare) Begin(context.Context, []int, []string) (Flow, error) { return &waiting{w: b.w}, nil }

// waiting is a workflow that only waits.
type waiting struct {
	w     *World
	wrote bool
}

// Read implements Flow.
func (f *waiting) Read(_ context.Context, keys []string) ([]string, error) {
	return make([]string, len(keys)), nil
}

// Write implements Flow.
func (f *waiting) Write(context.Context, string, string) error { f.wrote = true; return nil }

// Move implements Flow.
func (f *waiting) Move(int) error { f.w.moved(0); return nil }

// Fork implements Flow.
func (f *waiting) Fork() Flow { o := *f; return &o }

// Join implements Flow.
func (f *waiting) Join(o Flow) { f.wrote = f.wrote || o.(*waiting).wrote }

// End implements Flow.
func (f *waiting) End(context.Context) error {
	if f.wrote {
		f.w.answer()
	}
	return nil
}
