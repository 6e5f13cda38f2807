package pebble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/journal"
)

// troubled is a file system that fails as a test says.
type troubled struct {
	vfs.FS
	create atomic.Pointer[error] // of every file that is to be made
	sync   atomic.Pointer[error] // of every sync
	tries  atomic.Int64          // files that could not be made
}

func (t *troubled) made(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &troubledFile{f, t}, nil
}

func (t *troubled) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := t.create.Load(); err != nil {
		t.tries.Add(1)
		return nil, &os.PathError{Op: "open", Path: name, Err: *err}
	}
	return t.made(t.FS.Create(name, c))
}

func (t *troubled) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := t.create.Load(); err != nil {
		t.tries.Add(1)
		return nil, &os.PathError{Op: "open", Path: name, Err: *err}
	}
	return t.made(t.FS.ReuseForWrite(old, name, c))
}

type troubledFile struct {
	vfs.File
	fs *troubled
}

func (f *troubledFile) failed() error {
	if err := f.fs.sync.Load(); err != nil {
		return *err
	}
	return nil
}

func (f *troubledFile) Sync() error     { return errors.Join(f.failed(), f.File.Sync()) }
func (f *troubledFile) SyncData() error { return errors.Join(f.failed(), f.File.SyncData()) }
func (f *troubledFile) SyncTo(n int64) (bool, error) {
	if err := f.failed(); err != nil {
		return false, err
	}
	return f.File.SyncTo(n)
}

// lines counts what is logged.
type lines struct {
	slog.Handler
	mu  sync.Mutex
	all []string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r.Message)
	return nil
}

// Without descriptors the store waits, says so once, and goes on when there are some.
func TestNoDescriptors(t *testing.T) {
	fs, said := &troubled{FS: vfs.Default}, &lines{}
	s := open(t, t.TempDir(), Options{fs: fs, Logger: slog.New(said), MaxValue: 2 << 20})
	if _, err := s.Commit(t.Context(), store.ID{1}, set("before", "v")); err != nil {
		t.Fatal(err)
	}
	var none error = unix.EMFILE
	fs.create.Store(&none)
	value := strings.Repeat("x", 1<<20)
	const writes = 100 // more than a memtable holds, so that files are needed
	done := make(chan error, 1)
	go func() {
		for i := range writes {
			if _, err := s.Commit(t.Context(), store.ID{1}, set(fmt.Sprint("k", i), value)); err != nil {
				done <- fmt.Errorf("write %d: %w", i, err)
				return
			}
		}
		done <- nil
	}()
	for fs.tries.Load() < 4 { // it has met the trouble, and has tried again
		select {
		case err := <-done:
			t.Fatalf("nothing needed a file: %v", err)
		default:
			runtime.Gosched()
		}
	}
	if r, err := s.Load(t.Context(), "before"); err != nil || string(r.Value) != "v" {
		t.Fatalf("a read meanwhile: %q, %v", r.Value, err)
	}
	fs.create.Store(nil)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for i := range writes {
		if r, err := s.Load(t.Context(), fmt.Sprint("k", i)); err != nil || len(r.Value) != len(value) {
			t.Fatalf("k%d: %d bytes, %v", i, len(r.Value), err)
		}
	}
	said.mu.Lock()
	defer said.mu.Unlock()
	if n := len(said.all); n == 0 || n > 5 {
		t.Errorf("%d lines are logged: %q", n, said.all[:min(n, 10)])
	}
	if n := fs.tries.Load(); n > 100 {
		t.Errorf("%d attempts to make files", n)
	}
}

