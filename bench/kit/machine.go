package kit

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// machine describes the machine that produced the figures.
func machine() string {
	cpu := runtime.GOARCH
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	memory, kernel := "", ""
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		memory = fmt.Sprintf(", %.0f GiB", float64(info.Totalram)*float64(info.Unit)/(1<<30))
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		kernel = " " + unix.ByteSliceToString(name.Release[:])
	}
	return fmt.Sprintf("%s, %d processors%s, %s%s, %s", cpu, runtime.NumCPU(), memory, runtime.GOOS, kernel, runtime.Version())
}

// commit is the commit that was built or, in a checkout, the state of the working tree.
func commit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		set := map[string]string{}
		for _, s := range info.Settings {
			set[s.Key] = s.Value
		}
		if rev := set["vcs.revision"]; rev != "" && set["vcs.modified"] == "true" {
			return rev + ", modified"
		} else if rev != "" {
			return rev
		}
	}
	if out, err := exec.Command("git", "rev-parse", "HEAD").Output(); err == nil {
		return strings.TrimSpace(string(out)) + ", perhaps modified"
	}
	return "unknown"
}
