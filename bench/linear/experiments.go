package linear

import (
	"github.com/freshet-cache/freshet/bench/kit"
)

// Experiments are those of the linear promise.
func Experiments() []kit.Experiment {
	return []kit.Experiment{
		{Name: "guard-overhead", Ours: func(string) bool { return true }, About: "what guards cost the writes of a store, beside the same writes without", Systems: guardSystems, Options: []kit.Option{kit.Postgres}, Run: guardOverhead},
		{Name: "linear-cores", About: "hits in process and GET over the Redis protocol, by the number of processors", Systems: coreSystems, Run: linearCores},
		{Name: "linear-failover", About: "reads and writes around a crash, a pause and a drain of the keys' owner", Systems: failoverSystems, Options: []kit.Option{kit.Rate, kit.Postgres}, Run: linearFailover},
		{Name: "linear-hit", About: "a hit of the linear cache in process, beside the bare map it stands on", Systems: hitSystems, Run: linearHit},
		{Name: "linear-hotkey", About: "one key that is written more and more, and that gets more and more of all requests, beside what people use", Systems: tableSystems, Options: []kit.Option{kit.Rate, kit.Redis, kit.Postgres}, Run: linearHotkey},
		{Name: "linear-remote", About: "GET and SET over the Redis protocol, beside redis-server", Systems: remoteSystems, Options: []kit.Option{kit.Redis}, Run: linearRemote},
		{Name: "linear-replicas", About: "one hot key that several nodes serve: how many as it is read more, and what that costs its writes", Systems: replicaSystems, Run: linearReplicas},
		{Name: "linear-reshard", About: "reads and writes at three nodes while half a percent of the keys move each second", Systems: reshardSystems, Options: []kit.Option{kit.Rate, optWrites}, Run: linearReshard},
		{Name: "linear-trace", About: "a recorded trace against three nodes at a constant rate, every answer checked", Systems: traceSystems, Options: []kit.Option{optTrace, optWrites, kit.Rate, optHistory}, Run: linearTrace},
		{Name: "linear-traces", About: "reads and writes like those of eight services over PostgreSQL, beside what people use and what papers describe", Systems: tableSystems, Options: []kit.Option{optTraces, optWrites, kit.Rate, kit.Redis, kit.Postgres}, Run: linearTraces},
		{Name: "linear-tracking", About: "reads from clients' own caches (CLIENT TRACKING) that are older than an acknowledged write, beside redis-server", Systems: trackingSystems, Options: []kit.Option{kit.Redis}, Run: linearTracking},
		{Name: "linear-writes", About: "read latency over PostgreSQL as the share of writes grows, beside what people use and what papers describe", Systems: tableSystems, Options: []kit.Option{kit.Rate, kit.Redis, kit.Postgres}, Run: linearWrites},
	}
}
