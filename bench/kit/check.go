package kit

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// check checks options before the experiment runs, and fills in defaults.
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
