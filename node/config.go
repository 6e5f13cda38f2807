package node

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

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

// causalMemory bounds what the keys of a space take in memory.
func (c *Config) causalMemory() int {
	if c.CausalMemory > 0 {
		return int(c.CausalMemory)
	}
	return int(c.Memory)
}

// kind is the store that --store names, by the scheme of its URL; empty if it is not
// known.
func (c *Config) kind() string {
	scheme, _, remote := strings.Cut(c.Store, "://")
	switch {
	case c.Store == "pebble:" || c.Store == "memory:":
		return strings.TrimSuffix(c.Store, ":")
	case remote && (scheme == "postgres" || scheme == "postgresql"):
		return "postgres"
	case remote && (scheme == "etcd" || scheme == "etcds"):
		return "etcd"
	case remote && scheme == "mysql":
		return scheme
	}
	return ""
}

// shared reports whether several processes can use the store.
func (c *Config) shared() bool {
	k := c.kind()
	return k == "postgres" || k == "mysql" || k == "etcd"
}
