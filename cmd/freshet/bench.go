package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/freshet-cache/freshet/bench"
)

func benchmark() *cobra.Command {
	var opt bench.Options
	names, about := bench.Experiments()
	cmd := &cobra.Command{
		Use: "bench EXPERIMENT", Short: "measure beside others, in one run, with the verdict of a checker",
		Args: cobra.ExactArgs(1), ValidArgs: names,
		Long: "bench measures freshet beside other systems, which take turns in short rounds, has\nthe answers of the run judged, and leaves EXPERIMENT.json, EXPERIMENT.md and plots\nin --out. It wants the machine for itself. Exits with 1 if freshet answered wrongly.\n\nExperiments:\n",
	}
	for _, n := range names {
		cmd.Long += fmt.Sprintf("  %-15s %s\n", n, about[n])
	}
	f := cmd.Flags()
	f.StringVar(&opt.Preset, "preset", "smoke", "smoke, less than a minute, or paper, for figures to publish")
	f.StringSliceVar(&opt.Systems, "systems", nil, "systems to measure (default all of the experiment)")
	f.StringVar(&opt.Trace, "trace", "", "linear-trace: file of accesses, perhaps .gz: CSV with the columns key and op, what redis-cli MONITOR prints, or big-endian uint32 keys (default the cut that is built in); linear-traces: directory of traces (default $FRESHET_DATA)")
	f.StringVar(&opt.Out, "out", "bench-out", "directory for the results")
	f.StringVar(&opt.Redis, "redis", "", "HOST:PORT of a running redis-server, which is written to (default one is started from PATH)")
	f.StringVar(&opt.Postgres, "postgres", "", "URL of a PostgreSQL database, in which schemas are made (default a server is started)")
	f.Float64Var(&opt.Rate, "rate", 0, "open loops: requests a second (default by preset)")
	f.Float64Var(&opt.Writes, "writes", 0.05, "share of a recorded trace's accesses that are made writes, if it does not say which are")
	f.StringVar(&opt.History, "history", "", "linear-trace: directory that exists, for the histories, which freshet check reads (default they are not kept)")
	f.Uint64Var(&opt.Seed, "seed", 1, "makes the requests: the same seed, the same requests")
	cmd.AddCommand(&cobra.Command{Use: "list", Short: "the experiments, and what each measures", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		for _, n := range names {
			fmt.Fprintf(t, "%s\t%s\n", n, about[n])
		}
		return t.Flush()
	}})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		opt.Experiment, opt.Table = args[0], cmd.OutOrStdout()
		opt.Command = strings.Join(append([]string{"freshet"}, os.Args[1:]...), " ")
		progress, done := progressLine(os.Stderr)
		opt.Progress = progress
		defer done()
		if opt.Writes <= 0 {
			opt.Writes = -1 // to bench, 0 is the default
		}
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		_, err := bench.Run(ctx, opt)
		return err
	}
	return cmd
}

// progressLine shows the latest text in one line of a terminal, and nothing
// anywhere else: a log is not for what is over in a moment.
func progressLine(f *os.File) (show func(text string), done func()) {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return func(string) {}, func() {}
	}
	return func(text string) { fmt.Fprintf(f, "\r\x1b[K%.100s", text) }, func() { fmt.Fprint(f, "\r\x1b[K") }
}
