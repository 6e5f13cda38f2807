package kit

import (
	"context"
)

// Experiment is one measurement with its page.
type Experiment struct {
	Name    string
	Systems []string
	// Pages has the text of the experiment, NAME.md.
	Pages *Pages
	// Options are the options that it takes besides those that all experiments take.
	Options []Option
	// Run measures. The report that it returns has all figures; Tables and Plots show them.
	Run    func(ctx context.Context, opt Options) (*Report, error)
	Tables func(r *Report) []Table
	Plots  func(r *Report) []Plot
	// Ours reports whether wrong answers of a system make the figures void. Default: answers of
	// systems whose names begin with freshet do.
	Ours func(system string) bool
}

// About returns one line: what the experiment measures.
func (e Experiment) About() string { return e.Pages.About(e.Name) }
