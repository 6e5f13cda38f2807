package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/freshet-cache/freshet/store/postgres"
)

func main() {
	url := flag.String("store", "", "a PostgreSQL database of its own: postgres://user:password@host:port/database")
	flag.Parse()
	if err := run(context.Background(), *url, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "permissions:", err)
		os.Exit(1)
	}
}

// demo is a workspace: ann is in the group juniors, which is in staff, which may read the
// folder handbook, in which there is the folder rules, in which there is the document leave.
var demo = strings.Split(`INSERT INTO workspaces VALUES (1, 'olga')
INSERT INTO groups VALUES (1, 'staff'), (1, 'juniors')
INSERT INTO subgroups VALUES (1, 'staff', 'juniors')
INSERT INTO members VALUES (1, 'juniors', 'ann')
INSERT INTO folders VALUES (1, 'handbook', ''), (1, 'rules', 'handbook')
INSERT INTO documents VALUES (1, 'leave', 'rules')
INSERT INTO grants VALUES (1, 'handbook', 'staff', 'read')`, "\n")

// run shows all of it once.
func run(ctx context.Context, url string, out *os.File) error {
	say := func(format string, a ...any) { _, _ = fmt.Fprintf(out, format+"\n", a...) }
	if url == "" {
		return errors.New("say --store postgres://user:password@host:port/database")
	}
	if err := postgres.Migrate(ctx, url, postgres.Migration{}); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, schema); err != nil {
		return fmt.Errorf("making the tables, for which the database must have none of their names: %w", err)
	}
	store, err := postgres.Open(ctx, postgres.Options{URL: url})
	if err != nil {
		return err
	}
	defer store.Close()
	s, err := Open(ctx, store, nil)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	if err := s.Change(ctx, 1, demo...); err != nil {
		return err
	}
	may := func(ask func(context.Context, int, string, string, string) (bool, error), times int) (bool, time.Duration, error) {
		began := time.Now()
		for range times - 1 {
			if _, err := ask(ctx, 1, "ann", "read", "leave"); err != nil {
				return false, 0, err
			}
		}
		answer, err := ask(ctx, 1, "ann", "read", "leave")
		return answer, time.Since(began) / time.Duration(times), err
	}
	answer, asking, err := may(s.MayAsking, 200)
	if err != nil {
		return err
	}
	say("ann may read leave: %v, by seven queries in %v", answer, asking)
	answer, cached, err := may(s.May, 100_000)
	if err != nil {
		return err
	}
	say("ann may read leave: %v, from memory in %v: %d times faster", answer, cached, asking/max(cached, 1))
	if err := s.Change(ctx, 1, "DELETE FROM subgroups WHERE workspace = 1 AND child = 'juniors'"); err != nil {
		return err
	}
	answer, err = s.May(ctx, 1, "ann", "read", "leave")
	if err != nil {
		return err
	}
	say("juniors are no staff any more, and the next answer says so: %v", answer)
	if _, err = conn.Exec(ctx, "UPDATE grants SET may = 'write'"); err == nil {
		return errors.New("a change behind the cache was not refused")
	}
	say("who goes behind the cache is refused: %v", err)
	return nil
}
