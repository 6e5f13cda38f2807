package teeth

const loanStories = "./linear/loan"

// loans are the sabotages of transactions over keys of several owners.
var loans = []Sabotage{
	{Name: "an entry kept of a loan", File: "linear/clink/write.go", Pkg: storms, Run: "TestStorms",
		Old: "		case b.lent: // R20: only the store knows what stands there\n			continue\n", New: "		case b.lent:\n			stamps = append(stamps, Stamp{})\n"},
	{Name: "a loan rides along", File: "linear/clink/pod.go", Pkg: storms, Run: "TestStorms",
		Old: "o := &op{id: in.Op, keys: in.Keys, lent: in.ID}", New: "o := &op{id: in.Op, keys: in.Keys, lent: in.ID, blind: true}"},
	{Name: "a loan is sent again", File: "linear/clink/write.go", Pkg: "./linear/clink", Run: "TestStories",
		Old: "	case b.lent: // R20: the caller's transaction knows only the guards it was given\n		return p.finish(now, b, Reply{Outcome: Lapsed}, out)\n",
		New: "	case b.lent:\n		return p.send(now, b, out)\n"},
	{Name: "a write left under the lease of a slice that was split", File: "linear/clink/guard.go", Pkg: storms, Run: "TestStorms",
		Old: "		if p.holds(now, pc.gen) { // guarded or not", New: "		if p.holds(now, pc.gen) && pc.state == guarded { // guarded or not"},
	{Name: "owners asked in any order", File: "linear/loan/loan.go", Pkg: loanStories, Run: "TestNobodyWaitsInACircle",
		Old: "owners: slices.Sorted(maps.Keys(keys))", New: "owners: slices.Collect(maps.Keys(keys))"},
	{Name: "a transaction begins before all is lent", File: "linear/loan/loan.go", Pkg: storms, Run: "TestStorms",
		Old: "		return b.next(out)\n	case Denied:", New: "		b.asked = len(b.owners)\n		return b.next(out)\n	case Denied:"},
	{Name: "who may have lent is not told", File: "linear/loan/loan.go", Pkg: loanStories, Run: "TestStories",
		Old: "		if in.Sure {\n			b.asked--\n		}\n", New: "		b.asked--\n"},
	{Name: "an owner that does not know decides", File: "linear/loan/loan.go", Pkg: loanStories, Run: "TestStories",
		Old: "	if in.Outcome != Unknown || len(b.open) == 0 {", New: "	if true {"},
	{Name: "a transaction without answer counts as failed", File: "linear/loan/loan.go", Pkg: storms, Run: "TestStorms",
		Old: "	b.state = finding\n", New: "	if b.state = finding; status == Lost {\n		return b.end(Again, Refused, out)\n	}\n"},
	{Name: "strict mode content with any mark", File: "store/postgres/strict.sql", Pkg: "./store/postgres", Run: "TestTablesPgx",
		Old: " WHERE key = k AND xmin = pg_current_xact_id()::xid)", New: " WHERE key = k)"},
	{Name: "a transaction that ended itself is marked", File: "store/postgres/strict.sql", Pkg: "./store/postgres", Run: "TestTablesPgx|TestTablesElsewhere",
		Old: "    IF current_setting('freshet.attempt', true) IS DISTINCT FROM attempt THEN", New: "    IF false THEN"},
	{Name: "a value built from two snapshots", File: "store/postgres/tables.go", Pkg: "./store/postgres", Run: "TestSnapshots",
		Old: "pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}", New: "pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}"},
	{Name: "an update commits whatever its guards say", File: "store/postgres/tables.go", Pkg: "./store/postgres", Run: "TestFenceOverTransactions",
		Old: "	case status != 0:\n", New: "	case status > 9:\n"},
}
