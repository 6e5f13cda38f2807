package kit

import (
	"fmt"
	"io"
	"strconv"
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
	// Seed is the seed of the requests. Default 1.
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
	v, _ := strconv.ParseFloat(o.Set[name], 64) // check has verified that it is a number
	return v
}

// Option is an option that an experiment declares besides those that all experiments take.
type Option struct {
	// Name is the name of the flag.
	Name string
	// Usage is the line of --help. A word in backquotes stands for the value.
	Usage string
	// Default is the value that is used without the flag.
	Default string
	// Check returns an error for a wrong value. Default: any text is right.
	Check func(value string) error
	// IsPath marks a file or directory. Reports show only its last part.
	IsPath bool
}

// The options that experiments of several promises take.
var (
	RedisOption    = Option{Name: "redis", Usage: "`HOST:PORT` of a running redis-server, which is written to (default: one is started from PATH)"}
	PostgresOption = Option{Name: "postgres", Usage: "`URL` of a PostgreSQL database, in which schemas are made (default: a server is started)"}
	RateOption     = Option{Name: "rate", Usage: "`number` of requests a second of the open loops (default: by preset)", Check: positive}
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
