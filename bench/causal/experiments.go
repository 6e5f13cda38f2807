package causal

import (
	"github.com/freshet-cache/freshet/bench/kit"
)

// Experiments are those of the causal promise.
func Experiments() []kit.Experiment {
	return []kit.Experiment{
		{Name: "causal-anomalies", About: "workflows that do not see what they have written, by the number of cache nodes, beside eventual caches", Systems: anomalySystems, Run: causalAnomalies},
		{Name: "causal-micro", About: "latency and throughput of a workflow of three functions that roam among three servers, beside causal caches that others describe", Systems: causalSystems, Run: causalMicro},
		{Name: "causal-movie", About: "a service of movie reviews as workflows that fork, join and roam, beside causal caches that others describe", Systems: movieSystems, Run: causalMovie},
		{Name: "causal-overhead", About: "processor time, memory and metadata of causal caches at a constant rate, and the size of a token", Systems: causalOverheadSystems, Run: causalOverhead},
		{Name: "causal-scale", About: "throughput of causal caches from 2 to 16 servers, at equal processor time", Systems: scaleSystems, Run: causalScale},
		{Name: "causal-visibility", About: "how long after a write at one server the last of the ring shows it, by the number of servers", Systems: visibilitySystems, Run: causalVisibility},
	}
}
