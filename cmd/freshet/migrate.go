package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-cache/freshet/node"
	"github.com/freshet-cache/freshet/store/etcd"
	"github.com/freshet-cache/freshet/store/mysql"
	"github.com/freshet-cache/freshet/store/pebble"
	"github.com/freshet-cache/freshet/store/postgres"
)

// migrateTimeout bounds a migration: it waits for locks on tables in use.
const migrateTimeout = time.Minute

// migration is what the command line asks for.
type migration struct {
	url, tlsCA, data string
	postgres.Migration
}

func migrate() *cobra.Command {
	var m migration
	cmd := &cobra.Command{Use: "migrate", Short: "make or upgrade what serve needs in PostgreSQL, MariaDB, MySQL or etcd", Args: cobra.NoArgs,
		Long: `migrate makes, or upgrades, the tables that serve needs in --store, as a role that may
create them; in PostgreSQL in one transaction. It changes nothing where nothing is to be done.
etcd needs no preparation: serve begins by itself, and migrate is for --adopt.

With --restored, after a store was restored from a backup or to an earlier time and before the
first process starts, nothing that was given in the history that is gone is given again:
versions of rows, and numbers of the servers of causal spaces.
  freshet migrate --store postgres://owner@db/app --restored
  freshet migrate --store pebble: --data ./freshet-data --restored

With --grant, another role gets what serve needs, and no more:
  freshet migrate --store postgres://owner@db/app --grant freshet
  freshet serve --store postgres://freshet@db/app`}
	cmd.Flags().StringVar(&m.url, "store", os.Getenv("FRESHET_STORE"), "postgres://USER@HOST/DB?schema=NAME, mysql://USER@HOST:PORT/DB or etcd://HOST:PORT,.../PREFIX; pebble: with --restored (default $FRESHET_STORE)")
	cmd.Flags().StringVar(&m.Grant, "grant", "", "role that serve will use; in MariaDB and MySQL NAME or NAME@HOST")
	cmd.Flags().StringSliceVar(&m.Partitions, "partition", nil, "bounds between partitions of the rows in PostgreSQL, when the schema is made; slices are cut there")
	cmd.Flags().BoolVar(&m.Adopt, "adopt", false, "let another cluster use the data from now on; stop the one that does first")
	cmd.Flags().BoolVar(&m.Restored, "restored", false, "the store was restored to an earlier state: number what comes from here on above all that was given since; stop every process first")
	cmd.Flags().StringVar(&m.data, "data", node.Defaults().Data, "directory of the embedded store, for --store pebble: --restored")
	cmd.Flags().StringVar(&m.tlsCA, "tls-ca", "", "certificates that are trusted of etcd (etcds:)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), migrateTimeout)
		defer cancel()
		if err := m.run(ctx); err != nil {
			return err
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "the schema is as it should be")
		return err
	}
	return cmd
}

func (m *migration) run(ctx context.Context) error {
	if m.url == "pebble:" {
		if !m.Restored || m.Adopt || m.Grant != "" || len(m.Partitions) > 0 {
			return errors.New("--store pebble: has nothing to migrate; it is for --restored, which says that --data was restored from a backup")
		}
		return pebble.Restored(ctx, filepath.Join(m.data, "store"))
	}
	scheme, _, _ := strings.Cut(m.url, "://")
	if len(m.Partitions) > 0 && scheme != "postgres" && scheme != "postgresql" {
		return errors.New("--partition is for PostgreSQL; other stores need no partitions")
	}
	switch scheme {
	case "postgres", "postgresql":
		return postgres.Migrate(ctx, m.url, m.Migration)
	case "mysql":
		return mysql.Migrate(ctx, m.url, mysql.Migration{Grant: m.Grant, Adopt: m.Adopt, Restored: m.Restored})
	case "etcd", "etcds":
		if m.Grant != "" {
			return errors.New("--grant is not for etcd: give the user a role that may read and write what begins with PREFIX/store/ (etcdctl role grant-permission ROLE readwrite PREFIX/store/ --prefix)")
		}
		if m.Restored {
			return errors.New("--restored is not for etcd, whose own revisions are the versions: restore it with etcdutl snapshot restore --bump-revision 1000000000 --mark-compacted")
		}
		opt := etcd.Options{URL: m.url}
		if m.tlsCA != "" {
			pem, err := os.ReadFile(m.tlsCA)
			if err != nil {
				return fmt.Errorf("--tls-ca: %w", err)
			}
			opt.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
			if !opt.TLS.RootCAs.AppendCertsFromPEM(pem) {
				return fmt.Errorf("--tls-ca: %s holds no certificate", m.tlsCA)
			}
		}
		return etcd.Migrate(ctx, opt, m.Adopt)
	case "":
		return errors.New("--store is empty; say postgres://USER@HOST/DB, mysql://USER@HOST:PORT/DB or etcd://HOST:PORT,.../PREFIX")
	}
	return fmt.Errorf("--store %s://...: there is nothing to migrate; say postgres://, mysql:// or etcd://", scheme)
}
