package kit

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Options say how to run an experiment. The zero value runs all systems with the preset
// smoke.
type Options struct {
	// Preset is the size of the run: smoke takes less than a minute, paper makes figures
	// for publication, tiny is for tests and runs through everything once. Default smoke.
	Preset string
	// Systems are the systems to measure. Default: all systems of the experiment.
	Systems []string
	// Out is the directory of the results. Default bench-out.
	Out string
	// Seed makes the requests. Default 1.
	Seed uint64
	// Set has the options that the experiment declares besides these, by name.
	Set map[string]string
	// Serve is the command that runs freshet serve. Default: this executable.
	Serve []string
	// Command is the command line as the results show it.
	Command string
	// Progress is called with the current step, often. Default: nothing is called.
	Progress func(text string)
	// Table is where the tables are printed. Default: nowhere.
	Table io.Writer
}

// Text is the value of an option that the experiment declares, or else its default.
func (o Options) Text(name string) string { return o.Set[name] }

// Number is the value of an option that is a number. It is 0 without a value and a default.
func (o Options) Number(name string) float64 {
	v, _ := strconv.ParseFloat(o.Set[name], 64) // check has seen it
	return v
}

// Option is an option that an experiment declares besides those that all experiments take.
type Option struct {
	// Name is the name of the flag.
	Name string
	// Usage is the flag's line of --help.
	Usage string
	// Default is the value that is used without the flag.
	Default string
	// Check says what is wrong with a value. Default: any text is right.
	Check func(value string) error
	// IsPath marks a file or directory. Reports show only its last part.
	IsPath bool
}

// The options that experiments of several promises take.
var (
	RedisOption    = Option{Name: "redis", Usage: "HOST:PORT of a running redis-server, which is written to (default: one is started from PATH)"}
	PostgresOption = Option{Name: "postgres", Usage: "URL of a PostgreSQL database, in which schemas are made (default: a server is started)"}
	RateOption     = Option{Name: "rate", Usage: "requests a second of the open loops (default: by preset)", Check: positive}
)

func positive(value string) error {
	v, err := strconv.ParseFloat(value, 64)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a number", value)
	case v <= 0:
		return fmt.Errorf("%g requests a second is not more than zero", v)
	}
	return nil
}

// Share checks that a value is a share: a number from 0 to 1.
func Share(value string) error {
	v, err := strconv.ParseFloat(value, 64)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a number", value)
	case v < 0 || v > 1:
		return fmt.Errorf("a share of %g is not between 0 and 1", v)
	}
	return nil
}

// check looks at options before the experiment runs, and fills in defaults.
func (e Experiment) check(o *Options) error {
	if len(o.Systems) == 0 {
		o.Systems = e.Systems
	}
	for _, s := range o.Systems {
		if !slices.Contains(e.Systems, s) {
			return fmt.Errorf("bench: %s has no system %q; it has %s", e.Name, s, strings.Join(e.Systems, ", "))
		}
	}
	o.Preset, o.Out, o.Seed = cmp.Or(o.Preset, "smoke"), cmp.Or(o.Out, "bench-out"), cmp.Or(o.Seed, 1)
	if !slices.Contains([]string{"smoke", "paper", "tiny"}, o.Preset) {
		return fmt.Errorf("bench: preset %q is neither smoke nor paper", o.Preset)
	}
	if err := e.set(o); err != nil {
		return err
	}
	if len(o.Serve) == 0 {
		exe, err := os.Executable()
		if err != nil {
			return fmt.Errorf("bench: this executable cannot be found: %w", err)
		}
		o.Serve = []string{exe, "serve"}
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Table == nil {
		o.Table = io.Discard
	}
	return nil
}

// set checks the options that the experiment declares, and refuses others.
func (e Experiment) set(o *Options) error {
	all := map[string]string{}
	for _, d := range e.Options {
		v, given := o.Set[d.Name]
		if !given {
			v = d.Default
		}
		if given && d.Check != nil {
			if err := d.Check(v); err != nil {
				return fmt.Errorf("bench: --%s of %s: %w", d.Name, e.Name, err)
			}
		}
		all[d.Name] = v
	}
	for name := range o.Set {
		if _, declared := all[name]; !declared {
			return fmt.Errorf("bench: %s takes no option --%s; it takes %s", e.Name, name, strings.Join(e.Takes(), ", "))
		}
	}
	o.Set = all
	return nil
}

// common are the options that all experiments take.
var common = []string{"preset", "systems", "out", "seed"}

// Takes are the flags that the experiment takes.
func (e Experiment) Takes() (flags []string) {
	for _, d := range e.Options {
		flags = append(flags, "--"+d.Name)
	}
	for _, name := range common {
		flags = append(flags, "--"+name)
	}
	return flags
}
