package linear

import (
	"embed"
	"io/fs"

	"github.com/freshet-cache/freshet/bench/kit"
)

//go:embed pages/*.md
var embedded embed.FS

// Experiments are the experiments of the linear promise.
func Experiments() []kit.Experiment {
	dir, err := fs.Sub(embedded, "pages")
	if err != nil {
		panic(err) // the page is part of the program
	}
	pages := kit.ReadPages(dir)
	return []kit.Experiment{
		{Name: "guard-overhead", Pages: pages, Systems: guardSystems, Run: guardOverhead, Tables: guardTables, Plots: guardPlots,
			Options: []kit.Option{kit.PostgresOption}, Ours: func(string) bool { return true }},
		{Name: "linear-cores", Pages: pages, Systems: coreSystems, Run: linearCores, Tables: coreTables, Plots: corePlots},
		{Name: "linear-failover", Pages: pages, Systems: failoverSystems, Run: linearFailover, Tables: failoverTables, Plots: failoverPlots,
			Options: []kit.Option{kit.RateOption, kit.PostgresOption}},
		{Name: "linear-hit", Pages: pages, Systems: hitSystems, Run: linearHit, Tables: hitTables, Plots: hitPlots},
		{Name: "linear-hotkey", Pages: pages, Systems: tableSystems, Run: linearHotkey, Tables: hotkeyTables, Plots: hotkeyPlots,
			Options: []kit.Option{kit.RateOption, kit.RedisOption, kit.PostgresOption}},
		{Name: "linear-remote", Pages: pages, Systems: remoteSystems, Run: linearRemote, Tables: remoteTables, Plots: remotePlots,
			Options: []kit.Option{kit.RedisOption}},
		{Name: "linear-replicas", Pages: pages, Systems: replicaSystems, Run: linearReplicas, Tables: replicaTables, Plots: replicaPlots},
		{Name: "linear-reshard", Pages: pages, Systems: reshardSystems, Run: linearReshard, Tables: reshardTables, Plots: reshardPlots,
			Options: []kit.Option{kit.RateOption, optWrites}},
		{Name: "linear-trace", Pages: pages, Systems: traceSystems, Run: linearTrace, Tables: traceTables, Plots: tracePlots,
			Options: []kit.Option{optTrace, optWrites, kit.RateOption, optHistory}},
		{Name: "linear-traces", Pages: pages, Systems: tableSystems, Run: linearTraces, Tables: tracesTables, Plots: tracesPlots,
			Options: []kit.Option{optTraces, optWrites, kit.RateOption, kit.RedisOption, kit.PostgresOption}},
		{Name: "linear-tracking", Pages: pages, Systems: trackingSystems, Run: linearTracking, Tables: trackingTables, Plots: trackingPlots,
			Options: []kit.Option{kit.RedisOption}},
		{Name: "linear-writes", Pages: pages, Systems: tableSystems, Run: linearWrites, Tables: writesTables, Plots: writesPlots,
			Options: []kit.Option{kit.RateOption, kit.RedisOption, kit.PostgresOption}},
	}
}
