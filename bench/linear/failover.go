package linear

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/freshet-cache/freshet/bench/kit"
	"github.com/freshet-cache/freshet/check"
	"github.com/freshet-cache/freshet/store/postgres"
)

// The systems of linear-failover are faults of the owner of some keys: a crash, a pause that is
// longer than a lease, and a drain.
var failoverSystems = []string{"freshet-crash", "freshet-pause", "freshet-drain"}

// failoverSizes are the sizes of a run of linear-failover.
type failoverSizes struct {
	keys                  int
	rate                  float64
	lease                 time.Duration
	before, paused, after time.Duration
}

func failoverSizesOf(o kit.Options) failoverSizes {
	switch {
	case o.Preset == "tiny":
		return failoverSizes{60, cmp.Or(o.Number("rate"), 400), 500 * time.Millisecond, 300 * time.Millisecond, 800 * time.Millisecond, 1500 * time.Millisecond}
	case o.Preset == "paper":
		return failoverSizes{3000, cmp.Or(o.Number("rate"), 2000), 10 * time.Second, 10 * time.Second, 20 * time.Second, 20 * time.Second}
	}
	return failoverSizes{300, cmp.Or(o.Number("rate"), 1000), 2 * time.Second, 1500 * time.Millisecond, 3 * time.Second, 5 * time.Second}
}

// crew has three processes over one PostgreSQL. The second one is the victim.
type crew struct {
	opt   kit.Options
	sizes failoverSizes
	dir   string
	pg    *kit.Postgres
	url   string
	procs [3]*kit.Server
}

const victim = 1

