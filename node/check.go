package node

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-cache/freshet/internal/eventlog"
	"github.com/freshet-cache/freshet/node/promise"
)

// Check says everything that is wrong with the configuration.
func (c *Config) Check() error {
	var errs []error
	add := func(bad bool, format string, a ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, a...))
		}
	}
	for flag, addr := range map[string]string{"listen": c.Listen, "admin": c.Admin} {
		host, port, err := net.SplitHostPort(addr)
		n, err2 := strconv.Atoi(port)
		add(err != nil || err2 != nil || n < 0 || n > 65535, "--%s %q is not HOST:PORT", flag, addr)
		add(err == nil && !loopback(host) && c.Password == "" && !c.Insecure,
			"--%s %s can be reached from other machines: set a password, or say --insecure", flag, addr)
	}
	add(c.kind() == "", "--store %q is not known; use pebble:, memory:, postgres://..., mysql://... or etcd://...", redacted(c.Store))
	leaderAddr, joins := strings.CutPrefix(c.Coordinator, joinScheme)
	_, _, err := net.SplitHostPort(leaderAddr)
	add(joins && err != nil, "--coordinator %s: what follows %s is not HOST:PORT", redacted(c.Coordinator), joinScheme)
	reached := cmp.Or(c.Advertise, c.Listen)
	host, port, err := net.SplitHostPort(reached)
	add(c.Advertise != "" && (err != nil || port == "" || port == "0"), "--advertise %q is not HOST:PORT", c.Advertise)
	ip := net.ParseIP(host)
	add(err == nil && c.Coordinator != "embedded" && (host == "" || ip != nil && ip.IsUnspecified()),
		"other processes cannot reach this one at %s: say --advertise HOST:PORT", reached)
	_, onEtcd, err := c.etcd()
	add(err != nil, "--coordinator %s: %v", redacted(c.Coordinator), err)
	add(c.Coordinator != "embedded" && !joins && !onEtcd, "--coordinator %q is not known; use embedded, freshet://HOST:PORT or etcd://HOST:PORT,...", redacted(c.Coordinator))
	add((joins || onEtcd) && !c.shared(), "--coordinator %s makes this process one of several, which need a store that they share: --store postgres://..., mysql://... or etcd://...", redacted(c.Coordinator))
	add(c.NodeID == "" || strings.ContainsAny(c.NodeID, "/ \r\n"), "--node-id %q is empty or has a slash or space in it", c.NodeID)
	add(c.Nodes < 1 || c.Nodes > 64, "--nodes %d is not between 1 and 64", c.Nodes)
	add(c.Lease < 100*time.Millisecond || c.Lease > time.Hour, "--lease %v is not between 100ms and 1h", c.Lease)
	add(c.Timeout < 10*time.Millisecond, "--timeout %v is shorter than 10ms", c.Timeout)
	add(c.MaxKey < 1 || c.MaxKey > 1<<20, "--max-key %d is not between 1 and 1 MiB", c.MaxKey)
	add(c.MaxValue < 1 || c.MaxValue > 256<<20, "--max-value %d is not between 1 and 256 MiB", c.MaxValue)
	add(c.MaxConns < 1, "--max-conns %d is not positive", c.MaxConns)
	add(c.TrackingKeys < 1, "--tracking-keys %d is not positive", c.TrackingKeys)
	add(c.CausalMemory < 0, "--causal-memory %d is negative", c.CausalMemory)
	add(c.CausalKeys < 1, "--causal-keys %d is not positive", c.CausalKeys)
	errs = append(errs, c.Spaces.check(c))
	add(c.LogLevel != "" && !slices.Contains(eventlog.Levels, c.LogLevel), "--log-level %q is not known; use %s", c.LogLevel, strings.Join(eventlog.Levels, ", "))
	add(c.LogFormat != "" && !slices.Contains(eventlog.Formats, c.LogFormat), "--log-format %q is not known; use %s", c.LogFormat, strings.Join(eventlog.Formats, " or "))
	add(c.ReplicateAt < 0, "--replicate-above %d is negative; 0 replicates no key by itself", c.ReplicateAt)
	add(c.MaxReplicas < 1 || c.MaxReplicas > 63, "--max-replicas %d is not between 1 and 63", c.MaxReplicas)
	add((c.TLSCert == "") != (c.TLSKey == ""), "--tls-cert and --tls-key go together")
	add(c.Store != "memory:" && c.Data == "" && !joins && !onEtcd, "--data is empty; name a directory, or use --store memory:")
	return errors.Join(errs...)
}

// check says everything that is wrong with the spaces.
func (s Spaces) check(c *Config) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	names, numbers, known := map[string]bool{}, map[int]string{}, map[string]bool{}
	for _, p := range promises {
		known[p.Name()] = true
	}
	for _, one := range s {
		switch {
		case one.Name == "" || len(one.Name) > 100 || strings.ContainsAny(one.Name, "/ ,;=\t\r\n\\"):
			fail("--space: a name has 1 to 100 bytes and no slash, backslash, comma, semicolon, equals sign or blank, unlike %.110q", one.Name)
		case names[one.Name]:
			fail("--space names %s twice", one.Name)
		}
		names[one.Name] = true
		switch {
		case !known[one.Promise]:
			fail("--space %s: no promise is called %.110q; there is %s", one.Name, one.Promise, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case one.DB < 0 || one.DB > 1023:
			fail("--space %s: db=%d is not a number from 1 to 1023", one.Name, one.DB)
		case one.DB > 0 && numbers[one.DB] != "":
			fail("--space %s: %s has db=%d already", one.Name, numbers[one.DB], one.DB)
		}
		numbers[one.DB] = one.Name
	}
	for _, p := range promises {
		errs = append(errs, p.Check(s.of(p.Name()), c.place()))
	}
	return errors.Join(errs...)
}

// place is what the configuration says of where spaces keep what they have.
func (c *Config) place() promise.Place { return promise.Place{Store: c.kind(), Data: c.Data} }
