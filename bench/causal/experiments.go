package causal

import (
	"embed"
	"io/fs"

	"github.com/freshet-cache/freshet/bench/kit"
)

//go:embed pages/*.md
var embedded embed.FS

// Experiments are the experiments of the causal promise.
func Experiments() []kit.Experiment {
	dir, err := fs.Sub(embedded, "pages")
	if err != nil {
		panic(err) // the page is part of the program
	}
	pages := kit.ReadPages(dir)
	return []kit.Experiment{
		{Name: "causal-anomalies", Pages: pages, Systems: anomalySystems, Run: causalAnomalies, Tables: anomalyTables, Plots: anomalyPlots},
		{Name: "causal-micro", Pages: pages, Systems: causalSystems, Run: causalMicro, Tables: loopTables, Plots: loopPlots},
		{Name: "causal-movie", Pages: pages, Systems: movieSystems, Run: causalMovie, Tables: movieTables, Plots: loopPlots},
		{Name: "causal-overhead", Pages: pages, Systems: causalOverheadSystems, Run: causalOverhead, Tables: overheadTables, Plots: overheadPlots},
		{Name: "causal-scale", Pages: pages, Systems: scaleSystems, Run: causalScale, Tables: scaleTables, Plots: scalePlots},
		{Name: "causal-visibility", Pages: pages, Systems: visibilitySystems, Run: causalVisibility, Tables: visibilityTables, Plots: visibilityPlots},
	}
}
