package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/freshet-cache/freshet/bench"
	"github.com/freshet-cache/freshet/bench/kit"
)

func benchmark() *cobra.Command {
	cmd := &cobra.Command{
		Use: "bench EXPERIMENT", Short: "measure beside others, in one run, with the verdict of a checker", Args: cobra.ArbitraryArgs,
		Long: "bench measures freshet beside other systems, which take turns in short rounds, has\nthe answers of the run judged, and leaves EXPERIMENT.json, EXPERIMENT.md and plots\nin --out. It wants the machine for itself. Exits with 1 if freshet answered wrongly.\n\nfreshet bench EXPERIMENT --help shows the systems and the options of an experiment.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("bench: say which experiment; freshet bench list shows them")
			}
			return bench.Run(cmd.Context(), args[0], kit.Options{}) // it is no experiment: those are commands
		},
	}
	cmd.AddCommand(&cobra.Command{Use: "list", Short: "list the experiments, and what each measures", Args: cobra.NoArgs, RunE: list})
	cmd.AddCommand(&cobra.Command{Use: "render DIR", Short: "make the pages and plots of the reports in a directory again, from their JSON", Args: cobra.ExactArgs(1), RunE: render})
	for _, e := range bench.Experiments() {
		cmd.AddCommand(experiment(e))
	}
	return cmd
}

func list(cmd *cobra.Command, _ []string) error {
	t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	for _, e := range bench.Experiments() {
		fmt.Fprintf(t, "%s\t%s\n", e.Name, e.About())
	}
	return t.Flush()
}

func render(cmd *cobra.Command, args []string) error {
	names, err := bench.Render(args[0])
	for _, name := range names {
		fmt.Fprintln(cmd.OutOrStdout(), filepath.Join(args[0], name+".md"))
	}
	return err
}

// experiment is the command that runs one experiment. It has the flags that the
// experiment takes and no others.
func experiment(e kit.Experiment) *cobra.Command {
	var opt kit.Options
	cmd := &cobra.Command{
		Use: e.Name, Short: e.About(), Args: cobra.NoArgs,
		Long: fmt.Sprintf("%s measures %s.\n\nSystems: %s.", e.Name, e.About(), strings.Join(e.Systems, ", ")),
	}
	f := cmd.Flags()
	f.StringVar(&opt.Preset, "preset", "smoke", "smoke, less than a minute, or paper, for figures to publish")
	f.StringSliceVar(&opt.Systems, "systems", nil, "systems to measure, with commas between (default: all)")
	f.StringVar(&opt.Out, "out", "bench-out", "directory for the results")
	f.Uint64Var(&opt.Seed, "seed", 1, "makes the requests: the same seed, the same requests")
	for _, o := range e.Options {
		f.String(o.Name, o.Default, o.Usage)
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w; %s takes %s", err, e.Name, strings.Join(e.Takes(), ", "))
	})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		opt.Table, opt.Set = cmd.OutOrStdout(), map[string]string{}
		f.Visit(func(fl *pflag.Flag) {
			for _, o := range e.Options {
				if o.Name == fl.Name {
					opt.Set[fl.Name] = fl.Value.String()
				}
			}
		})
		opt.Command = strings.Join(append([]string{"freshet"}, os.Args[1:]...), " ")
		progress, done := progressLine(os.Stderr)
		opt.Progress = progress
		defer done()
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		return bench.Run(ctx, e.Name, opt)
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
