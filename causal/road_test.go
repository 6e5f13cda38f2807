package causal

import (
	"context"
	"errors"
	"sync"
	"time"
)

// road is one side of a connection in virtual time: frames take their time, in order, and whoever breaks it does not wait
// until the last has arrived.
type road struct {
	l     *luck
	slow  func() bool
	take  func(frame []byte)
	peer  *road
	mu    sync.Mutex
	queue [][]byte
	wake  chan struct{}
	shut  bool          // nothing is sent any more
	done  chan struct{} // nothing arrives any more
	ends  *sync.Once
}

// roads are the two sides of a connection.
func roads(l *luck, slow func() bool) (near, far *road) {
	done, ends := make(chan struct{}), &sync.Once{}
	for _, r := range []**road{&near, &far} {
		*r = &road{l: l, slow: slow, wake: make(chan struct{}, 1), done: done, ends: ends}
	}
	near.peer, far.peer = far, near
	return near, far
}

var errShut = errors.New("the connection is broken")

func (r *road) Send(frame []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shut {
		return errShut
	}
	r.queue = append(r.queue, frame)
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return nil
}

func (r *road) Done() <-chan struct{} { return r.done }

func (r *road) Break() {
	for _, side := range []*road{r, r.peer} {
		side.mu.Lock()
		side.shut = true
		side.mu.Unlock()
	}
	r.ends.Do(func() {
		go func() { // what is on its way may arrive yet
			r.wait(10)
			close(r.done)
		}()
	})
}

// wait takes up to so many milliseconds, or half a second now and then.
func (r *road) wait(most int) {
	if !r.slow() {
		return
	}
	d := time.Duration(r.l.upto(most)) * time.Millisecond
	if r.l.upto(200) == 0 {
		d = 500 * time.Millisecond
	}
	<-time.After(d)
}

// run lets what this side sends arrive at the other one.
func (r *road) run() {
	for {
		select {
		case <-r.wake:
		case <-r.done:
			return
		}
		r.mu.Lock()
		frames := r.queue
		r.queue = nil
		r.mu.Unlock()
		for _, f := range frames {
			r.wait(4)
			select {
			case <-r.done:
				return
			default:
				r.peer.take(f)
			}
		}
	}
}

// dialRoad connects to another process.
func (k *kingdom) dialRoad(_ context.Context, to RingServer, deliver func([]byte)) (Conn, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := k.at(to.Addr)
	if k.ended[i] {
		return nil, errors.New("nobody is there")
	}
	near, far := roads(k.l, k.faulty.Load)
	near.take, far.take = deliver, k.rings[i].Accept(far)
	go near.run()
	go far.run()
	k.roads = append(k.roads, near)
	return near, nil
}

// breakRoads breaks connections now and then, until stop is closed.
func (k *kingdom) breakRoads(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(k.l.upto(800)) * time.Millisecond):
			k.mu.Lock()
			if n := len(k.roads); n > 0 {
				k.roads[max(0, n-1-k.l.upto(6))].Break()
			}
			k.mu.Unlock()
		}
	}
}
