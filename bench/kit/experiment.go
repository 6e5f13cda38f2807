package kit

import (
	"context"
)

// Experiment is something that can be measured.
type Experiment struct {
	Name    string
	Systems []string
	// Pages has the text of the experiment, NAME.md.
	Pages *Pages
	// Options are the options that it takes besides those that all experiments take.
	Options []Option
	// Run measures. What it returns has all figures; Tables and Plots show them.
	Run    func(ctx context.Context, opt Options) (*Report, error)
	Tables func(r *Report) []Table
	Plots  func(r *Report) []Plot
	// Ours reports whether wrong answers of a system void the figures. Default: those of
	// systems whose names begin with freshet.
	Ours func(system string) bool
}

// About says in a line what the experiment measures.
func (e Experiment) About() string { return e.Pages.About(e.Name) }
