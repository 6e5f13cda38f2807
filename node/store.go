package node

import (
	"context"
	"crypto/tls"
	"errors"
	"path/filepath"
	"syscall"
	"time"

	"github.com/freshet-cache/freshet/internal/drive"
	"github.com/freshet-cache/freshet/store/etcd"
	"github.com/freshet-cache/freshet/store/memory"
	"github.com/freshet-cache/freshet/store/mysql"
	"github.com/freshet-cache/freshet/store/pebble"
	"github.com/freshet-cache/freshet/store/postgres"
)

// least lowers a limit to what the store takes.
func (p *Process) least(limit *int, flag string, most int) {
	if *limit > most {
		p.log.Info("the store takes less than "+flag+" says", "most", most)
		*limit = most
	}
}

// openStore opens the store, and waits for one that is starting or recovering.
func (p *Process) openStore() error {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	said := ""
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := p.tryStore(ctx)
		if err == nil || !comesUp(err) || ctx.Err() != nil {
			return err
		}
		if said != err.Error() {
			said = err.Error()
			p.log.Warn("the store does not take connections yet; this process waits for it", "store", redacted(p.cfg.Store), "for", openTimeout, "err", err)
		}
		drive.Pause(ctx, wait)
	}
}

// comesUp reports whether a store that failed to open may be starting: nobody listens
// there, or PostgreSQL says that it starts, recovers or shuts down.
func comesUp(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState() == "57P03"
	}
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
}

// tryStore opens the store once.
func (p *Process) tryStore(ctx context.Context) (err error) {
	c := &p.cfg
	switch c.kind() {
	case "memory":
		p.store = memory.New(memory.Options{})
	case "postgres":
		p.least(&c.MaxKey, "--max-key", postgres.MaxKey)
		p.store, err = opened(postgres.Open(ctx, postgres.Options{URL: c.Store, Cluster: p.cluster,
			MaxKey: c.MaxKey, MaxValue: c.MaxValue, Timeout: c.Timeout, Logger: p.log}))
	case "mysql":
		p.least(&c.MaxKey, "--max-key", mysql.MaxKey)
		p.store, err = opened(mysql.Open(ctx, mysql.Options{URL: c.Store, Cluster: p.cluster,
			MaxKey: c.MaxKey, MaxValue: c.MaxValue, Timeout: c.Timeout, Logger: p.log}))
	case "etcd":
		p.least(&c.MaxKey, "--max-key", etcd.MaxKey)
		p.least(&c.MaxValue, "--max-value", etcd.MaxValue)
		p.maxBatchBytes, p.batch = etcd.MaxValue, etcd.MaxBatch
		opt := etcd.Options{URL: c.Store, Cluster: p.cluster, MaxKey: c.MaxKey, MaxValue: c.MaxValue, Timeout: c.Timeout, Logger: p.log}
		if c.TLSCA != "" {
			opt.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
			if opt.TLS.RootCAs, err = trusted(c.TLSCA); err != nil {
				return err
			}
		}
		p.store, err = opened(etcd.Open(ctx, opt))
	default:
		p.store, err = opened(pebble.Open(filepath.Join(c.Data, "store"), pebble.Options{
			NoSync: c.NoSync, MaxKey: c.MaxKey, MaxValue: c.MaxValue, Logger: p.log}))
	}
	return err
}

// opened is a store, or none: a nil pointer in an interface is not nil.
func opened[S Store](s S, err error) (Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
