package blackbox

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Etcd loses all it had while slices are leased that had moved since the cluster began.
// No process may take the empty etcd for a new cluster: nothing is read stale, and an
// operator is told what to do.
func TestEtcdLosesItsData(t *testing.T) {
	c, etcd := gatherOnEtcd(t, 3, "--lease", "2s", "--timeout", "1s")
	r := &recorder{began: time.Now()}
	c.give(2, "key:4", "key:7", "counter:1")
	c.give(1, "key:1", "counter:0")
	stop := make(chan struct{})
	wait := r.loadAt(c.addrs, 6, stop)
	c.procs[0].eventually(func() bool { return r.size() > 500 })
	if err := etcd.Lose(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.procs[0].eventually(func() bool { // the leaders of before and of after, if there are any, own side by side meanwhile
		out, err := command(t, nil, "status", "--admin", c.procs[0].admin[0])
		return err == nil && strings.Contains(out, "PROBLEM") && strings.Contains(out, "migrate --adopt")
	})
	before := r.size()
	c.procs[0].eventually(func() bool { return r.size() > before+300 })
	close(stop)
	wait()
	r.verdict(t)

	for i := range c.procs { // what it says to do helps
		_ = c.procs[i].ends(syscall.SIGTERM)
	}
	if out, err := command(t, nil, "migrate", "--adopt", "--store", c.pg.URL("admin", "postgres")); err != nil {
		t.Fatal(err, out)
	}
	for i := range c.procs {
		c.restart(i)
	}
	client := c.procs[1].client(0)
	for i := range 12 {
		if err := client.Set(t.Context(), fmt.Sprint("key:", i), "again", 0).Err(); err != nil {
			t.Error(err)
		}
	}
}

// An operator who splits without end meets a limit, and slices go on changing hands.
func TestSplitsWithoutEnd(t *testing.T) {
	c, _ := gatherOnEtcd(t, 2, "--lease", "2s")
	client := c.procs[0].client(0)
	refused := ""
	for i := range 2000 {
		if err := client.Do(t.Context(), "FR.SPLIT", fmt.Sprintf("%06d%s", i, strings.Repeat("k", 2000))).Err(); err != nil {
			refused = err.Error()
			break
		}
	}
	if !strings.Contains(refused, "nothing was cut") {
		t.Errorf("2000 splits by keys of 2 kB are all accepted: %q", refused)
	}
	c.give(1, "zz:moves")
	c.give(0, "zz:moves")
	if err := client.Set(t.Context(), "zz:moves", "v", 0).Err(); err != nil {
		t.Error(err)
	}
}

// All processes are stopped at the same time: none waits until the others have taken its
// slices, for they stop too.
func TestAllStopTogether(t *testing.T) {
	for name, c := range map[string]*cluster{"embedded": gather(t, 3, "--space", "feed=causal"), "etcd": func() *cluster { c, _ := gatherOnEtcd(t, 3, "--space", "feed=causal"); return c }()} {
		began := time.Now()
		for _, p := range c.procs {
			p.signal(syscall.SIGTERM)
		}
		for i, p := range c.procs {
			select {
			case <-p.done:
			case <-time.After(time.Minute):
				t.Fatalf("%s: process %d does not end\n%s", name, i+1, p.said())
			}
			if p.err != nil {
				t.Errorf("%s: process %d ended with %v", name, i+1, p.err)
			}
			if said := p.said(); strings.Contains(said, "could not be handed over") {
				t.Errorf("%s: process %d waited for others that stop too:\n%s", name, i+1, said)
			}
		}
		t.Logf("%s: all have stopped after %v", name, time.Since(began).Round(time.Millisecond))
		for i := range c.procs {
			c.restart(i)
		}
		if err := c.procs[2].client(0).Set(t.Context(), "k", "v", 0).Err(); err != nil {
			t.Error(err)
		}
	}
}

// A process that was killed is started again under its name and address: it is the
// successor of itself, also where the link of the one before seems to stand.
func TestSuccessorAtTheSameAddress(t *testing.T) {
	c := &cluster{t: t, pg: postgres(t), dir: t.TempDir()}
	home := ""
	c.args = func(i int) []string {
		args := []string{"--data", c.dir, "--lease", "20s"}
		if i > 0 {
			args = append(args, "--coordinator", "freshet://"+home)
		}
		return args
	}
	c.reserve(2)
	toHome := between(t, c.addrs[0], 3)
	home = toHome.addr()
	c.restart(0)
	c.restart(1)
	toHome.spoil("mute", 0) // the first process does not hear that the link breaks
	_ = c.procs[1].ends(syscall.SIGKILL)
	home = c.addrs[0] // another way, so that the old link stands until the end
	c.restart(1)      // which waits until it is ready
	if err := c.procs[1].client(0).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Error(err)
	}
}

// A process that starts while PostgreSQL is down or recovers waits for it, and says so.
func TestStartWhilePostgresRecovers(t *testing.T) {
	c := &cluster{t: t, pg: postgres(t), dir: t.TempDir()}
	c.args = func(int) []string { return []string{"--data", c.dir} }
	c.reserve(1)
	c.pg.Crash()
	p := begin(t, 1, c.command(0))
	p.eventually(func() bool { return strings.Contains(p.said(), "waits for it") })
	if err := c.pg.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.eventually(func() bool {
		select {
		case <-p.up:
			return p.get(0, "/readyz") == 200
		case <-p.done:
			t.Fatalf("it ended: %v\n%s", p.err, p.said())
		default:
		}
		return false
	})
	if err := p.client(0).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Error(err)
	}
}

// Processes are restarted one after the other in an orderly way, while clients write
// through nodes that do not own what they write: no call fails.
func TestRollingRestartFailsNoCall(t *testing.T) {
	c := gather(t, 3, "--lease", "3s")
	r := &recorder{began: time.Now()}
	stop := make(chan struct{})
	for i := range c.procs {
		c.give(i, fmt.Sprint("key:", 3*i), fmt.Sprint("key:", 3*i+2))
	}
	wait := r.loadAt(c.addrs, 12, stop)
	for range 2 {
		for i := range c.procs {
			before := r.size()
			c.procs[i].eventually(func() bool { return r.size() > before+500 })
			if err := c.procs[i].ends(syscall.SIGTERM); err != nil {
				t.Errorf("node %d ended with %v", i+1, err)
			}
			c.restart(i)
		}
	}
	close(stop)
	wait()
	r.verdict(t)
	for i, e := range r.errs { // what a connection that is closed had asked is not counted: its client tries again elsewhere
		if i < 20 {
			t.Errorf("a call failed though every stop was orderly: %s", e)
		}
	}
	t.Logf("%d calls, %d failed", len(r.ops), len(r.errs))
}