func gather(ctx context.Context, opt kit.Options, sizes failoverSizes) (c *crew, err error) {
	c = &crew{opt: opt, sizes: sizes}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	if c.dir, err = kit.Scratch("failover"); err != nil {
		return nil, err
	}
	if c.pg, err = kit.StartPostgres(ctx, opt, c.dir); err != nil {
		return nil, err
	}
	c.url = c.pg.In(fmt.Sprintf("schema=bench_%x", time.Now().UnixNano()))
	if err := postgres.Migrate(ctx, c.url, postgres.Migration{}); err != nil {
		return nil, err
	}
	for i := range c.procs {
		if err := c.start(ctx, i); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// start starts the i-th process. The first one has the assigner and is never the victim.
func (c *crew) start(ctx context.Context, i int) (err error) {
	dir := filepath.Join(filepath.Dir(c.dir), fmt.Sprintf("node%d-%d", i, time.Now().UnixNano()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	flags := []string{"--store", c.url, "--node-id", fmt.Sprint("n", i+1), "--lease", c.sizes.lease.String()}
	if i > 0 {
		flags = append(flags, "--coordinator", "freshet://"+c.procs[0].Addrs[0])
	}
	c.opt.Progress(fmt.Sprintf("starting n%d", i+1))
	c.procs[i], err = kit.StartFreshet(ctx, c.opt, false, 1, dir, flags...)
	return err
}

func (c *crew) stop() (err error) {
	for _, i := range []int{2, 1, 0} { // the process with the assigner ends last
		err = errors.Join(err, c.procs[i].Stop())
	}
	c.pg.Stop()
	if c.dir != "" {
		err = errors.Join(err, os.RemoveAll(filepath.Dir(c.dir)))
	}
	return err
}

// give moves the middle third of the keys to the victim. It returns the ranges that the victim owns
// then.
func (c *crew) give(ctx context.Context, admin rueidis.Client, names []string) (owned map[string]bool, err error) {
	third := names[len(names)/3 : 2*len(names)/3]
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	to := fmt.Sprint("n", victim+1)
	for _, key := range []string{third[0], names[2*len(names)/3]} {
		_ = admin.Do(ctx, admin.B().Arbitrary("FR.SPLIT").Args(key).Build()).Error() // it fails if the boundary exists
	}
	owned = map[string]bool{}
	for len(owned) < len(third) {
		for _, key := range third {
			if owned[key] {
				continue
			}
			now, err := owner(ctx, admin, key)
			switch {
			case err != nil:
				return nil, fmt.Errorf("%s cannot be given to %s: %w", key, to, err)
			case now == to:
				owned[key] = true
			default:
				_ = admin.Do(ctx, admin.B().Arbitrary("FR.MOVE").Args(key, to).Build()).Error() // it fails if the slice is moving
			}
		}
	}
	for _, key := range names {
		now, err := owner(ctx, admin, key)
		if err != nil {
			return nil, err
		}
		if now == to {
			owned[key] = true
		}
	}
	return owned, nil
}

// fault inflicts the fault that the system names.
func (c *crew) fault(system string) error {
	p := c.procs[victim]
	switch system {
	case "freshet-crash":
		return p.Signal(syscall.SIGKILL)
	case "freshet-drain":
		return p.Signal(syscall.SIGTERM)
	}
	return p.Signal(syscall.SIGSTOP)
}

// happen inflicts the fault at its time.
func (c *crew) happen(ctx context.Context, system string, o *outage, began time.Time) error {
	if !kit.Sleep(ctx, c.sizes.before) {
		return nil
	}
	o.at = time.Since(began)
	err := c.fault(system)
	if system == "freshet-pause" {
		kit.Sleep(ctx, c.sizes.paused)
		err = errors.Join(err, c.procs[victim].Signal(syscall.SIGCONT))
	}
	return err
}

// outage has what the clients of the other nodes saw of one fault.
type outage struct {
	r       *replay
	owned   map[string]bool
	at      time.Duration // the time of the fault, on the schedule
	checked int
	stale   int
	wrong   int
	reason  string
}

// trial sends requests to the other nodes and inflicts a fault on the victim.
func (c *crew) trial(ctx context.Context, system string, seed uint64) (*outage, error) {
	s := c.sizes
	length := s.before + s.after + s.lease
	if system == "freshet-pause" {
		length = s.before + s.paused + s.after
	}
	keys, names := lettered(s.keys)
	slices.Sort(names)
	order := kit.Uniform(kit.Stream(seed, 60), int(length.Seconds()*s.rate), len(keys))
	for i := range order {
		order[i] = keys[order[i]]
	}
	r, all := newReplay(inject(&recording{keys: order}, 0.2, traceClients, seed), s.rate)
	if err := r.load(ctx, c.procs[0].Addrs[0], all); err != nil {
		return nil, err
	}
	for i := range 3 * traceClients {
		client, err := connect(c.procs[2*(i%2)].Addrs[0])
		if err != nil {
			return nil, err
		}
		defer client.Close()
		r.clients = append(r.clients, client)
	}
	owned, err := c.give(ctx, r.clients[0], names)
	if err != nil {
		return nil, err
	}
	for i := range r.accesses { // over separate connections, because a request that waits delays those behind it
		switch a := &r.accesses[i]; {
		case a.write:
			a.client += 2 * traceClients
		case owned[traceKey(a.key)]:
			a.client += traceClients
		}
	}
	o := &outage{r: r, owned: owned}
	result := make(chan error, 1)
	fault, cancel := context.WithCancel(ctx)
	began := time.Now()
	go func() { result <- c.happen(fault, system, o, began) }()
	err = r.run(ctx, func(done int) {
		c.opt.Progress(fmt.Sprintf("%s: %d of %d requests", system, done, len(order)))
	})
	cancel()
	if err := errors.Join(err, <-result); err != nil {
		return nil, err
	}
	c.opt.Progress(system + ": checking the history")
	o.stale, _ = check.Stale(r.history)
	if o.checked, o.wrong, err = kit.Judged(r.history); err != nil {
		o.reason = err.Error()
	}
	if o.wrong += int(r.torn.Load()); system == "freshet-pause" {
		return o, nil
	}
	<-c.procs[victim].Done
	return o, c.start(ctx, victim)
}
