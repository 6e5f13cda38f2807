package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/freshet-cache/freshet/internal/durable"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/tablet"
)

// Why Open refuses a directory. Nothing in it was changed.
var (
	ErrForeign = errors.New("pebble: the directory holds files that are not freshet's; choose an empty or a new one")
	ErrNewer   = errors.New("pebble: the directory was written by a newer freshet; run that version, or a newer one")
	ErrDamaged = errors.New("pebble: the directory is damaged; restore it from a backup")
	ErrLocked  = errors.New("pebble: another process is using the directory; stop it, or choose another one")
)

const (
	markerFile = "FRESHET"
	marker     = "freshet store 1\n"
	dbDir      = "db"
)

// Open opens the store in dir, or makes one if dir is empty or does not exist. One process may have
// it open at a time.
func Open(dir string, opt Options) (*Store, error) {
	opt.defaults()
	if err := identify(dir); err != nil {
		return nil, fmt.Errorf("%w (%s)", err, dir)
	}
	s := &Store{opt: opt, dir: dir, seed: maphash.MakeSeed(), over: make(chan struct{})}
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("%w (%s)", err, dir)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	s.done.Go(func() { s.maintain(ctx) })
	return s, nil
}

// identify checks that a directory is empty or belongs to freshet.
func identify(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return mark(dir)
	}
	b, err := os.ReadFile(filepath.Join(dir, markerFile))
	switch {
	case errors.Is(err, os.ErrNotExist) && len(entries) == 1 && entries[0].Name() == markerFile+".new":
		return mark(dir) // a crash interrupted the first mark
	case errors.Is(err, os.ErrNotExist):
		return ErrForeign
	case err != nil:
		return err
	case string(b) == marker:
		return nil
	case strings.HasPrefix(string(b), "freshet store ") && strings.HasSuffix(string(b), "\n"):
		return ErrNewer
	}
	return ErrDamaged
}

// mark marks an empty directory as freshet's, before any other file is in it.
func mark(dir string) error {
	return durable.WriteFile(filepath.Join(dir, markerFile), []byte(marker))
}

func (s *Store) open() (err error) {
	defer func() { // pebble sometimes panics on what it cannot read
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, r)
		}
	}()
	cache := pebble.NewCache(s.opt.CacheSize)
	defer cache.Unref()
	under := s.opt.fs
	if under == nil {
		under = vfs.Default
	}
	files := &patient{FS: under, sleep: time.Sleep, out: func(what string, err error) {
		s.opt.Logger.Error("the store cannot open a file for now, and waits; are there too few descriptors, or is the disk full?", "file", what, "err", err)
	}}
	s.db, err = pebble.Open(filepath.Join(s.dir, dbDir), &pebble.Options{
		Cache: cache, MemTableSize: 32 << 20, Logger: &logger{s: s}, FormatMajorVersion: pebble.FormatNewest, FS: files, MaxOpenFiles: MaxFiles,
	})
	switch {
	case errors.Is(err, unix.EAGAIN) || err != nil && strings.Contains(err.Error(), "lock held"):
		return ErrLocked
	case err != nil:
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err := s.recall(); err != nil {
		return errors.Join(err, s.db.Close())
	}
	return nil
}

// recall reads the metadata of the store.
func (s *Store) recall() error {
	number := func(name string) (uint64, error) {
		b, err := s.meta(name)
		if err == nil && len(b) != 0 && len(b) != 8 {
			return 0, fmt.Errorf("%w: its %s cannot be read", ErrDamaged, name)
		}
		if err != nil || len(b) == 0 {
			return 0, err
		}
		return binary.BigEndian.Uint64(b), nil
	}
	next, err1 := number(metaNext)
	floor, err2 := number(metaLow)
	bound, err3 := number(metaTime)
	list, err4 := s.meta(metaTabs)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	points, ok := decodeList(list)
	if !ok {
		return fmt.Errorf("%w: its tablets cannot be read", ErrDamaged)
	}
	s.version = store.Version(next)
	if next == 0 {
		s.version = firstVersion()
	}
	s.reserved = s.version // the first draw reserves
	s.floor.Store(floor)
	s.clock.start(int64(bound))
	s.tablets = tablet.New(points)
	return nil
}

func (s *Store) meta(name string) ([]byte, error) {
	b, closer, err := s.db.Get(metaKey(name))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return append([]byte(nil), b...), closer.Close()
}

// logger receives the log of pebble. A fatal error, such as a log file that cannot be written, ends
// the store but not the process.
type logger struct {
	s  *Store
	mu sync.Mutex
	// said has for each format when it was last logged, and how often pebble repeated it since.
	said map[string]*repeats
}

type repeats struct {
	at    time.Time
	count int
}

const (
	retell   = time.Minute // between two lines of the same format
	maxForms = 64
)

func (l *logger) Infof(string, ...any) {}

// Errorf logs a new message at once, and a repeated one once a minute.
func (l *logger) Errorf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.said[format]
	switch {
	case r != nil && time.Since(r.at) < retell:
		r.count++
		return
	case r == nil:
		if l.said == nil || len(l.said) >= maxForms {
			l.said = map[string]*repeats{}
		}
		r = &repeats{}
		l.said[format] = r
	}
	l.s.opt.Logger.Error("store", "err", fmt.Sprintf(format, args...), "count", r.count+1)
	r.at, r.count = time.Now(), 0
}

// Fatalf never returns, because pebble relies on that. It first ends the store, which then neither
// reads, writes nor closes pebble. If a write of this package is on the stack, Fatalf panics, and
// do recovers. A goroutine of pebble itself stops for ever, with the locks that it holds.
func (l *logger) Fatalf(format string, args ...any) {
	err := fmt.Errorf("pebble: the store failed and takes no more requests; look at the disk and restart: %s", fmt.Sprintf(format, args...))
	l.s.fail(err)
	if strings.Contains(string(debug.Stack()), "store/pebble.(*Store).do(") || l.s.tablets == nil {
		panic(err)
	}
	select {}
}

// fail ends the store and releases the callers that wait for pebble, because pebble may hold its
// locks for ever.
func (s *Store) fail(err error) {
	if s.failed.CompareAndSwap(nil, &err) {
		s.opt.Logger.Error("store", "err", err)
		close(s.over)
	}
}

// do runs a write of pebble. After an error the write may or may not be there after a restart.
// After a panic of pebble the store writes nothing until then.
func (s *Store) do(write func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("pebble: commit: %v", r)
			s.fail(err)
		}
	}()
	return write()
}

// set writes one key of the store's metadata.
func (s *Store) set(key, value []byte, how *pebble.WriteOptions) error {
	return s.do(func() error { return s.db.Set(key, value, how) })
}

// apply commits a batch.
func (s *Store) apply(batch *pebble.Batch) error {
	return s.do(func() error { return s.db.Apply(batch, s.sync()) })
}

// applyLater commits a batch that a crash may lose.
func (s *Store) applyLater(batch *pebble.Batch) error {
	return s.do(func() error { return s.db.Apply(batch, pebble.NoSync) })
}

// maintain removes old rows and splits large tablets at every Options.Sweep.
func (s *Store) maintain(ctx context.Context) {
	tick := time.NewTicker(s.opt.Sweep)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if s.failed.Load() != nil {
			return
		}
		if err := errors.Join(s.sweep(ctx), s.grow(ctx)); err != nil && ctx.Err() == nil {
			s.opt.Logger.Warn("maintenance of the store will be tried again", "err", err)
		}
	}
}
