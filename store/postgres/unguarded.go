package postgres

import (
	"strings"
	"sync"
	"sync/atomic"
)

// openTables finds tables that a View reads and that have no guarding trigger: a change of such a
// table that does not name its key goes unnoticed. It checks the first loads, and some of the later
// ones.
type openTables struct {
	loads atomic.Uint64
	mu    sync.Mutex
	told  map[string]bool
}

const (
	firstLoads  = 32
	laterLoads  = 1024 // one in so many loads
	maxUnguards = 256  // at most so many tables are reported
)

// due reports whether to check this load.
func (u *openTables) due() bool {
	n := u.loads.Add(1)
	return n <= firstLoads || n%laterLoads == 0
}

// scansBefore reads the scans of tables in this session that are not yet in the server's
// statistics. Scans of former transactions may be among them, so two readings must be compared.
const scansBefore = `SELECT coalesce(jsonb_object_agg(relid::text, coalesce(seq_scan, 0) + coalesce(idx_scan, 0)), '{}')::text FROM pg_stat_xact_user_tables`

const scansSince = `SELECT coalesce(string_agg(s.relid::regclass::text, E'\n' ORDER BY 1), '') FROM pg_stat_xact_user_tables s
	WHERE coalesce(seq_scan, 0) + coalesce(idx_scan, 0) > coalesce(($1::text::jsonb ->> relid::text)::bigint, 0)
	AND NOT EXISTS (SELECT FROM pg_trigger g JOIN pg_proc f ON f.oid = g.tgfoid JOIN pg_namespace n ON n.oid = f.pronamespace
		WHERE g.tgrelid = s.relid AND g.tgenabled <> 'D' AND f.proname = 'guarded' AND n.nspname = $2::text)`

// anyGuarded asks whether the schema guards any table.
const anyGuarded = `SELECT EXISTS (SELECT FROM pg_trigger g JOIN pg_proc f ON f.oid = g.tgfoid JOIN pg_namespace n ON n.oid = f.pronamespace
	WHERE f.proname = 'guarded' AND n.nspname = $1::text AND NOT g.tgisinternal)`

// watched runs read in a transaction, and logs which tables it has read that are not guarded. If
// the check itself fails, watched ignores that.
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

// tellGuards logs at the start if no table is guarded.
func (s *Store) tellGuards(theirs query) {
	any := true
	if err := theirs(anyGuarded, s.schemaName()).Scan(&any); err == nil && !any {
		s.opt.Logger.Warn("no table is guarded: an update that forgets a key makes a view wrong, and nobody notices; guard the tables it reads",
			"guard_it_with", "SELECT "+s.schema+".guard_table('TABLE', 'KEY:{COLUMN}')")
	}
}

// schemaName returns the schema as the catalogues have it, without quotes.
func (s *Store) schemaName() string {
	return strings.ReplaceAll(strings.Trim(s.schema, `"`), `""`, `"`)
}
