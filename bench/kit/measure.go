package kit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// ErrAnomaly means that freshet gave wrong answers: the figures are void.
var ErrAnomaly = errors.New("bench: a checker found wrong answers; the figures are void, look at anomalies in the results")

// Measure runs the experiment and leaves its results in opt.Out. The error is ErrAnomaly
// if freshet answered wrongly.
func (e Experiment) Measure(ctx context.Context, opt Options) error {
	if err := e.check(&opt); err != nil {
		return err
	}
	began := time.Now()
	if err := os.MkdirAll(opt.Out, 0o755); err != nil {
		return fmt.Errorf("bench: results cannot be kept: %w", err)
	}
	r, err := e.Run(ctx, opt)
	if err != nil {
		return fmt.Errorf("bench: %s: %w", e.Name, err)
	}
	opt.Progress("")
	r.Experiment, r.Command = e.Name, opt.Command
	for _, d := range e.Options {
		if v := opt.Set[d.Name]; d.IsPath && v != "" { // a path of this machine is of no use to readers
			r.Command = strings.ReplaceAll(r.Command, v, filepath.Base(v))
		}
	}
	r.Machine, r.Commit = machine(), commit()
	r.Took = time.Since(began).Round(time.Second).String()
	if err := e.write(r, opt.Out, e.Name); err != nil {
		return fmt.Errorf("bench: results cannot be kept: %w", err)
	}
	e.print(opt.Table, r)
	fmt.Fprintf(opt.Table, "\nresults: %s\n", filepath.Join(opt.Out, e.Name+".{md,json,png,svg}"))
	for _, system := range slices.Sorted(maps.Keys(r.Anomalies)) {
		ours := strings.HasPrefix(system, "freshet")
		if e.Ours != nil {
			ours = e.Ours(system)
		}
		if r.Anomalies[system] > 0 && ours {
			return ErrAnomaly
		}
	}
	return nil
}
