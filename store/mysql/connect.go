package mysql

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	mariadb "github.com/go-sql-driver/mysql"
)

// parse returns the configuration of a URL, and how many connections it allows. No error shows the
// URL, because it may have a password.
func parse(from string, timeout time.Duration, log *slog.Logger) (*mariadb.Config, int, error) {
	u, err := url.Parse(from)
	if err != nil || u.Scheme != "mysql" || u.Host == "" || strings.Trim(u.Path, "/") == "" {
		return nil, 0, errors.New("mysql: the URL cannot be read: write mysql://USER:PASSWORD@HOST:PORT/DATABASE, and %XX for what is special in the password")
	}
	cfg := mariadb.NewConfig()
	cfg.Net, cfg.Addr, cfg.DBName = "tcp", u.Host, strings.Trim(u.Path, "/")
	if u.Port() == "" {
		cfg.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.InterpolateParams = true // one round trip for each statement
	cfg.ClientFoundRows = true   // count the rows found, changed or not
	cfg.MaxAllowedPacket = 0     // use the server's limit
	cfg.Timeout, cfg.WriteTimeout = timeout, 3*timeout
	cfg.ReadTimeout = 8 * timeout // longer than anything that the server bounds: after it the server has vanished
	cfg.Logger = logger{log}
	conns := 32
	for name, values := range u.Query() {
		v := values[len(values)-1]
		switch name {
		case "tls":
			if !slices.Contains([]string{"true", "false", "skip-verify"}, v) {
				return nil, 0, fmt.Errorf("mysql: tls=%s in the URL is not true, false or skip-verify", v)
			}
			cfg.TLSConfig = v
		case "tls-ca":
			if cfg.TLS, err = trusting(v, u.Hostname()); err != nil {
				return nil, 0, err
			}
		case "pool_max_conns":
			if conns, err = strconv.Atoi(v); err != nil || conns < 1 {
				return nil, 0, fmt.Errorf("mysql: pool_max_conns=%s in the URL is not a positive number", v)
			}
		default:
			return nil, 0, fmt.Errorf("mysql: %s= in the URL is not known; there are tls, tls-ca and pool_max_conns", name)
		}
	}
	return cfg, conns, nil
}

// trusting returns a TLS configuration that trusts the issuers in file.
func trusting(file, host string) (*tls.Config, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("mysql: tls-ca in the URL: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("mysql: tls-ca in the URL: %s holds no certificate", file)
	}
	return &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12}, nil
}

// logger receives what the driver logs beside its errors.
type logger struct{ to *slog.Logger }

// Print implements the driver's Logger.
func (l logger) Print(v ...any) { l.to.Debug(fmt.Sprint(v...)) }

// seconds returns a limit in seconds, the server's unit, rounded up.
func seconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }

// pool returns a pool whose statements wait for a lock up to wait. A client that vanishes inside a
// transaction keeps its locks for twice the timeout, which is the server's limit for idle
// connections. The pool closes idle connections before that.
func pool(cfg *mariadb.Config, conns int, timeout, wait time.Duration) (*sql.DB, error) {
	inner, err := mariadb.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("mysql: %w", err)
	}
	db := sql.OpenDB(connector{inner, []string{
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", // the fence needs it
		"SET NAMES binary", // keys and values are bytes, which no conversion may change
		// A server of the family reads as a comment what only the other one knows. Without
		// NO_AUTO_CREATE_USER a GRANT of MariaDB would create a missing user, without a password.
		fmt.Sprintf("SET SESSION autocommit = 1, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', "+
			"innodb_lock_wait_timeout = %d, wait_timeout = %d /*M!100600 , sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_CREATE_USER', max_statement_time = %.3f */ /*!80000 , max_execution_time = %d */",
			seconds(wait), seconds(2*timeout), wait.Seconds(), wait.Milliseconds()),
	}})
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxIdleTime(timeout)
	return db, nil
}

// connector sets up connections for freshet, and accepts only a server that takes writes.
type connector struct {
	driver.Connector
	setup []string
}

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	for _, q := range c.setup {
		if _, err := conn.(driver.ExecerContext).ExecContext(ctx, q, nil); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	// A demoted primary would serve stale reads.
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, "SELECT IF(@@global.read_only IN ('0', 'OFF'), 'no', 'yes')", nil)
	if err == nil {
		dest := make([]driver.Value, 1)
		if err = rows.Next(dest); err == nil && text(dest[0]) != "no" {
			err = ErrReadOnly
		}
		err = errors.Join(err, rows.Close())
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func text(v driver.Value) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(v)
}

// variables are the server's settings, and its version.
type variables map[string]string

func (v variables) on(name string) bool { return v[name] == "ON" || v[name] == "1" }

func (v variables) number(name string) int {
	n, _ := strconv.Atoi(v[name])
	return n
}

// settings reads the settings that judge checks.
func settings(ctx context.Context, db *sql.DB) (variables, error) {
	rows, err := db.QueryContext(ctx, `SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog',
		'binlog_format', 'max_allowed_packet', 'wsrep_on', 'group_replication_group_name', 'group_replication_single_primary_mode')`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	set := variables{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		set[strings.ToLower(name)] = value
	}
	return set, rows.Err()
}

var versionNumber = regexp.MustCompile(`^(\d+)\.(\d+)`)

// judge returns why freshet cannot use a server, and logs what an operator should change.
func judge(set variables, log *slog.Logger) error {
	least := 8_00
	if strings.Contains(set["version"], "MariaDB") {
		least = 10_06
	}
	m := versionNumber.FindStringSubmatch(set["version"])
	if m == nil {
		return fmt.Errorf("%w: it calls itself %q", ErrServerTooOld, set["version"])
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	switch {
	case strings.Contains(set["version"], "TiDB"):
		return fmt.Errorf("%w: in TiDB a lock in share mode locks nothing", ErrUnsafe)
	case major*100+minor < least:
		return fmt.Errorf("%w: it is %s", ErrServerTooOld, set["version"])
	case set["innodb_flush_log_at_trx_commit"] != "1":
		return fmt.Errorf("%w: with innodb_flush_log_at_trx_commit = %s acknowledged writes could be lost; SET GLOBAL innodb_flush_log_at_trx_commit = 1", ErrUnsafe, set["innodb_flush_log_at_trx_commit"])
	case set.on("wsrep_on"):
		return fmt.Errorf("%w: the servers of a Galera cluster do not know each other's locks in share mode", ErrUnsafe)
	case set["group_replication_group_name"] != "" && !set.on("group_replication_single_primary_mode"):
		return fmt.Errorf("%w: several primaries do not know each other's locks in share mode; SET group_replication_single_primary_mode = ON", ErrUnsafe)
	case set.on("log_bin") && set["binlog_format"] == "STATEMENT":
		return fmt.Errorf("%w: READ COMMITTED needs binlog_format = ROW or MIXED", ErrUnsafe)
	case set.on("log_bin") && set["sync_binlog"] != "1":
		log.Warn("sync_binlog is not 1: a crash of the machine may leave replicas ahead of the server, or behind; SET GLOBAL sync_binlog = 1", "sync_binlog", set["sync_binlog"])
	case !set.on("log_bin"):
		log.Info("without a binary log InnoDB shows a commit a moment before it is on disk: what was read through just before a crash may be gone after it; log_bin with sync_binlog = 1 rules that out")
	}
	return nil
}
