package pebble

import (
	"errors"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// patient is a file system on which opening a file waits for a descriptor, and for space
// a moment. Pebble takes a failure of some files for the end, and tries others again at
// once and without end.
type patient struct {
	vfs.FS
	out   func(what string, err error) // told once of every spell
	sleep func(time.Duration)

	mu    sync.Mutex
	spell bool // the last file could not be opened
}

const (
	patience  = 10 * time.Minute // for a descriptor; without one pebble ends the process
	fullPause = time.Second      // for space: pebble tries again by itself
)

// open calls do until there is a descriptor, or patience ends.
func (p *patient) open(what string, do func() (vfs.File, error)) (vfs.File, error) {
	waited := time.Duration(0)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		f, err := do()
		none := errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
		full := errors.Is(err, unix.ENOSPC)
		p.tell(what, err, none || full)
		switch {
		case full:
			p.sleep(fullPause)
			return f, err
		case !none || waited >= patience:
			return f, err
		}
		p.sleep(wait)
		waited += wait
	}
}

// tell says that a spell of failures begins.
func (p *patient) tell(what string, err error, failed bool) {
	p.mu.Lock()
	first := failed && !p.spell
	p.spell = failed
	p.mu.Unlock()
	if first {
		p.out(what, err)
	}
}

func (p *patient) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return p.open(name, func() (vfs.File, error) { return p.FS.Create(name, c) })
}

func (p *patient) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return p.open(name, func() (vfs.File, error) { return p.FS.Open(name, opts...) })
}

func (p *patient) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return p.open(name, func() (vfs.File, error) { return p.FS.OpenReadWrite(name, c, opts...) })
}

func (p *patient) OpenDir(name string) (vfs.File, error) {
	return p.open(name, func() (vfs.File, error) { return p.FS.OpenDir(name) })
}

func (p *patient) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return p.open(name, func() (vfs.File, error) { return p.FS.ReuseForWrite(old, name, c) })
}

// Unwrap implements vfs.FS.
func (p *patient) Unwrap() vfs.FS { return p.FS }
