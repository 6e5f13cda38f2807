package postgres

import (
	"strings"
	"sync"
	"sync/atomic"
)

// openTables finds tables that the values of a View are built from and that no trigger
// guards: a change of theirs that does not name its key goes unnoticed. It looks at the
// first loads, and at some of the later ones.
type openTables struct {
	loads atomic.Uint64
	mu    sync.Mutex
	told  map[string]bool
}

const (
	firstLoads  = 32
	laterLoads  = 1024 // one of so many
	maxUnguards = 256  // tables that are named
)

// due reports whether a load is to be looked at.
func (u *openTables) due() bool {
	n := u.loads.Add(1)
	return n <= firstLoads || n%laterLoads == 0
}

// Scans of tables in this session that are not yet in the server's statistics. There may
// be some of former transactions, so that two looks must be compared.
const scansBefore = `SELECT coalesce(jsonb_object_agg(relid::text, coalesce(seq_scan, 0) + coalesce(idx_scan, 0)), '{}')::text FROM pg_stat_xact_user_tables`

const scansSince = `SELECT coalesce(string_agg(s.relid::regclass::text, E'\n' ORDER BY 1), '') FROM pg_stat_xact_user_tables s
	WHERE coalesce(seq_scan, 0) + coalesce(idx_scan, 0) > coalesce(($1::text::jsonb ->> relid::text)::bigint, 0)
	AND NOT EXISTS (SELECT FROM pg_trigger g JOIN pg_proc f ON f.oid = g.tgfoid JOIN pg_namespace n ON n.oid = f.pronamespace
		WHERE g.tgrelid = s.relid AND g.tgenabled <> 'D' AND f.proname = 'guarded' AND n.nspname = $2::text)`

// anyGuarded says whether the schema guards any table.
const anyGuarded = `SELECT EXISTS (SELECT FROM pg_trigger g JOIN pg_proc f ON f.oid = g.tgfoid JOIN pg_namespace n ON n.oid = f.pronamespace
	WHERE f.proname = 'guarded' AND n.nspname = $1::text AND NOT g.tgisinternal)`

// watched runs read in a transaction, and says which tables it has read that are not
// guarded. That it cannot be found out fails nothing.
func (s *Store) watched(ask query, read func() error) error {
	before := ""
	looks := s.unguarded.due() && ask(scansBefore).Scan(&before) == nil
	err := read()
	if err != nil || !looks {
		return err
	}
	tables := ""
	if ask(scansSince, before, s.schemaName()).Scan(&tables) != nil || tables == "" {
		return nil
	}
	u := &s.unguarded
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.told == nil {
		u.told = map[string]bool{}
	}
	for _, t := range strings.Split(tables, "\n") {
		if u.told[t] || len(u.told) >= maxUnguards {
			continue
		}
		u.told[t] = true
		s.opt.Logger.Warn("a view reads the table "+t+", which is not guarded: a change that does not name its key is not noticed, and the view goes on showing what was before",
			"table", t, "guard_it_with", "SELECT "+s.schema+".guard_table('"+t+"', 'KEY:{COLUMN}')")
	}
	return nil
}

// tellGuards says at the start that nothing is guarded.
func (s *Store) tellGuards(theirs query) {
	any := true
	if err := theirs(anyGuarded, s.schemaName()).Scan(&any); err == nil && !any {
		s.opt.Logger.Warn("no table is guarded: an update that forgets a key makes a view wrong, and nobody notices; guard the tables it reads",
			"guard_it_with", "SELECT "+s.schema+".guard_table('TABLE', 'KEY:{COLUMN}')")
	}
}

// schemaName is the schema as catalogues have it, without quotes.
func (s *Store) schemaName() string {
	return strings.ReplaceAll(strings.Trim(s.schema, `"`), `""`, `"`)
}
