package teeth

// views are the sabotages of the machines that decide who is in a ring.
var views = []Sabotage{
	{Name: "a view told before it is stored", File: "causal/view/keeper.go", Pkg: "./causal/view", Run: "TestViews",
		Old: "	g = Grant{Seq: in.Seq, Length: k.opt.Length, View: k.stored} // K1", New: "	g = Grant{Seq: in.Seq, Length: k.opt.Length, View: k.view} // K1"},
	{Name: "a life's number given again", File: "causal/view/keeper.go", Pkg: "./causal/view", Run: "TestViews",
		Old: "	k.view.Newest++ // K2\n", New: "	if len(k.view.Ring) > 0 || k.view.Newest == 0 {\n		k.view.Newest++\n	}\n"},
	{Name: "a lease for who is left out", File: "causal/view/member.go", Pkg: "./causal/view", Run: "TestViews",
		Old: "	if g.View.Number == m.view.Number && m.Place() >= 0 { // K3", New: "	if g.View.Number == m.view.Number { // K3"},
	{Name: "who leaves is not lost", File: "causal/view/keeper.go", Pkg: "./causal/view", Run: "TestViews",
		Old: "			k.view.Lost = append(slices.Clip(k.view.Lost), m.Origin) // K4\n", New: ""},
	{Name: "left out while the last keeper grants", File: "causal/view/keeper.go", Pkg: "./causal/view", Run: "TestViews",
		Old: "	k.alone = now + slack // K6\n", New: "	k.alone = now\n"},
	{Name: "recovery that does not wait", File: "causal/view/member.go", Pkg: "./causal/view", Run: "TestViews",
		Old: "	return heard + lease.Lengthen(m.length, 2*m.opt.Drift), ok && m.length > 0\n", New: "	return heard, ok && m.length > 0\n"},
}

// stamped are the sabotages of stores of causal rows.
var stamped = []Sabotage{
	{Name: "causal rows: an older write wins", File: "store/memory/dotted.go", Pkg: "./store/memory", Run: "TestDotted",
		Old: "			if !s.rows[m.Key].Stamp.Less(w.Stamp) {", New: "			if s.rows[m.Key].Stamp == w.Stamp {"},
	{Name: "causal rows: what was let go comes back", File: "store/pebble/dotted.go", Pkg: "./store/pebble", Run: "TestDotted",
		Old: "	case w.Dot.N <= l.settled:", New: "	case w.Dot.N == 0:"},
	{Name: "causal rows: a fence that does not wait in pebble", File: "store/pebble/dotted.go", Pkg: "./store/pebble", Run: "TestDotted",
		Old: "	l.mu.RLock()\n	defer l.mu.RUnlock()\n	switch {\n	case !l.begun || l.fenced:\n		return dotted.ErrFenced",
		New: "	l.mu.RLock()\n	over := !l.begun || l.fenced\n	l.mu.RUnlock()\n	switch {\n	case over:\n		return dotted.ErrFenced"},
	{Name: "causal rows: a fence that does not wait in PostgreSQL", File: "store/postgres/dotted.sql", Pkg: "./store/postgres", Run: "TestFenceWaitsForWrites",
		Old: "    PERFORM pg_advisory_xact_lock_shared(lock);\n", New: ""},
	{Name: "causal rows: a term that is over merges in memory", File: "store/memory/dotted.go", Pkg: "./store/memory", Run: "TestDotted",
		Old: "		case f.Term != s.claimed.term:\n			return dotted.ErrFenced\n", New: ""},
	{Name: "causal rows: a batch is merged twice in pebble", File: "store/pebble/merge.go", Pkg: "./store/pebble", Run: "TestDotted",
		Old: "	case f.Number <= m.number:\n		return nil\n", New: ""},
	{Name: "causal rows: a claim does not wait in pebble", File: "store/pebble/merge.go", Pkg: "./store/pebble", Run: "TestDotted",
		Old: "	m.term, m.number = term, 0\n	batch", New: "	mark = m.mark\n	batch", Also: [2]string{"	return m.mark, d.s.apply(batch)", "	return mark, nil"}},
	{Name: "causal rows: a term that is over merges in PostgreSQL", File: "store/postgres/merge.sql", Pkg: "./store/postgres", Run: "TestDotted",
		Old: "mark = mk WHERE space = sp AND term = te AND number < num;", New: "mark = mk WHERE space = sp AND (term <> te OR number < num);"},
	{Name: "causal logs: acknowledged without the log", File: "causal/async.go", Pkg: "./causal", Run: "TestAsync",
		Old: "	return s.opt.Log.Persist(ctx, dotted.Write{\n		Dot: ", New: "	return s.opt.Log.Forget(ctx, uint32(w.Dot.Origin), 0*uint64(len(dotted.Write{\n		Dot: ",
		Also: [2]string{"		Body:  wire.AppendWrites(nil, append(slices.Clone(out.With), w)),\n	})", "		Body:  wire.AppendWrites(nil, append(slices.Clone(out.With), w)),\n	}.Body)))"}},
	{Name: "causal logs: a ring begins without the mark", File: "causal/causal.go", Pkg: "./causal", Run: "TestAsync",
		Old: "mark, err := wire.DecodeSet(opt.Mark)", New: "mark, err := wire.DecodeSet(nil)"},
	{Name: "causal logs: a token leaves values out", File: "causal/session.go", Pkg: "./causal", Run: "TestAsync",
		Old: "		limit = math.MaxInt // A9", New: "		limit = min(limit, math.MaxInt) // A9"},
	{Name: "causal logs: who leaves does not wait", File: "causal/async.go", Pkg: "./causal", Run: "TestAsync",
		Old: "		if s.Owes() == 0 {", New: "		if true {"},
	{Name: "causal rows: rows without their entry", File: "store/postgres/dotted.sql", Pkg: "./store/postgres", Run: "TestDotted",
		Old: "    INSERT INTO {{schema}}.journal VALUES (sp, o, num, t, entry) ON CONFLICT DO NOTHING;", New: "    PERFORM 1;"},
}
