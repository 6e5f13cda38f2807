package node

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Config is everything that freshet serve can be told. The zero value of a field
// means its default; see Defaults.
type Config struct {
	Listen      string        `yaml:"listen"`
	Admin       string        `yaml:"admin"`
	Data        string        `yaml:"data"`
	Store       string        `yaml:"store"`
	Coordinator string        `yaml:"coordinator"`
	NodeID      string        `yaml:"node-id"`
	Advertise   string        `yaml:"advertise"`
	Nodes       int           `yaml:"nodes"`
	Lease       time.Duration `yaml:"lease"`
	Timeout     time.Duration `yaml:"timeout"`
	MaxKey      int           `yaml:"max-key"`
	MaxValue    int           `yaml:"max-value"`
	Memory      int64         `yaml:"memory"`
	MaxConns    int           `yaml:"max-conns"`
	Password    string        `yaml:"password"`
	TLSCert     string        `yaml:"tls-cert"`
	TLSKey      string        `yaml:"tls-key"`
	TLSCA       string        `yaml:"tls-ca"`
	NoSync      bool          `yaml:"no-sync"`
	BootClock   bool          `yaml:"boot-clock"`
	Insecure    bool          `yaml:"insecure"`

	Logger *slog.Logger `yaml:"-"`
}

// Defaults are what freshet serve does when it is told nothing.
func Defaults() Config {
	return Config{
		Listen: "127.0.0.1:6380", Admin: "127.0.0.1:7380", Data: "./freshet-data", Store: "pebble:", Coordinator: "embedded",
		NodeID: "n1", Nodes: 1, Lease: 10 * time.Second, Timeout: 5 * time.Second,
		MaxKey: 4 << 10, MaxValue: 16 << 20, Memory: 256 << 20, MaxConns: 10_000,
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
	add(c.Store != "pebble:" && c.Store != "memory:" && !c.shared(), "--store %q is not known; use pebble:, memory: or postgres://...", redacted(c.Store))
	home, joins := strings.CutPrefix(c.Coordinator, joinScheme)
	_, _, err := net.SplitHostPort(home)
	add(joins && err != nil, "--coordinator %s: %q is not HOST:PORT", c.Coordinator, home)
	add(c.Coordinator != "embedded" && !joins, "--coordinator %q is not known; use embedded or freshet://HOST:PORT", c.Coordinator)
	add(joins && !c.shared(), "--coordinator %s makes this process one of several, which need a store that they share: --store postgres://...", c.Coordinator)
	add(c.NodeID == "" || strings.ContainsAny(c.NodeID, "/ \r\n"), "--node-id %q is empty or has a slash or space in it", c.NodeID)
	add(c.Nodes < 1 || c.Nodes > 64, "--nodes %d is not between 1 and 64", c.Nodes)
	add(c.Lease < 100*time.Millisecond || c.Lease > time.Hour, "--lease %v is not between 100ms and 1h", c.Lease)
	add(c.Timeout < 10*time.Millisecond, "--timeout %v is shorter than 10ms", c.Timeout)
	add(c.MaxKey < 1 || c.MaxKey > 1<<20, "--max-key %d is not between 1 and 1 MiB", c.MaxKey)
	add(c.MaxValue < 1 || c.MaxValue > 256<<20, "--max-value %d is not between 1 and 256 MiB", c.MaxValue)
	add(c.MaxConns < 1, "--max-conns %d is not positive", c.MaxConns)
	add((c.TLSCert == "") != (c.TLSKey == ""), "--tls-cert and --tls-key go together")
	add(c.Store != "memory:" && c.Data == "" && !joins, "--data is empty; name a directory, or use --store memory:")
	return errors.Join(errs...)
}

const joinScheme = "freshet://"

// shared reports whether several processes can use the store.
func (c *Config) shared() bool {
	return strings.HasPrefix(c.Store, "postgres://") || strings.HasPrefix(c.Store, "postgresql://")
}

// redacted is a URL without its password.
func redacted(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "(a URL that cannot be read)"
	}
	return u.Redacted()
}

// Redacted is the configuration without secrets, to be shown.
func (c Config) Redacted() Config {
	if c.Password != "" {
		c.Password = "(set)"
	}
	c.Store = redacted(c.Store)
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
