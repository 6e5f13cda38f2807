package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-cache/freshet/check"
)

// ending is an error that ends the process with a status of its own.
type ending struct {
	error
	code int
}

// exitCode is what the process ends with when a command has failed.
func exitCode(err error) int {
	if s := (ending{}); errors.As(err, &s) {
		return s.code
	}
	return 1
}

// The verdict has been printed when one of these is returned.
var (
	errViolated  = ending{errors.New("the history is not linearizable"), 1}
	errUndecided = ending{errors.New("the history is neither proven linearizable nor refuted; raise --limit"), 2}
)

func judge() *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "check FILE", Short: "judge a recorded history", Args: cobra.ExactArgs(1),
		Long: "check reads a history, one operation a line, and says whether it is linearizable.\nFILE - is the standard input. A line is a JSON object:\n\n" +
			`  {"client":1,"kind":"write","key":"k","value":"v","start":10,"end":20,"outcome":"ok"}` +
			"\n  " + `{"client":2,"kind":"read","key":"k","value":"v","found":true,"start":30,"end":40,"outcome":"ok"}` +
			"\n\nkind is read, write, delete, cas (with was), update (with was and wasFound) or add\n(with delta); outcome is ok, no or unknown; times are nanoseconds of one clock;\nversion may be given. Exits with 0 if the history is linearizable, with 1 if it is\nnot, and with 2 if it is undecided or cannot be read.",
	}
	cmd.Flags().DurationVar(&limit, "limit", time.Minute, "how long to search for an order of one key's operations")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in := cmd.InOrStdin()
		if args[0] != "-" {
			f, err := os.Open(args[0])
			if err != nil {
				return ending{err, 2}
			}
			defer f.Close()
			in = f
		}
		return verdict(cmd.OutOrStdout(), in, limit)
	}
	return cmd
}

func verdict(out io.Writer, in io.Reader, limit time.Duration) error {
	ops, err := check.ReadAll(in)
	if err != nil {
		return ending{err, 2}
	}
	v := check.Linear(ops, limit)
	v.Print(out)
	stale, reads := check.Stale(ops)
	fmt.Fprintf(out, "stale reads: %d of %d\n", stale, reads)
	switch v.Finding {
	case check.Linearizable:
		return nil
	case check.Violated:
		return errViolated
	}
	return errUndecided
}
