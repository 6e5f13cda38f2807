package node

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/freshet-cache/freshet/redis"
)

// section is one section of INFO.
type section struct {
	name  string
	extra bool // only where it, or all, is asked for
	write func(n *Node, line func(format string, a ...any))
}

// sections are those of Redis that clients and exporters look at, in its order.
var sections = []section{
	{"server", false, infoServer}, {"clients", false, infoClients}, {"memory", false, infoMemory}, {"persistence", false, infoPersistence},
	{"stats", false, infoStats}, {"replication", false, infoReplication}, {"cpu", false, infoCPU}, {"commandstats", true, infoCommands},
	{"cluster", false, infoCluster}, {"keyspace", false, infoKeyspace}, {"freshet", false, infoFreshet},
}

// info answers INFO: the sections named, or those of the default.
func (n *Node) info(args [][]byte) string {
	wanted := map[string]bool{}
	for _, a := range args {
		wanted[redis.Lower(a)] = true
	}
	all := wanted["all"] || wanted["everything"]
	def := len(wanted) == 0 || wanted["default"]
	var b strings.Builder
	for _, s := range sections {
		if !all && !wanted[s.name] && (!def || s.extra) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		fmt.Fprintf(&b, "# %s\r\n", strings.ToUpper(s.name[:1])+s.name[1:])
		s.write(n, func(format string, a ...any) { fmt.Fprintf(&b, format+"\r\n", a...) })
	}
	return b.String()
}

func infoServer(n *Node, line func(string, ...any)) {
	up := time.Since(n.p.started)
	line("redis_version:7.4.0\r\nfreshet_version:%s\r\nfreshet_revision:%s\r\nredis_mode:standalone\r\nos:%s\r\narch_bits:64\r\nprocess_id:%d\r\nrun_id:%s",
		Version, Revision(), runtime.GOOS, os.Getpid(), n.incarnation)
	line("tcp_port:%s\r\nuptime_in_seconds:%d\r\nuptime_in_days:%d", n.addr[strings.LastIndexByte(n.addr, ':')+1:], int(up.Seconds()), int(up.Hours()/24))
}

func infoClients(n *Node, line func(string, ...any)) {
	line("connected_clients:%d\r\nmaxclients:%d\r\nblocked_clients:0\r\ntracking_clients:%d", n.server.Stats().Conns, n.p.cfg.MaxConns, n.track.Counts().Clients)
}

// residentBytes is what the process takes of the machine's memory; 0 if that is not known.
func residentBytes() int {
	if p, err := procfs.Self(); err == nil {
		if st, err := p.Stat(); err == nil {
			return st.ResidentMemory()
		}
	}
	return 0
}

func infoMemory(n *Node, line func(string, ...any)) {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	rss := residentBytes()
	line("used_memory:%d\r\nused_memory_rss:%d\r\nused_memory_dataset:%d\r\nmaxmemory:%d\r\nmaxmemory_policy:allkeys-lfu", mem.HeapAlloc, rss, n.cache.Bytes(), n.p.cfg.Memory)
	line("mem_fragmentation_ratio:%.2f", float64(rss)/float64(max(1, mem.HeapAlloc)))
}

func infoPersistence(_ *Node, line func(string, ...any)) { line("loading:0\r\nasync_loading:0") }

func infoStats(n *Node, line func(string, ...any)) {
	st, tr := n.server.Stats(), n.track.Counts()
	line("total_connections_received:%d\r\ntotal_commands_processed:%d\r\ninstantaneous_ops_per_sec:%d\r\ntotal_net_input_bytes:%d\r\ntotal_net_output_bytes:%d",
		st.Total, st.Commands, n.rate.now(st.Commands, time.Now()), st.In, st.Out)
	line("rejected_connections:%d\r\nacl_access_denied_auth:%d\r\nexpired_keys:%d\r\nevicted_keys:%d\r\nkeyspace_hits:%d\r\nkeyspace_misses:%d",
		st.Rejected, st.Denied, n.m.expired.Load(), n.cache.Evictions(), n.m.hits.Load(), n.m.missed.Load())
	line("tracking_total_keys:%d\r\ntracking_total_prefixes:%d\r\nunexpected_error_replies:0\r\ntotal_error_replies:%d", tr.Keys, tr.Prefixes, st.Protocol+st.Denied)
}

func infoReplication(_ *Node, line func(string, ...any)) { line("role:master\r\nconnected_slaves:0") }

func infoCPU(_ *Node, line func(string, ...any)) {
	if p, err := procfs.Self(); err == nil {
		if st, err := p.Stat(); err == nil {
			line("used_cpu_sys:%.2f\r\nused_cpu_user:%.2f", float64(st.STime)/100, float64(st.UTime)/100)
		}
	}
}

// infoCommands tells of each command how often it was used. GETs from memory are counted
// and not timed.
func infoCommands(n *Node, line func(string, ...any)) {
	type stat struct {
		name          string
		calls, micros uint64
	}
	var all []stat
	n.m.byName.Range(func(name, v any) bool {
		c := v.(*calls)
		all = append(all, stat{name.(string), c.count.Load(), c.micros.Load()})
		return true
	})
	slices.SortFunc(all, func(a, b stat) int { return cmp.Compare(a.name, b.name) })
	for _, s := range all {
		line("cmdstat_%s:calls=%d,usec=%d,usec_per_call=%.2f", s.name, s.calls, s.micros, float64(s.micros)/float64(max(1, s.calls)))
	}
}

func infoCluster(_ *Node, line func(string, ...any)) { line("cluster_enabled:0") }

func infoKeyspace(n *Node, line func(string, ...any)) {
	if keys, ok := n.size.count(n); ok && keys > 0 {
		line("db0:keys=%d,expires=0,avg_ttl=0", keys)
	}
}

// infoFreshet tells of the FLUSHALL ASYNC that runs, or ran last.
func infoFreshet(n *Node, line func(string, ...any)) {
	running, removed, last := n.flushing.state()
	line("flush_running:%d\r\nflush_removed_keys:%d\r\nflush_last:%s", map[bool]int{true: 1}[running], removed, last)
}

const (
	countTimeout = 2 * time.Second
	countPause   = 100
)

func (k *keyCount) count(n *Node) (keys int, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	began := time.Now()
	if began.Before(k.next) {
		return k.keys, k.known
	}
	ctx, cancel := context.WithTimeout(n.ctx, min(countTimeout, n.p.cfg.Timeout))
	defer cancel()
	if keys, err := n.p.store.Count(ctx); err == nil {
		k.keys, k.known = keys, true
	}
	k.next = time.Now().Add(countPause * time.Since(began))
	return k.keys, k.known
}
