// Command freshet runs and inspects coherent caches. See freshet help.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"reflect"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/freshet-cache/freshet/node"
)

func main() {
	root := &cobra.Command{
		Use: "freshet", Short: "caches that do not lie", SilenceUsage: true, SilenceErrors: true, Version: node.Version + " (" + node.Revision() + ")",
		Long: "freshet: coherent caches between services and their database.",
	}
	root.AddCommand(serve(), migrate(), status(), config(), simulate(), judge(), benchmark(), version())
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "freshet:", err)
		os.Exit(exitCode(err))
	}
}

// flags declares every setting once. Flags go before the environment
// (FRESHET_LISTEN and so on), which goes before the file.
func flags(f *pflag.FlagSet, c *node.Config) *string {
	f.StringVar(&c.Listen, "listen", c.Listen, "where clients connect; node i listens i-1 ports above")
	f.StringVar(&c.Admin, "admin", c.Admin, "where admin HTTP listens; node i listens i-1 ports above")
	f.StringVar(&c.Data, "data", c.Data, "directory of the embedded store and coordinator")
	f.StringVar(&c.Store, "store", c.Store, "the source of truth: pebble: (durable, in --data), memory:, postgres://USER@HOST/DB?schema=NAME or mysql://USER@HOST:PORT/DB (MariaDB, MySQL), which freshet migrate prepares, or etcd://HOST:PORT,.../PREFIX (small configuration data); better given as FRESHET_STORE if there is a password in it")
	f.StringVar(&c.Coordinator, "coordinator", c.Coordinator, "who keeps assignments: embedded (this process, in --data), freshet://HOST:PORT (the process there that has the embedded one), or etcd://[USER:PASSWORD@]HOST:PORT,.../PREFIX (etcds: over TLS)")
	f.StringVar(&c.NodeID, "node-id", c.NodeID, "name of this node; with --nodes, of the first")
	f.StringVar(&c.Advertise, "advertise", c.Advertise, "HOST:PORT under which others reach this node (default --listen)")
	f.IntVar(&c.Nodes, "nodes", c.Nodes, "how many nodes to run in this process, on consecutive ports")
	f.DurationVar(&c.Lease, "lease", c.Lease, "how long a lease lasts: what a dead node's keys wait before they can be written again")
	f.DurationVar(&c.Timeout, "timeout", c.Timeout, "how long a command may take")
	f.Var(size[int]{&c.MaxKey}, "max-key", "longest key")
	f.Var(size[int]{&c.MaxValue}, "max-value", "longest value")
	f.Var(size[int64]{&c.Memory}, "memory", "memory for entries, per node")
	f.BoolVar(&c.VersionsOnly, "versions-only", c.VersionsOnly, "keep versions in memory and no values: the version service of a layered cache, whose values lie in a Redis")
	f.IntVar(&c.TrackingKeys, "tracking-keys", c.TrackingKeys, "most keys that are remembered for CLIENT TRACKING, per node; beyond it keys are invalidated")
	f.IntVar(&c.ReplicateAt, "replicate-above", c.ReplicateAt, "operations per second of one key, above which other nodes serve its reads too; 0: only what FR.REPLICAS names")
	f.IntVar(&c.MaxReplicas, "max-replicas", c.MaxReplicas, "most replicas of a key beside its owner")
	f.Var(&c.Spaces, "space", "a space beside database 0, as NAME=PROMISE[,OPTION...]; once for each space, the same at all processes. The promise is causal: sessions never see an effect without its cause, at whichever node. Options: db=NUMBER (what SELECT takes), merge=union or merge=max (of values that are written at the same time), tcc (keeps former values for transactions), async (acknowledges writes from a log in --data; cannot be undone)")
	f.IntVar(&c.CausalKeys, "causal-keys", c.CausalKeys, "most keys of a causal space in memory, per node")
	f.Var(size[int64]{&c.CausalMemory}, "causal-memory", "memory for the keys of a causal space and their versions, per node (0: as --memory); writes that are under way take up to 64 MiB per node of the ring besides")
	f.StringVar(&c.TokenKey, "token-key", c.TokenKey, "secret that authenticates the tokens of sessions (default --password, or else a key that the cluster draws and keeps); better given as FRESHET_TOKEN_KEY or in the file")
	f.IntVar(&c.MaxConns, "max-conns", c.MaxConns, "most client connections, per node")
	f.StringVar(&c.Password, "password", c.Password, "password that clients must give; better given as FRESHET_PASSWORD or in the file")
	f.StringVar(&c.TLSCert, "tls-cert", c.TLSCert, "certificate file; clients and nodes then speak TLS")
	f.StringVar(&c.TLSKey, "tls-key", c.TLSKey, "key file of --tls-cert")
	f.StringVar(&c.TLSCA, "tls-ca", c.TLSCA, "certificates that nodes trust of each other (default --tls-cert), and of etcd (etcds:)")
	f.BoolVar(&c.NoSync, "no-sync", c.NoSync, "acknowledge writes before they are synced to disk: a crash of the machine may lose the latest")
	f.BoolVar(&c.BootClock, "boot-clock", c.BootClock, "count leases through suspends of the machine, at the price of a system call per read")
	f.BoolVar(&c.Insecure, "insecure", c.Insecure, "listen beyond loopback without a password")
	f.BoolVar(&c.AllowFlush, "allow-flush", c.AllowFlush, "let FLUSHALL and FLUSHDB remove every row of a store that others may share (postgres:, mysql:, etcd:)")
	f.StringVar(&c.DenyCommands, "deny-commands", c.DenyCommands, "commands that no client may run, with commas between, for instance flushall,keys")
	f.StringVar(&c.LogLevel, "log-level", c.LogLevel, "least level of what is logged: debug, info, warn or error; CONFIG SET log-level changes it at run time")
	f.StringVar(&c.LogFormat, "log-format", c.LogFormat, "text or json; CONFIG SET log-format changes it at run time")
	f.BoolVar(&c.LogKeys, "log-keys", c.LogKeys, "write keys into the log as they are, not as hashes")
	f.BoolVar(&c.MetricsClassic, "metrics-classic", c.MetricsClassic, "tell durations as histograms of eight buckets, not as native histograms, which Prometheus takes with --enable-feature=native-histograms")
	return f.String("config", "", "YAML file with any of these settings")
}

