package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-cache/freshet/sim"
)

func simulate() *cobra.Command {
	cmd := &cobra.Command{Use: "sim", Short: "run a deterministic simulation by seed; shrink and print what failed"}
	for _, of := range sim.Simulations {
		cmd.AddCommand(simulation(of))
	}
	return cmd
}

// simulation is the command of one of them.
func simulation(of sim.Simulation) *cobra.Command {
	var first, seeds uint64
	var limit time.Duration
	var shrink int
	var log bool
	cmd := &cobra.Command{
		Use: of.Name, Short: "simulate " + of.Of, Args: cobra.NoArgs,
		Long: "sim " + of.Name + " runs " + of.Of + ", which are those that serve\nruns, in a world of virtual time where processes, links and the store fail as the\nseed says. The same seed always runs the same way. A seed that breaks a promise is\nshrunk and printed.",
	}
	cmd.Flags().Uint64Var(&first, "seed", 1, "the first seed")
	cmd.Flags().Uint64Var(&seeds, "seeds", 1, "how many seeds to run, one after the other")
	cmd.Flags().DurationVar(&limit, "for", 0, "stop after this time, though fewer than --seeds were run; without --seeds, as many as fit")
	cmd.Flags().IntVar(&shrink, "shrink", 3000, "at most so many runs to make a failure small; 0 leaves it as it is")
	cmd.Flags().BoolVar(&log, "log", false, "print what happens, also if nothing fails")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out, seen, events, began := cmd.OutOrStdout(), map[string]int{}, 0, time.Now()
		if limit > 0 && !cmd.Flags().Changed("seeds") {
			seeds = math.MaxUint64 - first
		}
		said := began
		for i := range seeds {
			if limit > 0 && time.Since(began) >= limit {
				seeds = i
				break
			}
			plan := of.New(first + i)
			res := plan.Run(log)
			if res.Err != nil {
				return broken(out, first+i, plan, res, shrink)
			}
			for _, l := range res.Log {
				fmt.Fprintln(out, l)
			}
			for what, n := range res.Sometimes {
				seen[what] += n
			}
			if events += res.Events; time.Since(said) >= simProgress {
				said = time.Now()
				fmt.Fprintln(cmd.ErrOrStderr(), simLine(i+1, seeds, events, time.Since(began), limit))
			}
		}
		for _, what := range slices.Sorted(maps.Keys(seen)) {
			fmt.Fprintf(out, "%10d  %s\n", seen[what], what)
		}
		fmt.Fprintf(out, "%d seeds from %d on, %d events: every promise held\n", seeds, first, events)
		return nil
	}
	return cmd
}

// simProgress is how often a simulation says how far it is.
const simProgress = 5 * time.Second

// simLine says how far a simulation is, and how long the rest takes if it goes on so.
func simLine(done, seeds uint64, events int, took, limit time.Duration) string {
	rate := float64(done) / took.Seconds()
	left := time.Duration(float64(seeds-done) / rate * float64(time.Second))
	if limit > 0 {
		left = min(left, limit-took)
	}
	return fmt.Sprintf("%d seeds, %d events, %s; %.1f seeds a second, about %s more", done, events, took.Round(time.Second), rate, max(0, left).Round(time.Second))
}

// broken shows the smallest plan found that breaks a promise, and what happened.
func broken(out io.Writer, seed uint64, plan sim.Plan, res sim.Result, shrink int) error {
	fmt.Fprintf(out, "seed %d: %v\n", seed, res.Err)
	if shrink > 0 {
		plan, res = sim.Shrink(plan, shrink)
	} else {
		res = plan.Run(true)
	}
	fmt.Fprintf(out, "\nthe plan:\n%v\nwhat happened:\n", plan)
	for _, l := range res.Log {
		fmt.Fprintln(out, l)
	}
	return errors.Join(fmt.Errorf("seed %d breaks a promise", seed), res.Err)
}
