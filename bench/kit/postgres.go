package kit

import (
	"context"
	"fmt"
	"strings"

	"github.com/freshet-cache/freshet/internal/pgserver"
)

// Postgres is a PostgreSQL server for experiments: the one of --postgres, or one that kit starts.
type Postgres struct {
	url string
	own *pgserver.Server // nil if kit did not start it
}

// StartPostgres starts a server with its data in a directory, unless --postgres names one.
func StartPostgres(ctx context.Context, opt Options, dir string) (*Postgres, error) {
	if url := opt.Text("postgres"); url != "" {
		return &Postgres{url: url}, nil
	}
	opt.Progress("starting PostgreSQL")
	own, err := pgserver.Start(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("%w; or say --postgres URL", err)
	}
	return &Postgres{own.URL("admin", "postgres"), own}, nil
}

// URL is the address of the database.
func (p *Postgres) URL() string { return p.url }

// In returns the address with parameters, such as schema=NAME.
func (p *Postgres) In(parameters string) string {
	if strings.Contains(p.url, "?") {
		return p.url + "&" + parameters
	}
	return p.url + "?" + parameters
}

// Stop ends the server if kit started it.
func (p *Postgres) Stop() {
	if p != nil && p.own != nil {
		p.own.Stop()
	}
}