// load merges defaults, file, environment and flags, in that order.
func load(f *pflag.FlagSet, c *node.Config, file string) error {
	set := map[string]string{}
	f.Visit(func(fl *pflag.Flag) { set[fl.Name] = fl.Value.String() })
	if env, ok := os.LookupEnv("FRESHET_CONFIG"); ok && file == "" {
		file = env
	}
	if file != "" {
		if err := readFile(c, file); err != nil {
			return err
		}
	}
	var errs []error
	apply := func(name, value, from string) {
		set := f.Set
		if list, ok := f.Lookup(name).Value.(pflag.SliceValue); ok { // what the file says is replaced, not added to
			set = func(string, string) error { return list.Replace([]string{value}) }
		}
		if err := set(name, value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", from, err))
		}
	}
	f.VisitAll(func(fl *pflag.Flag) {
		name := envName(fl.Name)
		if v, ok := os.LookupEnv(name); ok && fl.Name != "config" {
			apply(fl.Name, v, name)
		}
	})
	for name, v := range set {
		apply(name, v, "--"+name)
	}
	return errors.Join(errs...)
}

func readFile(c *node.Config, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	defer f.Close()
	if err := decode(io.LimitReader(f, 1<<20), c); err != nil {
		return fmt.Errorf("--config %s: %w", name, err)
	}
	return nil
}

// decode reads YAML; a setting nobody knows is an error, not a surprise.
func decode(r io.Reader, c *node.Config) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err == nil { // what is wrong is said below
		changed, err := sizes(&doc)
		if err != nil {
			return err
		}
		if changed {
			if b, err = yaml.Marshal(&doc); err != nil {
				return err
			}
		}
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func serve() *cobra.Command {
	c := node.Defaults()
	cmd := &cobra.Command{
		Use: "serve", Short: "run a node: Redis protocol, admin HTTP; everything embedded unless told otherwise", Args: cobra.NoArgs,
		Long: "serve runs one or more nodes of a linearizable cache over a store.\n\nEvery setting is a flag, an environment variable (FRESHET_LISTEN for --listen),\nor a line of a YAML file; a flag goes before the environment, which goes before\nthe file. SIGTERM and SIGINT drain: commands under way are finished.",
	}
	file := flags(cmd.Flags(), &c)
	grouped(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		warn(cmd.Flags())
		if err := load(cmd.Flags(), &c, *file); err != nil {
			return err
		}
		c.LogOutput = os.Stderr
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		p, err := node.Start(c)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case err := <-p.Failed():
			stop, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			return errors.Join(err, p.Stop(stop))
		}
		stop() // a second signal ends at once
		end, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		return p.Stop(end)
	}
	return cmd
}

