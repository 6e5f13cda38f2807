package node

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/freshet-cache/freshet/store/pebble"
)

const (
	spareConns  = 256 // of a node, beyond --max-conns: for links of other nodes
	otherFiles  = 128 // connections to stores and coordinators, the admin address, files
	leastConns  = 16  // a node that takes fewer is of no use
	filesAdvice = "raise the limit (ulimit -n, or LimitNOFILE= of systemd)"
)

// clampConns keeps --max-conns below the limit of open files, less what the process needs
// besides: clients must not take the descriptors of the store, of other nodes or of files.
func (p *Process) clampConns() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("the limit of open files cannot be read: %w", err)
	}
	most, err := connsWithin(limit.Cur, p.cfg.Nodes, p.cfg.kind() == "pebble" || p.cfg.Spaces.async())
	if err != nil {
		return err
	}
	if p.cfg.MaxConns > most {
		p.log.Warn("the limit of open files is too low for --max-conns; fewer clients are taken: "+filesAdvice,
			"max_conns", p.cfg.MaxConns, "taken", most, "open_files", limit.Cur)
		p.cfg.MaxConns = most
	}
	return nil
}

// connsWithin is how many clients each of some nodes can take with so many descriptors.
func connsWithin(limit uint64, nodes int, embedded bool) (int, error) {
	reserve := otherFiles + spareConns*nodes
	if embedded {
		reserve += pebble.MaxFiles
	}
	room := int64(min(limit, 1<<40)) - int64(reserve)
	if room < int64(leastConns*nodes) {
		return 0, fmt.Errorf("the limit of %d open files is too low: this configuration needs %d; %s", limit, reserve+leastConns*nodes, filesAdvice)
	}
	return int(min(room/int64(nodes), 1<<30)), nil
}
