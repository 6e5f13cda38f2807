package linear

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/bench/baseline"
	"github.com/freshet-cache/freshet/bench/kit"
)

// driveClients is how many clients send the requests of a workload, each on its own schedule, as in
// wrk2.
const driveClients = 64

// part has the measurements of one round of one system.
type part struct {
	reads, writes, lag *kit.Latencies
	read, hits         int // reads, and reads that needed nothing from the store
	asks, failed       int
	queries            int64
	cpu, took          time.Duration
}

// driver sends the requests of a workload to a system and passes every read to the judge.
type driver struct {
	load  *workload
	sys   *opened
	judge *baseline.Judge

	filling bool // writes are left out

	mu     sync.Mutex
	reason error // the first failure
}

func newDriver(load *workload, sys *opened) *driver {
	return &driver{load: load, sys: sys, judge: baseline.NewJudge(len(load.rows), sys.first)}
}

// run sends the requests from the one called from on, up to the one called to, at a
// constant rate, or, if that is 0, as fast as they are answered.
//
// A client sends a request when it is due, if the last one has been answered. It may wake late,
// which is not the fault of the system and is reported separately as lag. If the last request is
// still under way, the next one waits, and its latency counts from when it was due. So a slow
// system does not reduce the number of requests.
func (d *driver) run(ctx context.Context, from, to int, rate float64) (*part, error) {
	p := &part{reads: kit.NewLatencies(), writes: kit.NewLatencies(), lag: kit.NewLatencies(), asks: to - from}
	queries, cpu, began := d.sys.queries(), kit.AllCPU(), time.Now()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for c := range driveClients {
		wg.Go(func() {
			own := &part{reads: kit.NewLatencies(), writes: kit.NewLatencies(), lag: kit.NewLatencies()}
			d.client(ctx, own, c, pass{from, to, rate, began})
			mu.Lock()
			defer mu.Unlock()
			p.add(own)
		})
	}
	wg.Wait()
	p.took, p.cpu, p.queries = time.Since(began), kit.AllCPU()-cpu, d.sys.queries()-queries
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case p.failed > p.asks/10:
		return nil, fmt.Errorf("%d of %d requests failed: %w", p.failed, p.asks, d.reason)
	}
	return p, nil
}

func (p *part) add(o *part) {
	p.reads.Merge(o.reads)
	p.writes.Merge(o.writes)
	p.lag.Merge(o.lag)
	p.read, p.hits, p.failed = p.read+o.read, p.hits+o.hits, p.failed+o.failed
}

// lane is one client of a driver: it uses one instance.
type lane struct {
	d                *driver
	t                target
	p                *part
	floors, versions []uint64 // for the rows of a request
}

// pass is a series of requests, at a rate, beginning at a time.
type pass struct {
	from, to int
	rate     float64 // 0: each client waits only for its last answer
	began    time.Time
}

// client sends every driveClients-th request, in all rounds, so that it asks an instance for the
// same rows again.
func (d *driver) client(ctx context.Context, p *part, c int, at pass) {
	l := lane{d, d.sys.instances[c%len(d.sys.instances)], p, make([]uint64, page), make([]uint64, page)}
	r := kit.Stream(uint64(at.from), uint64(40+c))
	answered := time.Now()
	for i := at.from + ((c-at.from)%driveClients+driveClients)%driveClients; i < at.to && ctx.Err() == nil; i += driveClients {
		request := &d.load.asks[i%len(d.load.asks)]
		text := ""
		if request.write >= 0 {
			text = value(int(request.size), r)
		}
		var due time.Time // no rate: at once
		if at.rate > 0 {
			if due = at.began.Add(kit.Schedule{Rate: at.rate}.Due(i - at.from)); answered.Before(due) {
				time.Sleep(time.Until(due))
				p.lag.Add(time.Since(due), 1)
				due = time.Time{}
			}
		}
		if err := l.one(ctx, request, text, due); err != nil {
			d.fail(p, err)
		}
		answered = time.Now()
	}
}

func (d *driver) fail(p *part, err error) {
	p.failed++
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reason == nil {
		d.reason = err
	}
}

// one sends a request. Its latency counts from due or, if due is zero, from now. It excludes the
// work of the judge.
func (l *lane) one(ctx context.Context, a *ask, text string, due time.Time) error {
	d, p := l.d, l.p
	for at, i := range a.reads {
		l.floors[at] = d.judge.Floor(int(i))
	}
	if a.write >= 0 && d.filling {
		return nil
	}
	start := due
	if due.IsZero() {
		start = time.Now()
	}
	if a.write >= 0 {
		version, err := l.t.write(ctx, a, text)
		if err != nil {
			return err
		}
		p.writes.Add(time.Since(start), 1)
		d.judge.Acknowledged(int(a.write), version)
		return nil
	}
	whole, err := l.t.read(ctx, a, l.versions)
	took := time.Since(start)
	if err != nil {
		return err
	}
	p.reads.Add(took, 1)
	p.read++
	if whole {
		p.hits++
	}
	for at := range a.reads {
		d.judge.Read(l.floors[at], l.versions[at])
	}
	return nil
}

// begin warms a system up. Every client reads twice what it will read, because freshet keeps
// nothing that it read before its first guard was installed. Then it sends requests, writes too, as
// fast as they are answered; only a few of them if more gain nothing.
func (d *driver) begin(ctx context.Context, system string, sizes loadSizes) error {
	warm := sizes.warm
	if system == "storage" {
		warm /= 10
	} else {
		d.filling = true
		for range 2 {
			if _, err := d.run(ctx, sizes.warm, sizes.warm+sizes.rounds*sizes.round, 0); err != nil {
				return err
			}
		}
		d.filling = false
	}
	_, err := d.run(ctx, 0, warm, 0)
	return err
}

// loadSizes are the sizes of a run over PostgreSQL.
type loadSizes struct {
	warm, rounds, round int // requests
}