// A store whose disk fails is over: no call hangs, whatever pebble's own goroutines hold.
func TestDiskFails(t *testing.T) {
	if os.Getenv("FRESHET_DISK_FAILS") == "" { // pebble's goroutines do not end: another process has them
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDiskFails$", "-test.v")
		cmd.Env = append(os.Environ(), "FRESHET_DISK_FAILS=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "every call has returned") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	fs := &troubled{FS: vfs.NewMem()}
	dir := t.TempDir()
	s, err := Open(dir, Options{fs: fs, Free: func(string) (uint64, error) { return 1 << 40, nil }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), store.ID{1}, set("k", "v")); err != nil {
		t.Fatal(err)
	}
	var broken error = errors.New("the disk is broken")
	fs.sync.Store(&broken)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() { // who writes may be stuck in pebble; nobody waits for those
			go func() { _, _ = s.Commit(context.Background(), store.ID{2}, set("k", fmt.Sprint(i))) }()
		})
	}
	wg.Wait()
	<-s.over
	ended := make(chan error, 40)
	for i := range 20 {
		go func() { _, err := s.Load(t.Context(), "k"); ended <- err }()
		go func() { _, err := s.Commit(t.Context(), store.ID{3}, set(fmt.Sprint("other", i), "v")); ended <- err }()
	}
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for range 40 {
		select {
		case err := <-ended:
			if !errors.Is(err, store.ErrClosed) {
				t.Errorf("a call to a store that has failed: %v", err)
			}
		case <-limit.C:
			t.Fatal("a call to a store that has failed hangs")
		}
	}
	if !t.Failed() {
		fmt.Println("every call has returned")
		os.Exit(0)
	}
}

// What pebble says again and again is logged once a minute.
func TestRepeatsAreLoggedOnce(t *testing.T) {
	said := &lines{}
	l := &logger{s: &Store{opt: Options{Logger: slog.New(said)}}}
	for i := range 10_000 {
		l.Errorf("background error: %d", i)
	}
	l.Errorf("another: %d", 1)
	if len(said.all) != 2 {
		t.Errorf("%d lines", len(said.all))
	}
}

// A file waits for a descriptor for as long as the store has patience, more and more slowly, for
// space a moment, and for nothing else; a spell of failures is told once.
func TestPatience(t *testing.T) {
	for name, c := range map[string]struct {
		errs  []error // of one attempt after the other; then it is made
		slept time.Duration
		tries int
		told  int
		want  error
	}{
		"at once":             {nil, 0, 1, 0, nil},
		"no descriptor":       {[]error{unix.EMFILE, unix.EMFILE, unix.EMFILE}, 35 * time.Millisecond, 4, 1, nil},
		"none in the system":  {[]error{unix.ENFILE}, 5 * time.Millisecond, 2, 1, nil},
		"no space":            {[]error{unix.ENOSPC}, fullPause, 1, 1, unix.ENOSPC},
		"not there":           {[]error{os.ErrNotExist}, 0, 1, 0, os.ErrNotExist},
		"none, and not there": {[]error{unix.EMFILE, os.ErrNotExist}, 5 * time.Millisecond, 2, 1, os.ErrNotExist},
		"never":               {slices.Repeat([]error{unix.EMFILE}, 2000), 600275 * time.Millisecond, 608, 1, unix.EMFILE},
	} {
		slept, tries, told := time.Duration(0), 0, 0
		p := &patient{FS: vfs.NewMem(), sleep: func(d time.Duration) { slept += d }, out: func(what string, err error) {
			if told++; what != "f" || err == nil {
				t.Errorf("%s: told of %s, %v", name, what, err)
			}
		}}
		_, err := p.open("f", func() (vfs.File, error) {
			if tries++; tries <= len(c.errs) {
				return nil, &os.PathError{Op: "open", Path: "f", Err: c.errs[tries-1]}
			}
			return nil, nil
		})
		if !errors.Is(err, c.want) || c.want == nil && err != nil || slept != c.slept || tries != c.tries || told != c.told {
			t.Errorf("%s: %v; slept %v, tried %d times, told %d times; want %+v", name, err, slept, tries, told, c)
		}
		fails := func() (vfs.File, error) { return nil, unix.ENOSPC }
		for range 3 { // each spell is told once, and over with the first file
			_, _ = p.open("f", fails)
			_, _ = p.open("f", fails)
			_, _ = p.open("f", func() (vfs.File, error) { return nil, nil })
		}
		if extra := told - c.told; extra != 3 && (c.want == nil || extra != 2) {
			t.Errorf("%s: 3 spells are told %d times", name, extra)
		}
	}
}

