package pebble

import (
	"errors"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// patient is a file system that waits for a descriptor when it opens a file, and a moment for
// space. Pebble ends the process if it cannot open some files, and retries others at once, without
// end.
type patient struct {
	vfs.FS
	out   func(what string, err error) // called once for each series of failures
	sleep func(time.Duration)

	mu    sync.Mutex
	spell bool // the last call could not open its file
}

const (
	patience  = 10 * time.Minute // for a descriptor: without one pebble ends the process
	fullPause = time.Second      // for space: pebble retries by itself
)

// open calls do until a descriptor is free, or patience has passed.
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

// tell calls out when a series of failures begins.
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
