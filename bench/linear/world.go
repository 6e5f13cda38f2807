package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/freshet-cache/freshet/bench/baseline"
	"github.com/freshet-cache/freshet/bench/kit"
	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/postgres"
)

// The systems that are compared over PostgreSQL. Freshet is linear.Cache in process or, if values
// consist of several rows, linear.View; then freshet-rows is linear.Cache.
var tableSystems = []string{"freshet", "storage", "version", "chrono", "ttl", "csc"}

const (
	// appInstances is how many instances of an application TTL and csc have. With one instance, all
	// writes would pass through its cache. The other systems do not depend on it.
	appInstances = 3
	rowTTL       = 10 * time.Second
	asideTTL     = time.Minute
	chronoAhead  = 5 * time.Second // as in the paper
	poolConns    = 16
)

// world has the servers that all systems share.
type world struct {
	dir   string
	pg    *kit.Postgres
	redis string
	own   *kit.Server // nil if this run did not start one
}

// startWorld starts the servers that the systems need.
func startWorld(ctx context.Context, opt kit.Options) (w *world, err error) {
	w = &world{redis: opt.Text("redis")}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.stop())
		}
	}()
	if w.dir, err = kit.Scratch("world"); err != nil {
		return nil, err
	}
	if w.pg, err = kit.StartPostgres(ctx, opt, w.dir); err != nil {
		return nil, err
	}
	if w.redis == "" && (slices.Contains(opt.Systems, "chrono") || slices.Contains(opt.Systems, "csc")) {
		opt.Progress("starting redis-server")
		dir := filepath.Join(filepath.Dir(w.dir), "redis")
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
		if w.own, err = kit.StartRedis(ctx, false, dir, false); err != nil {
			return nil, err
		}
		w.redis = w.own.Addrs[0]
	}
	return w, nil
}

func (w *world) stop() (err error) {
	err = w.own.Stop()
	w.pg.Stop()
	if w.dir != "" {
		err = errors.Join(err, os.RemoveAll(filepath.Dir(w.dir)))
	}
	return err
}

// in returns the URL with a schema and the size of a pool.
func (w *world) in(schema string) string {
	return w.pg.In(fmt.Sprintf("schema=%s&pool_max_conns=%d", schema, poolConns))
}

// stage is the database of one workload: a schema that is dropped afterwards.
type stage struct {
	w      *world
	load   *workload
	schema string
	pool   *pgxpool.Pool
	stores []*postgres.Store
	shape  catalogue
}

func (w *world) stage(ctx context.Context, load *workload, shape catalogue) (*stage, error) {
	s := &stage{w: w, load: load, schema: fmt.Sprintf("bench_%x", rand.Uint64()), shape: shape}
	cfg, err := pgxpool.ParseConfig(w.pg.URL())
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = poolConns
	cfg.ConnConfig.RuntimeParams["search_path"] = s.schema
	if s.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, err
	}
	_, err = s.pool.Exec(ctx, "CREATE SCHEMA "+s.schema)
	return s, err
}

func (s *stage) close(ctx context.Context) (err error) {
	for _, st := range s.stores {
		err = errors.Join(err, st.Close())
	}
	for _, name := range []string{s.schema, s.schema + "_rows", s.schema + "_view"} {
		_, e := s.pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+name+" CASCADE")
		err = errors.Join(err, e)
	}
	s.pool.Close()
	return err
}

// open creates the rows of a system and its instances.
func (s *stage) open(ctx context.Context, system string) (o *opened, err error) {
	if strings.HasPrefix(system, "freshet") {
		return s.openFreshet(ctx, system)
	}
	table, err := s.table(ctx, system)
	if err != nil {
		return nil, err
	}
	o = &opened{queries: table.Queries.Load, first: 1}
	for range max(1, map[string]int{"ttl": appInstances, "csc": appInstances}[system]) {
		var one baseline.System
		switch system {
		case "storage":
			one = baseline.Storage{Rows: table}
		case "version":
			one, err = baseline.NewVersion(table, cacheBytes)
		case "ttl":
			one, err = baseline.NewTTL(table, cacheBytes, rowTTL)
		case "csc":
			one, err = baseline.NewAside(table, s.w.redis, s.schema+":", cacheBytes, asideTTL)
		case "chrono":
			var service *baseline.Remote
			service, err = baseline.NewRemote(s.w.redis, s.schema+":")
			one = &baseline.Chrono{Rows: table, Service: service, Ahead: chronoAhead, Now: func() int64 { return time.Now().UnixNano() }}
		}
		if err != nil {
			return nil, errors.Join(err, o.close())
		}
		o.instances = append(o.instances, rowwise{one, s.load.rows})
	}
	return o, nil
}

// table creates a table for a system and fills it.
func (s *stage) table(ctx context.Context, name string) (*baseline.Table, error) {
	keys, r := make([]string, len(s.load.rows)), kit.Stream(1, 30)
	for i, row := range s.load.rows {
		keys[i] = row.key
	}
	return baseline.NewTable(ctx, s.pool, name, keys, func(i int) string { return value(s.load.rows[i].size, r) })
}

func (s *stage) openFreshet(ctx context.Context, system string) (*opened, error) {
	kind := "_rows"
	composes := system == "freshet" && s.shape != catalogue{}
	if composes {
		kind = "_view"
	}
	url := s.w.in(s.schema + kind)
	if err := postgres.Migrate(ctx, url, postgres.Migration{}); err != nil {
		return nil, err
	}
	st, err := postgres.Open(ctx, postgres.Options{URL: url, Timeout: 30 * time.Second})
	if err != nil {
		return nil, err
	}
	s.stores = append(s.stores, st)
	asked := &calls{}
	if composes {
		table, err := s.table(ctx, "composed")
		if err != nil {
			return nil, err
		}
		v, err := openViewed(ctx, st, pgx.Identifier{s.schema}.Sanitize()+"."+table.Name(), s.load, s.shape, asked)
		return &opened{[]target{v}, asked.n.Load, 1}, err
	}
	first, err := s.fill(ctx, st)
	if err != nil {
		return nil, err
	}
	c, err := linear.New(linear.Options[string]{Store: st, Codec: linear.String(), MaxBytes: cacheBytes, Recorder: asked})
	return &opened{[]target{rowwise{baseline.Freshet{Cache: c}, s.load.rows}}, asked.n.Load, first}, err
}

// fill writes the rows of a store before any node owns them. It returns the first version.
func (s *stage) fill(ctx context.Context, st *postgres.Store) (first uint64, err error) {
	r := kit.Stream(1, 30)
	for part := range slices.Chunk(s.load.rows, 500) {
		var muts []store.Mutation
		for _, row := range part {
			muts = append(muts, store.Mutation{Key: row.key, Value: []byte(value(row.size, r))})
		}
		stamps, err := st.Commit(ctx, store.ID{1, byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())}, muts)
		if err != nil {
			return 0, fmt.Errorf("filling the rows: %w", err)
		}
		for _, stamp := range stamps {
			if first == 0 || uint64(stamp.Version) < first {
				first = uint64(stamp.Version)
			}
		}
	}
	return first, nil
}
