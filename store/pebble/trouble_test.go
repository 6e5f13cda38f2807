package pebble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/freshet-cache/freshet/store"
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
