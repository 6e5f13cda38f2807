package pebble

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/freshet-cache/freshet/store"
)

// watched is a file system that tells of every sync, before and after it.
type watched struct {
	vfs.FS
	synced func()
}

type watchedFile struct {
	vfs.File
	fs *watched
}

func (w *watched) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &watchedFile{f, w}, nil
}

func (w *watched) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return w.file(w.FS.Create(name, c))
}

func (w *watched) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return w.file(w.FS.ReuseForWrite(old, name, c))
}

func (w *watched) OpenDir(name string) (vfs.File, error) { return w.file(w.FS.OpenDir(name)) }

func (f *watchedFile) around(sync func() error) error {
	f.fs.synced()
	defer f.fs.synced()
	return sync()
}

func (f *watchedFile) Sync() error     { return f.around(f.File.Sync) }
func (f *watchedFile) SyncData() error { return f.around(f.File.SyncData) }
func (f *watchedFile) SyncTo(n int64) (full bool, err error) {
	err = f.around(func() (err error) { full, err = f.File.SyncTo(n); return err })
	return full, err
}

// known is what clients have been told of a store by the moment of a crash.
type known struct {
	values  map[string]int           // the latest write of a key that was acknowledged, by its number
	version map[string]store.Version // its version, or that of a later row that was read
	highest store.Version            // of all that was acknowledged or read
	clock   int64                    // the latest reading of the store's clock
}

func (k known) clone() known {
	out := known{map[string]int{}, map[string]store.Version{}, k.highest, k.clock}
	for key, n := range k.values {
		out.values[key], out.version[key] = n, k.version[key]
	}
	return out
}

// crasher runs clients over a store, and takes the disk as a crash at one of the store's
// syncs would leave it.
type crasher struct {
	t    *testing.T
	mem  *vfs.MemFS
	rnd  *rand.Rand
	at   int // the sync to crash at, before or after it
	seen int

	mu    sync.Mutex // also makes what is known at the crash a lower bound: it is read before the disk
	known known
	disk  *vfs.MemFS
	then  known

	opened, early bool // the store was there when it crashed, or was only being made
}

func (c *crasher) synced() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen++; c.seen == c.at && c.disk == nil {
		c.then, c.early = c.known.clone(), !c.opened
		c.disk = c.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: c.rnd.IntN(101), RNG: c.rnd})
	}
}

// client writes, removes and reads keys of its own, each value larger than the last, and
// notes what it is told.
func (c *crasher) client(s *Store, id int, rnd *rand.Rand) {
	for n := 1; n < 60; n++ {
		key := fmt.Sprintf("k%d.%d", id, rnd.IntN(3))
		m := store.Mutation{Key: key, Value: []byte(fmt.Sprint(n)), Delete: rnd.IntN(5) == 0}
		if rnd.IntN(4) == 0 {
			m.TTL = time.Hour
		}
		stamps, err := s.Commit(context.Background(), store.ID{byte(id), byte(n)}, []store.Mutation{m})
		if err != nil {
			c.t.Errorf("write %d of %s: %v", n, key, err)
			return
		}
		if m.Delete {
			n = -n
		}
		c.told(key, n, stamps[0].Version)
		n = max(n, -n)
		if rnd.IntN(8) == 0 {
			if err := s.sweep(context.Background()); err != nil {
				c.t.Error(err)
			}
			r, err := s.Load(context.Background(), key)
			if err != nil {
				c.t.Error(err)
			}
			c.mu.Lock()
			c.known.highest = max(c.known.highest, r.Version)
			c.mu.Unlock()
		}
		if rnd.IntN(8) == 0 {
			now, err := s.clock.now(s)
			if err != nil {
				c.t.Error(err)
			}
			c.mu.Lock()
			c.known.clock = max(c.known.clock, now)
			c.mu.Unlock()
		}
	}
}

func (c *crasher) told(key string, n int, v store.Version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known.values[key], c.known.version[key] = n, v
	c.known.highest = max(c.known.highest, v)
}

// holds judges a store that was opened over what the crash had left.
func (c *crasher) holds(s *Store) {
	for key, n := range c.then.values {
		r, err := s.Load(context.Background(), key)
		if err != nil {
			c.t.Fatal(err)
		}
		got := 0
		if r.Exists {
			_, _ = fmt.Sscan(string(r.Value), &got)
		}
		switch {
		case r.Version < c.then.version[key]:
			c.t.Errorf("%s has version %d, and %d was acknowledged", key, r.Version, c.then.version[key])
		case r.Version == c.then.version[key] && r.Exists != (n > 0), r.Exists && got < max(n, -n):
			c.t.Errorf("%s is %q (exists %v), and write %d was acknowledged", key, r.Value, r.Exists, n)
		}
	}
	stamps, err := s.Commit(context.Background(), store.ID{1}, []store.Mutation{{Key: "next", Value: []byte("v")}})
	if err != nil {
		c.t.Fatal(err)
	}
	if stamps[0].Version <= c.then.highest {
		c.t.Errorf("version %d is given after a crash, and %d had been given before", stamps[0].Version, c.then.highest)
	}
	r, err := s.Load(context.Background(), "never written")
	if err != nil {
		c.t.Fatal(err)
	}
	if now, err := s.clock.now(s); err != nil || now < c.then.clock {
		c.t.Errorf("the clock says %d after a crash, and had said %d: %v (%v)", now, c.then.clock, err, r)
	}
}

// At whichever sync the machine crashes, and whatever of the unsynced data it keeps: what
// was acknowledged is there, no version is given twice, and the clock does not step back.
func TestCrashAtEverySync(t *testing.T) {
	crashed := 0
	for at := 1; at <= 120; at++ {
		c := &crasher{t: t, mem: vfs.NewCrashableMem(), rnd: rand.New(rand.NewPCG(uint64(at), 9)), at: at}
		c.known = known{values: map[string]int{}, version: map[string]store.Version{}}
		dir := t.TempDir()
		opt := Options{Grace: time.Nanosecond, Sweep: time.Hour, Free: func(string) (uint64, error) { return 1 << 40, nil }}
		opt.fs = &watched{c.mem, c.synced}
		s, err := Open(dir, opt)
		if err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		c.opened = true
		c.mu.Unlock()
		s.clock.base += int64(at%3) * int64(time.Hour) // the machine's clock may be set back before the restart
		var wg sync.WaitGroup
		for id := range 3 {
			wg.Go(func() { c.client(s, id, rand.New(rand.NewPCG(uint64(at), uint64(id)))) })
		}
		wg.Wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if c.disk == nil {
			continue // it has fewer syncs
		}
		crashed++
		opt.fs = c.disk
		again, err := Open(dir, opt)
		if errors.Is(err, ErrDamaged) && c.early { // this file system may keep of two new files the later one only
			continue
		}
		if err != nil {
			t.Fatalf("after a crash at sync %d: %v", at, err)
		}
		c.holds(again)
		if err := again.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Fatalf("after a crash at sync %d", at)
		}
	}
	if crashed < 80 {
		t.Errorf("only %d crashes", crashed)
	}
}
