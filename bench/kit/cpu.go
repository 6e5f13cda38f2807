package kit

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// OwnCPU is the processor time that this process has used.
func OwnCPU() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// AllCPU is the processor time of this process and of all its descendants.
func AllCPU() time.Duration {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	parent, used := map[int]int{}, map[int]time.Duration{}
	for _, name := range stats {
		b, err := os.ReadFile(name)
		_, rest, ok := bytes.Cut(b, []byte(") ")) // the name before it may contain any character
		f := strings.Fields(string(rest))
		if err != nil || !ok || len(f) < 15 {
			continue // the process has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		parent[pid], _ = strconv.Atoi(f[1])
		for _, field := range f[11:15] { // the time of the process and of its children that have ended
			n, _ := strconv.Atoi(field)
			used[pid] += time.Duration(n) * (time.Second / 100) // the kernel counts in hundredths
		}
	}
	sum, self := OwnCPU(), os.Getpid()
	for pid := range parent {
		for up := parent[pid]; up > 0; up = parent[up] {
			if up == self {
				sum += used[pid]
				break
			}
		}
	}
	return sum
}
