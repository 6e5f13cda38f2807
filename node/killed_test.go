package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/freshet-cache/freshet/linear"
)

// TestServiceProcess is not a test but a process of TestServicesAreKilled: it counts until
// it is killed, and says what became of every update.
func TestServiceProcess(t *testing.T) {
	url, leaderAddr, id, found := cut(os.Getenv("FRESHET_TEST_SERVICE"))
	if !found {
		t.Skip("this is a process of TestServicesAreKilled")
	}
	v := startService(t, url, leaderAddr, id)
	for i := 0; ; i++ {
		one, two := rand.IntN(spaceKeys), rand.IntN(spaceKeys)
		fmt.Println(v.count(context.Background(), fmt.Sprintf("%s-%d-%d", id, os.Getpid(), i), one, two))
	}
}

func cut(s string) (url, leaderAddr, id string, found bool) {
	f := strings.Fields(s)
	if len(f) != 3 {
		return "", "", "", false
	}
	return f[0], f[1], f[2], true
}

// count counts two keys and writes down the name of the update, in one transaction. It
// says what became of it: yes, no or unknown, the name, and the keys.
func (v *service) count(ctx context.Context, name string, one, two int) string {
	err := v.view.Update(ctx, []string{spaceKey(one), spaceKey(two)}, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO done VALUES ($1)", name); err != nil {
			return err
		}
		return count(spaceKey(one), spaceKey(two))(ctx, tx)
	})
	answer := "no"
	switch {
	case err == nil:
		answer = "yes"
	case errors.Is(err, linear.ErrOutcomeUnknown):
		answer = "unknown"
	}
	return fmt.Sprint(answer, " ", name, " ", one, " ", two)
}

// ledger is what all processes have said.
type ledger struct {
	mu      sync.Mutex
	answers map[string]string
	acked   [spaceKeys]int
}

func (l *ledger) note(line string) {
	var answer, name string
	var one, two int
	if n, _ := fmt.Sscan(line, &answer, &name, &one, &two); n != 4 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[name] = answer
	if answer == "yes" {
		l.acked[one]++
		l.acked[two]++
	}
}

func (l *ledger) least(key int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked[key]
}

// Two of three processes are stopped and killed in turn, in the middle of transactions on
// keys of all of them. Nothing acknowledged is lost, nothing refused is there, every
// transaction is whole, and no read is stale.
func TestServicesAreKilled(t *testing.T) {
	url := startPostgres(t)
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), "CREATE TABLE done (name text PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	first := startService(t, url, "embedded", "s1")
	leaderAddr, _ := first.p.Addr(0)
	k := &killing{t: t, url: url, home: joinScheme + leaderAddr, first: first, ledger: ledger{answers: map[string]string{}}}
	children := []*exec.Cmd{k.child("s2"), k.child("s3")}
	ctx, stop := context.WithCancel(t.Context())
	k.wg.Go(func() { k.write(ctx) })
	k.wg.Go(func() { k.read(ctx) })
	for round := range 4 {
		k.enough(100)
		c, id := children[round%2], fmt.Sprint("s", round%2+2)
		if round < 2 { // stopped for longer than a lease: others take over
			_ = c.Process.Signal(syscall.SIGSTOP)
			k.gone(id)
			k.enough(50)
			_ = c.Process.Signal(syscall.SIGCONT)
			continue
		}
		_ = c.Process.Kill()
		_ = c.Wait()
		k.enough(50)
		children[round%2] = k.child(id)
	}
	k.enough(100)
	stop()
	for _, c := range children {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	k.wg.Wait()
	k.judge(t, conn)
	t.Logf("%d updates, %d reads", len(k.answers), k.reads)
}

// killing is a run of TestServicesAreKilled.
type killing struct {
	ledger
	t         *testing.T
	url, home string
	first     *service
	reads     int
	wg        sync.WaitGroup
}

// child starts a process that counts.
func (k *killing) child(id string) *exec.Cmd {
	c := exec.Command(os.Args[0], "-test.run=TestServiceProcess$", "-test.v")
	c.Env = append(os.Environ(), "FRESHET_TEST_SERVICE="+strings.Join([]string{k.url, k.home, id}, " "))
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		k.t.Fatal(err)
	}
	k.wg.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			k.note(lines.Text())
		}
	})
	return c
}

func (k *killing) write(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		k.note(k.first.count(context.Background(), fmt.Sprint("s1-", i), i%spaceKeys, (i*5+1)%spaceKeys))
	}
}

func (k *killing) read(ctx context.Context) {
	for ; ctx.Err() == nil; k.reads++ {
		key := k.reads % spaceKeys
		least := k.least(key)
		if n, _, err := k.first.view.Get(context.Background(), spaceKey(key)); err != nil || n < least {
			k.t.Errorf("%s is %d, and %d were acknowledged: %v", spaceKey(key), n, least, err)
			return
		}
	}
}

// enough waits until so many more updates are answered.
func (k *killing) enough(more int) {
	k.t.Helper()
	answered := func() int {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.answers)
	}
	want := answered() + more
	k.until(func() bool { return answered() >= want })
}

// gone waits until the node id owns nothing.
func (k *killing) gone(id string) {
	k.t.Helper()
	k.until(func() bool {
		for _, r := range k.first.p.nodes[0].shard.Table().Slices {
			if strings.HasPrefix(r.Node, id+"/") {
				return false
			}
		}
		return true
	})
}

func (k *killing) until(ok func() bool) {
	k.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			k.t.Fatal("nothing goes on")
		}
	}
}

// judge compares what was said with what is stored.
func (l *ledger) judge(t *testing.T, conn *pgx.Conn) {
	rows, err := conn.Query(t.Context(), "SELECT name FROM done")
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	done := map[string]bool{}
	for _, n := range names {
		done[n] = true
	}
	said := map[string]int{}
	for name, answer := range l.answers {
		if said[answer]++; answer == "yes" != done[name] && answer != "unknown" {
			t.Errorf("%s was answered with %s, and is there: %v", name, answer, done[name])
		}
	}
	t.Logf("answers: %v", said)
	var sum, twice int
	if err := conn.QueryRow(t.Context(), "SELECT coalesce(sum(n), 0), 2 * (SELECT count(*) FROM done) FROM counters").Scan(&sum, &twice); err != nil || sum != twice {
		t.Errorf("the counters sum up to %d, and the transactions to %d: %v", sum, twice, err)
	}
}