// attrs keeps what is logged, with the count.
type attrs struct {
	slog.Handler
	counts []int64
}

func (a *attrs) Enabled(context.Context, slog.Level) bool { return true }
func (a *attrs) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(x slog.Attr) bool {
		if x.Key == "count" {
			a.counts = append(a.counts, x.Value.Int64())
		}
		return true
	})
	return nil
}

// What pebble repeats is logged again after a minute, with how often it was said; forms that are
// too many to remember are logged each time.
func TestRepeatsAreCounted(t *testing.T) {
	said := &attrs{}
	l := &logger{s: &Store{opt: Options{Logger: slog.New(said)}}}
	for range 5 {
		l.Errorf("background error: %d", 1)
	}
	l.said["background error: %d"].at = time.Now().Add(-retell)
	l.Errorf("background error: %d", 2)
	l.Errorf("background error: %d", 3)
	if !slices.Equal(said.counts, []int64{1, 5}) {
		t.Errorf("the counts are %v", said.counts)
	}
	for i := range 3 * maxForms {
		l.Errorf(fmt.Sprint("form ", i, ": %d"), i)
		if len(l.said) > maxForms {
			t.Fatalf("%d forms are remembered", len(l.said))
		}
	}
	if len(said.counts) != 2+3*maxForms {
		t.Errorf("%d lines", len(said.counts))
	}
}

// A write that the disk does not take is never acknowledged, and none is taken after it.
func TestAWriteThatFailsIsNotAcknowledged(t *testing.T) {
	ctx := t.Context()
	one := func(_ any, err error) error { return err }
	for name, do := range map[string]func(c closing) error{
		"commit":  func(c closing) error { return one(c.s.Commit(ctx, store.ID{1}, set("k", "v"))) },
		"persist": func(c closing) error { return c.Persist(ctx, write(1, 2, 2, put("w"))) },
		"claim":   func(c closing) error { return one(c.Claim(ctx, 2)) },
		"begin":   func(c closing) error { return c.Begin(ctx, 2, journal.Name{2}) },
		"fence":   func(c closing) error { return c.Fence(ctx, 1) },
		"split":   func(c closing) error { return c.s.Split(ctx, "m") },
		"merge":   func(c closing) error { return c.Merge(ctx, journal.Flush{Term: 1, Number: 1}) },
	} {
		c := quick(t, Options{})
		_, err := c.Claim(ctx, 1)
		if err = errors.Join(err, c.Begin(ctx, 1, journal.Name{1}), c.Persist(ctx, write(1, 1, 1, put("v"))), c.s.db.Close()); err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if r := recover(); r != nil { // pebble refuses to read, which is no answer either
					err = fmt.Errorf("%v", r)
				}
			}()
			err = do(c)
		}()
		if err == nil {
			t.Errorf("%s is acknowledged by a disk that does not take it", name)
		}
		c.s.fail(errors.New("the end of the test")) // so that pebble is not closed twice
	}
}

// Without guards, every write commits.
func TestUnguarded(t *testing.T) {
	for _, unguarded := range []bool{true, false} {
		c := quick(t, Options{Unguarded: unguarded})
		_, err := c.s.Commit(t.Context(), store.ID{1}, []store.Mutation{{Key: "k", Value: []byte("v"), Guard: store.Token{9}}})
		if (err == nil) != unguarded || err != nil && !errors.Is(err, store.ErrGuardMismatch) {
			t.Errorf("unguarded %v: %v", unguarded, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
