package node

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/freshet-cache/freshet/redis"
	"github.com/freshet-cache/freshet/resp"
)

// Version of freshet.
const Version = "0.1.0-dev"

// built is what the build noted of the tree it was made from.
func built() (revision, at string, dirty bool) {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return "", "", false
	}
	for _, s := range b.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.time":
			at = s.Value
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	if revision == "" && b.Main.Version != "(devel)" { // go install of a version, whose end is the commit
		revision = b.Main.Version[strings.LastIndexByte(b.Main.Version, '-')+1:]
	}
	return revision, at, dirty
}

// Revision is the commit that the program was built from, with "-dirty" behind it if
// the tree was changed; "unknown" if it was built without one.
func Revision() string {
	rev, _, dirty := built()
	switch {
	case rev == "":
		return "unknown"
	case dirty:
		return rev[:min(12, len(rev))] + "-dirty"
	}
	return rev[:min(12, len(rev))]
}

// About says what the program is, in lines.
func About() string {
	_, at, _ := built()
	text := fmt.Sprintf("freshet %s\ncommit  %s\n", Version, Revision())
	if at != "" {
		text += "of      " + at + "\n"
	}
	return text + fmt.Sprintf("go      %s %s/%s\nnodes speak version %d of their protocol\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, frameVersion)
}

const progressEvery = 2 * time.Second

// progress says now and then in the log what the process waits for before it can start.
func (p *Process) progress(what string) (done func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	began := time.Now()
	go func() {
		defer close(ended)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.log.Info("waiting for "+what, "for", time.Since(began).Round(time.Second), "at_most", openTimeout)
			case <-end:
				return
			}
		}
	}()
	return func() { close(end); <-ended }
}

// helpCommands are those about the commands themselves.
var helpCommands = []resp.Command{
	{Name: "fr.help", Arity: -1, Flags: []string{"fast", "loading", "stale"}, Group: "freshet",
		Summary: "FR.HELP [command]: says what freshet's own commands do.", Since: "0.1.0"},
}

// help answers FR.HELP.
func (n *Node) help(args [][]byte, w *resp.Writer) {
	var lines []string
	for _, c := range n.p.commands {
		if c.Group == "freshet" && (len(args) == 1 || redis.Lower(args[1]) == c.Name || "fr."+redis.Lower(args[1]) == c.Name) {
			lines = append(lines, c.Summary)
		}
	}
	if len(lines) == 0 {
		w.Error(fmt.Sprintf("ERR '%.64s' is no command of freshet's own; FR.HELP lists them, and COMMAND DOCS the others", args[1]))
		return
	}
	w.Array(len(lines))
	for _, l := range lines {
		w.BulkString(l)
	}
}
