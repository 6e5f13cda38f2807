package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-cache/freshet/store/postgres"
)

// migrateTimeout bounds a migration: it waits for locks on tables in use.
const migrateTimeout = time.Minute

func migrate() *cobra.Command {
	var url string
	var m postgres.Migration
	cmd := &cobra.Command{Use: "migrate", Short: "make or upgrade the schema that serve needs in PostgreSQL", Args: cobra.NoArgs,
		Long: `migrate makes, or upgrades, the schema of --store in one transaction, as a role that
may create schemas in the database. It changes nothing where nothing is to be done.

With --grant, another role gets what serve needs, and no more:
  freshet migrate --store postgres://owner@db/app --grant freshet
  freshet serve --store postgres://freshet@db/app`}
	cmd.Flags().StringVar(&url, "store", os.Getenv("FRESHET_STORE"), "postgres://USER@HOST/DB?schema=NAME (default $FRESHET_STORE)")
	cmd.Flags().StringVar(&m.Grant, "grant", "", "role that serve will use")
	cmd.Flags().StringSliceVar(&m.Partitions, "partition", nil, "bounds between partitions of the rows, when the schema is made; slices are cut there")
	cmd.Flags().BoolVar(&m.Adopt, "adopt", false, "let another cluster use the schema from now on; stop the one that does first")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), migrateTimeout)
		defer cancel()
		if url == "" {
			return fmt.Errorf("--store is empty; say postgres://USER@HOST/DB")
		}
		if err := postgres.Migrate(ctx, url, m); err != nil {
			return err
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "the schema is as it should be")
		return err
	}
	return cmd
}