func config() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "look at the configuration"}
	c := node.Defaults()
	show := &cobra.Command{Use: "print", Short: "print the configuration that serve would use, as YAML; passwords are masked", Args: cobra.NoArgs}
	file := flags(show.Flags(), &c)
	grouped(show)
	show.RunE = func(cmd *cobra.Command, _ []string) error {
		warn(show.Flags())
		if err := load(show.Flags(), &c, *file); err != nil {
			return err
		}
		if err := c.Check(); err != nil {
			return err
		}
		b, err := yaml.Marshal(readable(c.Redacted()))
		fmt.Fprint(cmd.OutOrStdout(), string(b))
		return err
	}
	cmd.AddCommand(show)
	return cmd
}

// readable is the configuration with durations as people write them.
func readable(c node.Config) map[string]any {
	out := map[string]any{}
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("yaml")
		if name == "-" {
			continue
		}
		out[name] = v.Field(i).Interface()
		if d, ok := out[name].(time.Duration); ok {
			out[name] = d.String()
		}
	}
	return out
}

func status() *cobra.Command {
	admin := node.Defaults().Admin
	asJSON := false
	cmd := &cobra.Command{Use: "status", Short: "what the cluster looks like now: nodes, slices, who owns what", Args: cobra.NoArgs,
		Long: "status asks a node at its admin address. If the node has a password, it is taken from\nFRESHET_PASSWORD."}
	cmd.Flags().StringVar(&admin, "admin", admin, "admin address of any node")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client := http.Client{Timeout: 5 * time.Second}
		req, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, "http://"+admin+"/api/state", nil)
		if err != nil {
			return fmt.Errorf("--admin: %w", err)
		}
		req.SetBasicAuth("freshet", os.Getenv("FRESHET_PASSWORD"))
		r, err := client.Do(req)
		if err != nil {
			return fmt.Errorf("no freshet answers at %s: %w; is it running, and is --admin right?", admin, err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
		switch given := os.Getenv("FRESHET_PASSWORD") != ""; {
		case r.StatusCode == http.StatusUnauthorized && given:
			return fmt.Errorf("%s refuses the password of FRESHET_PASSWORD; it is not that of the node", admin)
		case r.StatusCode == http.StatusUnauthorized:
			return fmt.Errorf("%s asks for a password; give that of the node as FRESHET_PASSWORD", admin)
		case r.StatusCode != http.StatusOK:
			return fmt.Errorf("%s answered %s: %.200s", admin, r.Status, bytes.TrimSpace(b))
		case err != nil:
			return fmt.Errorf("%s did not answer to the end: %w", admin, err)
		}
		if asJSON {
			_, err := cmd.OutOrStdout().Write(append(b, '\n'))
			return err
		}
		var st node.State
		if err := json.Unmarshal(b, &st); err != nil {
			return fmt.Errorf("%s answered what is not a state: %w", admin, err)
		}
		return show(cmd.OutOrStdout(), st)
	}
	return cmd
}

func show(w io.Writer, st node.State) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, st.Health)
	fmt.Fprintf(t, "freshet %s, up %s, generation %d\n\n", st.Version, st.Uptime, st.Gen)
	fmt.Fprintln(t, "NODE\tREDIS\tADMIN\tREADY\tDRAINING\tSLICES\tCONNS\tENTRIES\tHITS\tMISSES")
	lost := map[string]node.NodeState{}
	for _, n := range st.Nodes {
		ready := fmt.Sprint(n.Ready)
		if n.Lost {
			ready = "LOST"
			lost[n.ID] = n
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%v\t%v\t%d\t%d\t%d\t%d\t%d\n", n.ID, n.Addr, n.Admin, ready, n.Draining, n.Slices, n.Conns, n.Entries, n.Hits, n.Misses)
	}
	fmt.Fprintln(t, "\nSLICE\tGENERATION\tOWNER\tREPLICAS")
	for _, s := range st.Slices {
		owner := s.Node
		if n, ok := lost[s.Node]; ok {
			owner += " (lost)"
			if !n.Writable.IsZero() {
				owner = fmt.Sprintf("%s (lost; no writes until %s)", s.Node, n.Writable.Local().Format(time.TimeOnly))
			}
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", s.Range, s.Gen, owner, strings.Join(s.Replicas, " "))
	}
	for _, n := range st.Nodes {
		if n.Problem != "" {
			fmt.Fprintf(t, "\nPROBLEM at %s: %s\n", n.ID, n.Problem)
		}
	}
	return t.Flush()
}
