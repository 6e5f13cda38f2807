// Package etcd is a store in etcd, 3.4 or later, for small configuration data: what fits into
// etcd's memory, in values of a megabyte at most.
//
// A write is one transaction of etcd, which compares the revision of the guard over its key;
// SetGuard is a transaction that changes the guard. etcd carries out one transaction after the
// other, so the fence holds by construction. Reads are linearizable. The store sends a transaction
// once, and the retries of the etcd client are off. Otherwise the client would also repeat a
// transaction that etcd gave up waiting for and may still carry out.
//
// A version is twice etcd's revision of the write, added to the first version of the store. A row
// that expires is attached to a lease of etcd. When the lease ends, etcd deletes the row in a
// transaction, and before that no read says that the row has expired. TTLs are whole seconds, at
// least the two or three that etcd requires. Shorter ones are rounded up; rows end up to a second
// late, and later after an election. Beside such a row lies a record of the absence that will
// follow it.
package etcd

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/freshet-cache/freshet/store"
)

const (
	// MaxKey is the longest key, in bytes.
	MaxKey = 4 << 10
	// MaxValue is the longest value, in bytes.
	MaxValue = 1 << 20
	// MaxBatch is how many keys one Commit may write. etcd takes 128 operations in a transaction,
	// and a key needs two.
	MaxBatch = 64
	// maxRequest bounds the keys and values of a batch together, in bytes. etcd takes requests of
	// 1.5 MiB, framing included.
	maxRequest = 3<<19 - 64<<10
)

// Options configure a Store. URL is required.
type Options struct {
	// URL is etcd://USER:PASSWORD@HOST:PORT,HOST:PORT/PREFIX, or etcds: for TLS. Write special
	// characters of the password as %XX. The keys begin with PREFIX/store/; default freshet/store/.
	URL string
	// TLS configures etcds:. Default: the client trusts what the system trusts.
	TLS *tls.Config
	// Cluster names the cluster that uses the prefix from now on. Open fails if another cluster
	// uses it. Default: Open does not check.
	Cluster string
	// MaxKey and MaxValue bound keys and values, in bytes. Default 4 KiB and 1 MiB, which are also
	// the most.
	MaxKey, MaxValue int
	// Timeout bounds every request. Default 5 s.
	Timeout time.Duration
	// Grace is how long deletes and expired rows are remembered at least. No request may be in
	// flight for so long. Default 10 min, at least four times Timeout.
	Grace time.Duration
	// Sweep is how often the store looks for records older than Grace. Default 1 min.
	Sweep time.Duration
	// Logger receives what an operator should know. Default: the store logs nothing.
	Logger *slog.Logger

	configure func(*clientv3.Config) // for tests
}

// Why Open refuses a prefix. Nothing under it was changed.
var (
	ErrNewer      = errors.New("etcd: the data was made by a newer freshet; run that version, or a newer one")
	ErrOtherOwner = errors.New("etcd: another cluster uses the prefix: two would not know of each other's caches; give this one a prefix of its own (etcd://.../PREFIX), or stop the other and run freshet migrate --adopt")
)

// Store is a store in etcd. It is safe for concurrent use, also by many processes.
type Store struct {
	opt    Options
	prefix string
	client *clientv3.Client
	base   store.Version
	guards guards
	closed atomic.Bool
	ctx    context.Context // of the background work
	stop   context.CancelFunc
	work   sync.WaitGroup
	drops  chan clientv3.LeaseID // leases without a row
	marks  []mark
}

