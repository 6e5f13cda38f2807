package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/freshet-cache/freshet/node"
)

// groups are the flags of serve by subject, the common ones first. A test compares them
// with the flags that there are.
var groups = []struct {
	name  string
	flags []string
}{
	{"Network", []string{"listen", "admin", "advertise", "max-conns", "timeout"}},
	{"Storage", []string{"store", "data", "no-sync"}},
	{"Cluster", []string{"node-id", "coordinator", "lease", "nodes", "replicate-above", "max-replicas", "boot-clock"}},
	{"Memory and limits", []string{"memory", "max-key", "max-value", "tracking-keys", "versions-only"}},
	{"Security", []string{"password", "insecure", "deny-commands", "allow-flush", "tls-cert", "tls-key", "tls-ca", "token-key"}},
	{"Spaces", []string{"space", "causal-keys", "causal-memory"}},
	{"Log and metrics", []string{"log-level", "log-format", "log-keys", "metrics-classic"}},
	{"Configuration", []string{"config", "help"}},
}

// grouped has a command's help show its flags by subject.
func grouped(cmd *cobra.Command) {
	cmd.SetUsageFunc(func(c *cobra.Command) error {
		w := c.OutOrStderr()
		fmt.Fprintf(w, "Usage:\n  %s\n", c.UseLine())
		left := pflag.NewFlagSet("", pflag.ContinueOnError)
		c.Flags().VisitAll(func(f *pflag.Flag) { left.AddFlag(f) })
		show := func(name string, flags []string) {
			some := pflag.NewFlagSet("", pflag.ContinueOnError)
			some.SortFlags = false
			for _, n := range flags {
				if f := left.Lookup(n); f != nil {
					some.AddFlag(f)
				}
			}
			if some.HasFlags() {
				fmt.Fprintf(w, "\n%s:\n%s", name, some.FlagUsagesWrapped(100))
			}
		}
		var shown []string
		for _, g := range groups {
			show(g.name, g.flags)
			shown = append(shown, g.flags...)
		}
		var rest []string // a test says that there is none; who forgets a flag must not hide it
		left.VisitAll(func(f *pflag.Flag) {
			if !slices.Contains(shown, f.Name) {
				rest = append(rest, f.Name)
			}
		})
		show("Other", rest)
		return nil
	})
}

// size is a flag for bytes: 65536, 64MiB, 1GB.
type size[T int | int64] struct{ p *T }

// String implements pflag.Value.
func (s size[T]) String() string {
	if s.p == nil {
		return "0"
	}
	return sizeText(int64(*s.p))
}

// Set implements pflag.Value.
func (s size[T]) Set(text string) error {
	n, err := parseSize(text)
	if err == nil {
		*s.p = T(n)
	}
	return err
}

// Type implements pflag.Value.
func (s size[T]) Type() string { return "size" }

var units = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1}}

// parseSize reads a size: a whole number or one with a fraction, and a unit. KB, MB and
// GB are powers of 1000, KiB, MiB and GiB of 1024.
func parseSize(text string) (int64, error) {
	bad := fmt.Errorf("%q is not a size: say 65536, 64MiB or 1GB (KB, MB, GB are powers of 1000; KiB, MiB, GiB of 1024)", text)
	s, unit := strings.TrimSpace(text), int64(1)
	for _, u := range units {
		if len(s) > len(u.name) && strings.EqualFold(s[len(s)-len(u.name):], u.name) {
			s, unit = strings.TrimSpace(s[:len(s)-len(u.name)]), u.bytes
			break
		}
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		if n > (1<<62)/unit || n < -(1<<62)/unit {
			return 0, bad
		}
		return n * unit, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || unit == 1 || !(f*float64(unit) < 1<<62 && f >= 0) {
		return 0, bad
	}
	return int64(f * float64(unit)), nil
}

// sizeText is a size as parseSize reads it.
func sizeText(n int64) string {
	for _, u := range units[:6] {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// sizeSettings are those that take a size.
var sizeSettings = []string{"memory", "causal-memory", "max-key", "max-value"}

// sizes turns the sizes of a configuration file into numbers, and reports whether there
// were any.
func sizes(doc *yaml.Node) (changed bool, err error) {
	if doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return false, nil
	}
	m := doc.Content[0].Content
	for i := 0; i+1 < len(m); i += 2 {
		if v := m[i+1]; slices.Contains(sizeSettings, m[i].Value) && v.Kind == yaml.ScalarNode && v.Tag == "!!str" {
			n, err := parseSize(v.Value)
			if err != nil {
				return false, fmt.Errorf("line %d: %s: %w", v.Line, m[i].Value, err)
			}
			changed, v.Value, v.Tag, v.Style = true, strconv.FormatInt(n, 10), "!!int", 0
		}
	}
	return changed, nil
}

// unknownEnv are the variables FRESHET_... that are no setting, each with what may be
// meant. Those of freshet's own tests are not looked at.
func unknownEnv(f *pflag.FlagSet, environ []string) (out []string) {
	known := []string{"FRESHET_CONFIG"}
	f.VisitAll(func(fl *pflag.Flag) { known = append(known, envName(fl.Name)) })
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "FRESHET_") || strings.HasPrefix(name, "FRESHET_TEST_") || slices.Contains(known, name) {
			continue
		}
		text := name + " is no setting, and is not looked at"
		best, least := "", 4
		for _, k := range known {
			if d := distance(name, k); d < least {
				best, least = k, d
			}
		}
		if best != "" {
			text += "; is " + best + " meant?"
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

func envName(flag string) string {
	return "FRESHET_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// distance is how many letters must be added, removed or changed.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		corner := row[0]
		row[0] = i + 1
		for j := range b {
			cost := corner
			if a[i] != b[j] {
				cost = 1 + min(corner, row[j], row[j+1])
			}
			corner, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

// warn says on the standard error what is odd about the environment.
func warn(f *pflag.FlagSet) {
	for _, text := range unknownEnv(f, os.Environ()) {
		fmt.Fprintln(os.Stderr, "freshet: warning:", text)
	}
}

// version prints what this program is.
func version() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "what this program is: version, commit, Go", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		_, err := fmt.Fprint(cmd.OutOrStdout(), node.About())
		return err
	}}
}
