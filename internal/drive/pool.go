package drive

import (
	"context"
	"sync/atomic"
)

// Pool performs requests on goroutines of its own. Some of them stay for the next request, because
// their stacks have grown to what a request takes. All methods are safe for concurrent use.
type Pool[T any] struct {
	ctx     context.Context
	tasks   *Tasks
	perform func(T)
	next    chan T // for a goroutine that has finished a request
	idle    atomic.Int64
	all     Tasks
}

// idlers is how many goroutines of a Pool wait for a request at most.
const idlers = 64

// NewPool returns a Pool that performs requests with perform, and counts those under way in tasks.
// Its goroutines that wait end with ctx.
func NewPool[T any](ctx context.Context, tasks *Tasks, perform func(T)) *Pool[T] {
	return &Pool[T]{ctx: ctx, tasks: tasks, perform: perform, next: make(chan T)}
}

// Do begins a request, and does not wait for it.
func (p *Pool[T]) Do(request T) {
	p.tasks.begin()
	select {
	case p.next <- request:
	default:
		p.all.Go(func() { p.performer(request) })
	}
}

// performer performs a request, and then waits for another one, unless enough of them wait.
func (p *Pool[T]) performer(request T) {
	for {
		p.perform(request)
		p.tasks.done()
		if p.idle.Add(1) > idlers {
			p.idle.Add(-1)
			return
		}
		select {
		case request = <-p.next:
			p.idle.Add(-1)
		case <-p.ctx.Done():
			return
		}
	}
}

// Wait returns when no goroutine of the Pool is left, which they are not after the Pool's context has
// ended and its requests have.
func (p *Pool[T]) Wait() { p.all.Wait() }