func (o *Options) defaults() {
	if o.MaxKey <= 0 || o.MaxKey > MaxKey {
		o.MaxKey = MaxKey
	}
	if o.MaxValue <= 0 || o.MaxValue > MaxValue {
		o.MaxValue = MaxValue
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Grace <= 0 {
		o.Grace = 10 * time.Minute
	}
	o.Grace = max(o.Grace, 4*o.Timeout)
	if o.Sweep <= 0 {
		o.Sweep = time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// parse returns the client configuration of a URL, and the prefix of the keys. No error shows the
// URL, because it may have a password.
func parse(from string, secure *tls.Config) (cfg clientv3.Config, prefix string, err error) {
	scheme, rest, _ := strings.Cut(from, "://")
	user, hosts, found := cutLast(rest, "@")
	if !found {
		user, hosts = "", rest
	}
	hosts, prefix, _ = strings.Cut(hosts, "/")
	bad := errors.New("etcd: the URL cannot be read: write etcd://USER:PASSWORD@HOST:PORT,HOST:PORT/PREFIX, and %XX for what is special in the password")
	if scheme != "etcd" && scheme != "etcds" {
		return cfg, "", bad
	}
	for _, h := range strings.Split(hosts, ",") {
		if _, port, err := net.SplitHostPort(h); err != nil || port == "" {
			return cfg, "", bad
		}
		cfg.Endpoints = append(cfg.Endpoints, h)
	}
	name, password, _ := strings.Cut(user, ":")
	var err1, err2 error
	cfg.Username, err1 = url.PathUnescape(name)
	cfg.Password, err2 = url.PathUnescape(password)
	if err1 != nil || err2 != nil {
		return cfg, "", bad
	}
	if scheme == "etcds" {
		if cfg.TLS = secure; secure == nil {
			cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		}
	}
	if prefix = strings.Trim(prefix, "/"); prefix == "" {
		prefix = "freshet"
	}
	return cfg, prefix + "/store/", nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// connect returns a client that sends every request once.
func connect(opt Options) (*clientv3.Client, string, error) {
	cfg, prefix, err := parse(opt.URL, opt.TLS)
	if err != nil {
		return nil, "", err
	}
	// The client notices an unreachable member in time for another attempt.
	cfg.DialTimeout, cfg.DialKeepAliveTime, cfg.DialKeepAliveTimeout = opt.Timeout, opt.Timeout, opt.Timeout
	cfg.MaxUnaryRetries = 1 // counts attempts, so 1 means no retry
	cfg.Logger = zap.NewNop()
	if opt.configure != nil {
		opt.configure(&cfg)
	}
	client, err := clientv3.New(cfg)
	if err != nil {
		return nil, "", fmt.Errorf("etcd: no connection to %v: %w", cfg.Endpoints, err)
	}
	return client, prefix, nil
}

// Open connects to etcd, and begins a store if there is none under the prefix. The errors above say
// why it refuses one.
func Open(ctx context.Context, opt Options) (*Store, error) {
	opt.defaults()
	client, prefix, err := connect(opt)
	if err != nil {
		return nil, err
	}
	s := &Store{opt: opt, prefix: prefix, client: client, drops: make(chan clientv3.LeaseID, 256)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	if err := errors.Join(s.begin(ctx), s.claim(ctx)); err != nil {
		s.stop()
		return nil, errors.Join(err, client.Close())
	}
	s.work.Go(s.dropLeases)
	s.work.Go(s.sweepOn)
	return s, nil
}

// Migrate begins a store under the prefix of a URL if there is none. If adopt is set, the next
// cluster may use the store, even if another one has used it. Stop the other cluster first.
func Migrate(ctx context.Context, opt Options, adopt bool) error {
	opt.Cluster = ""
	s, err := Open(ctx, opt)
	if err != nil {
		return err
	}
	if adopt {
		_, err = s.client.Delete(ctx, s.prefix+"cluster")
	}
	return errors.Join(err, s.Close())
}

// format is the format that this freshet makes and reads.
const format = 1

// begin reads the metadata of the store, or makes it: a format, the first version, and a zero guard
// over all keys.
func (s *Store) begin(ctx context.Context) error {
	meta, guard := s.prefix+"meta", s.guardKey("")
	first := binary.BigEndian.AppendUint64([]byte{format}, uint64(store.FirstVersion(time.Now(), rand.Uint64())))
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	r, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(meta), "=", 0)).
		Then(clientv3.OpPut(meta, string(first)), clientv3.OpPut(guard, string(make([]byte, 16)))).
		Else(clientv3.OpGet(meta)).Commit()
	if err != nil {
		return fmt.Errorf("etcd: %v does not answer as it should; is it running, has it a quorum, and may this user write under %s?: %w", s.client.Endpoints(), s.prefix, err)
	}
	if !r.Succeeded {
		first = r.Responses[0].GetResponseRange().Kvs[0].Value
	}
	switch {
	case len(first) < 1:
		return fmt.Errorf("etcd: %s is not freshet's; choose another prefix", meta)
	case first[0] > format:
		return ErrNewer
	case len(first) != 9:
		return fmt.Errorf("etcd: %s is not freshet's; choose another prefix", meta)
	}
	s.base = store.Version(binary.BigEndian.Uint64(first[1:]))
	return nil
}

// claim records that the cluster uses the store, or returns ErrOtherOwner.
func (s *Store) claim(ctx context.Context) error {
	if s.opt.Cluster == "" {
		return nil
	}
	key := s.prefix + "cluster"
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	r, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, s.opt.Cluster)).Else(clientv3.OpGet(key)).Commit()
	switch {
	case err != nil:
		return fmt.Errorf("etcd: claiming %s: %w", s.prefix, err)
	case !r.Succeeded && string(r.Responses[0].GetResponseRange().Kvs[0].Value) != s.opt.Cluster:
		return ErrOtherOwner
	}
	return nil
}

// Close closes the store. Calls under way fail, and later ones too.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.stop()
	s.work.Wait()
	return s.client.Close()
}

func (s *Store) rowKey(key string) string   { return s.prefix + "row/" + key }
func (s *Store) goneKey(key string) string  { return s.prefix + "gone/" + key }
func (s *Store) guardKey(low string) string { return s.prefix + "guard/" + low }

// past returns the end of the keys of a kind, for ranges.
func (s *Store) past(kind string) string { return s.prefix + kind + "0" } // the byte after a slash

// version returns the version of a write from etcd's revision of it.
func (s *Store) version(revision int64) store.Version {
	return s.base + 2*store.Version(revision)
}
