package node

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-cache/freshet/internal/eventlog"
	"github.com/freshet-cache/freshet/leader/etcd"
)

// Config is everything that freshet serve can be told. The zero value of a field
// means its default; see Defaults.
type Config struct {
	Listen       string        `yaml:"listen"`
	Admin        string        `yaml:"admin"`
	Data         string        `yaml:"data"`
	Store        string        `yaml:"store"`
	Coordinator  string        `yaml:"coordinator"`
	NodeID       string        `yaml:"node-id"`
	Advertise    string        `yaml:"advertise"`
	Nodes        int           `yaml:"nodes"`
	Lease        time.Duration `yaml:"lease"`
	Timeout      time.Duration `yaml:"timeout"`
	MaxKey       int           `yaml:"max-key"`
	MaxValue     int           `yaml:"max-value"`
	Memory       int64         `yaml:"memory"`
	MaxConns     int           `yaml:"max-conns"`
	TrackingKeys int           `yaml:"tracking-keys"`
	ReplicateAt  int           `yaml:"replicate-above"`
	MaxReplicas  int           `yaml:"max-replicas"`
	Spaces       Spaces        `yaml:"spaces"`
	CausalKeys   int           `yaml:"causal-keys"`
	CausalMemory int64         `yaml:"causal-memory"`
	TokenKey     string        `yaml:"token-key"`
	Password     string        `yaml:"password"`
	TLSCert      string        `yaml:"tls-cert"`
	TLSKey       string        `yaml:"tls-key"`
	TLSCA        string        `yaml:"tls-ca"`
	VersionsOnly bool          `yaml:"versions-only"`
	NoSync       bool          `yaml:"no-sync"`
	BootClock    bool          `yaml:"boot-clock"`
	Insecure     bool          `yaml:"insecure"`
	AllowFlush   bool          `yaml:"allow-flush"`
	DenyCommands string        `yaml:"deny-commands"`
	LogLevel     string        `yaml:"log-level"`
	LogFormat    string        `yaml:"log-format"`
	LogKeys      bool          `yaml:"log-keys"`

	MetricsClassic bool `yaml:"metrics-classic"`

	// LogOutput takes the log, in LogFormat; default: nothing is logged.
	LogOutput io.Writer `yaml:"-"`
	// Logger takes the log instead, in a format of its own. LogLevel counts here too.
	Logger *slog.Logger `yaml:"-"`
}

// Defaults are what freshet serve does when it is told nothing.
func Defaults() Config {
	return Config{
		Listen: "127.0.0.1:6380", Admin: "127.0.0.1:7380", Data: "./freshet-data", Store: "pebble:", Coordinator: "embedded",
		NodeID: "n1", Nodes: 1, Lease: 10 * time.Second, Timeout: 5 * time.Second,
		MaxKey: 4 << 10, MaxValue: 16 << 20, Memory: 256 << 20, MaxConns: 10_000,
		TrackingKeys: 1_000_000, ReplicateAt: 100_000, MaxReplicas: 4, CausalKeys: 1_000_000, LogLevel: "info", LogFormat: "text",
	}
}

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

const joinScheme = "freshet://"

// etcd reads --coordinator etcd://USER:PASSWORD@HOST:PORT,HOST:PORT/PREFIX, or etcds:
// for TLS; ok says that it is one.
func (c *Config) etcd() (opt etcd.Options, ok bool, err error) {
	scheme, rest, ok := strings.Cut(c.Coordinator, "://")
	if !ok || scheme != "etcd" && scheme != "etcds" {
		return opt, false, nil
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		opt.User, opt.Password, _ = strings.Cut(rest[:at], ":")
		rest = rest[at+1:]
	}
	hosts, prefix, _ := strings.Cut(rest, "/")
	if prefix != "" {
		opt.Prefix = strings.TrimSuffix(prefix, "/") + "/"
	}
	for _, h := range strings.Split(hosts, ",") {
		if _, _, err := net.SplitHostPort(h); err != nil {
			return opt, true, fmt.Errorf("%q is not HOST:PORT", h)
		}
		opt.Endpoints = append(opt.Endpoints, h)
	}
	if scheme == "etcds" {
		opt.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		if c.TLSCA != "" {
			opt.TLS.RootCAs, err = trusted(c.TLSCA)
		}
	}
	return opt, true, err
}

// trusted are the certificates in a file.
func trusted(name string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-ca: %s holds no certificate", name)
	}
	return pool, nil
}

var (
	inUser  = regexp.MustCompile(`://([^:@]*):.*@`)
	inQuery = regexp.MustCompile(`(?i)([?&][^=&]*password=)[^&]*`)
)

// redacted is a URL without passwords, however it is written.
func redacted(s string) string {
	return inQuery.ReplaceAllString(inUser.ReplaceAllString(s, "://$1:xxxxx@"), "${1}xxxxx")
}

// Redacted is the configuration without secrets, to be shown.
func (c Config) Redacted() Config {
	if c.Password != "" {
		c.Password = "(set)"
	}
	if c.TokenKey != "" {
		c.TokenKey = "(set)"
	}
	c.Store, c.Coordinator = redacted(c.Store), redacted(c.Coordinator)
	return c
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// tls reads the certificate; nil if there is none.
func (c *Config) tls() (*tls.Config, error) {
	if c.TLSCert == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
}

// at is addr with its port moved by i; port 0 stays.
func at(addr string, i int) string {
	host, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(port)
	if n != 0 {
		n += i
	}
	return net.JoinHostPort(host, strconv.Itoa(n))
}
