package kit

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// onFirstProcessor runs f on the first processor. A process that f starts stays on it.
func onFirstProcessor(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, first unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("processors cannot be assigned: %w", err)
	}
	first.Set(processors(before)[0])
	if err := unix.SchedSetaffinity(0, &first); err != nil {
		return fmt.Errorf("processors cannot be assigned: %w", err)
	}
	err := f()
	return errors.Join(err, unix.SchedSetaffinity(0, &before))
}

func processors(set unix.CPUSet) (list []int) {
	for i := range 1024 {
		if set.IsSet(i) {
			list = append(list, i)
		}
	}
	return list
}

// LeaveFirstProcessor moves this process off the first processor, so that a server has that
// processor alone. It returns a function that moves the process back, and whether there is another
// processor.
func LeaveFirstProcessor() (back func(), ok bool) {
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil || all.Count() < 2 {
		return func() {}, false
	}
	rest := all
	rest.Clear(processors(all)[0])
	move := func(to *unix.CPUSet) {
		threads, _ := os.ReadDir("/proc/self/task")
		for _, t := range threads {
			if id, err := strconv.Atoi(t.Name()); err == nil {
				_ = unix.SchedSetaffinity(id, to) // a thread may have ended
			}
		}
	}
	move(&rest)
	return func() { move(&all) }, true
}
