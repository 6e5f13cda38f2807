package teeth

// Sabotage breaks one rule.
type Sabotage struct {
	Name string
	File string // from the root of the repository
	Old  string // must occur exactly once
	New  string
	Also [2]string // a second Old and New in the same file, if one is not enough
	Pkg  string    // whose tests must fail
	Run  string    // which of them
	// Hygiene says why nothing can notice, for a rule that is only a second line
	// of defence; then the tests must pass.
	Hygiene string
}

const explore = "./sim/explore"

// Sabotages are all of them.
var Sabotages = []Sabotage{
	{Name: "no guard on taking a slice", File: "linear/clink/guard.go", Pkg: explore, Run: "TestLinear",
		Old: "pc.state, pc.call, pc.token, pc.single = guarding, p.call(pc), p.name(), nil\n",
		New: "pc.state, pc.token, pc.single = guarded, p.name(), nil\n\tif len(out) >= 0 {\n\t\treturn out\n\t}\n"},
	{Name: "token reused on retry", File: "linear/clink/guard.go", Pkg: explore, Run: "TestLinear",
		Old: "pc.state, pc.call, pc.token, pc.single = guarding, p.call(pc), p.name(), nil\n",
		New: "pc.state, pc.call, pc.single = guarding, p.call(pc), nil\n\tif pc.try == 0 || pc.token == (Token{}) {\n\t\tpc.token = p.name()\n\t}\n"},
	{Name: "guard accepted though ownership was lost during SetGuard", File: "linear/clink/guard.go", Pkg: explore, Run: "TestLinear",
		Old:     "	case !p.holds(now, pc.gen): // R2\n		out = append(out, Event{GuardRefused})\n		return p.forsake(now, pc, out)\n	case status == Layout:",
		New:     "	case status == Layout:",
		Hygiene: "every use of a guard asks for its lease again, and a lease that was lost never holds again; see the next one"},
	{Name: "guard used though its lease is over", File: "linear/clink/pod.go", Pkg: explore, Run: "TestLinear",
		Old: "	if pc := p.piece(key); pc != nil && p.holds(now, pc.gen) {", New: "	if pc := p.piece(key); pc != nil {"},
	{Name: "fill despite overlap", File: "linear/clink/read.go", Pkg: explore, Run: "TestLinear",
		Old: "	case l.overlap: // R6: our own write may have landed in between\n		return false, append(out, Event{FillRefusedOverlap})\n", New: ""},
	{Name: "fill without guard", File: "linear/clink/read.go", Pkg: explore, Run: "TestLinear",
		Old: "	if pc, token := p.guard(now, l.key); pc != nil {\n		l.gen, l.token = pc.gen, token\n",
		New: "	if pc := p.owner(now, l.key); pc != nil {\n		l.gen = pc.gen\n"},
	{Name: "a second lease check at fill", File: "linear/clink/read.go", Pkg: explore, Run: "TestLinear",
		Old: "	case !p.holds(now, l.gen): // R7: the next owner may have written already\n		return false, append(out, Event{FillRefusedLease})\n", New: "",
		Hygiene: "an entry under a lease that is over is never served: R9 checks the same lease at every hit"},
	{Name: "serve without Valid", File: "linear/clink/pod.go", Pkg: explore, Run: "TestLinear",
		Old: "	return now < leased && (until == 0 || now < until)", New: "	return until == 0 || now < until"},
	{Name: "entry not dropped on write", File: "linear/clink/write.go", Pkg: explore, Run: "TestLinear",
		Old: "		out = append(out, Drop{m.Key})\n", New: ""},
	{Name: "reads in flight not marked by a write", File: "linear/clink/write.go", Pkg: explore, Run: "TestLinear",
		Old: "		for _, l := range p.keys[m.Key].loads {\n			l.overlap = true\n		}\n", New: ""},
	{Name: "unknown outcome treated as failure", File: "linear/clink/write.go", Pkg: explore, Run: "TestLinear",
		Old: "	return p.unsettled(now, b, append(out, Event{OutcomeUnknown}))", New: "	return p.finish(now, b, Reply{Outcome: NotOwner}, out)"},
	{Name: "retry without a new guard", File: "linear/clink/resolve.go", Pkg: explore, Run: "TestLinear",
		Old: "	b.found, b.fenced = make([]Row, len(b.keys)), make([]bool, len(b.keys))\n	return p.fence(now, b, out)",
		New: "	b.found = make([]Row, len(b.keys))\n	b.state = resolving\n	for i, name := range b.keys {\n		out = p.load(now, &load{key: name, batch: b, index: i}, out)\n	}\n	return out"},
	{Name: "resolution continued in a later period", File: "linear/clink/write.go", Pkg: explore, Run: "TestLinear",
		Old: "	return !slices.ContainsFunc(b.gens, func(g lease.Gen) bool { return !p.holds(now, g) })",
		New: "	return !slices.ContainsFunc(b.keys, func(k string) bool { return p.owner(now, k) == nil })"},
	{Name: "row read trusted after loss", File: "linear/clink/resolve.go", Pkg: explore, Run: "TestLinear",
		Old: "	case proof == Lost || !p.holdsAll(now, b): // R14, R15, R18", New: "	case proof == Lost:"},
	{Name: "NotOwner after an unresolved attempt", File: "linear/clink/write.go", Pkg: explore, Run: "TestLinear",
		Old: "		return p.finish(now, b, Reply{Outcome: Unknown}, append(out, Event{OutcomeLeftUnknown}))\n	}\n	return p.finish(now, b, Reply{Outcome: NotOwner}, out)",
		New: "		return p.finish(now, b, Reply{Outcome: NotOwner}, out)\n	}\n	return p.finish(now, b, Reply{Outcome: NotOwner}, out)"},
	{Name: "write forgotten at the caller's deadline", File: "linear/clink/write.go", Pkg: explore, Run: "TestLinear",
		Old: "		return p.reply(Reply{Op: o.id, Outcome: Unknown}, append(out, Event{OutcomeLeftUnknown}))",
		New: "		out = p.reply(Reply{Op: o.id, Outcome: Unknown}, out)\n		return p.finish(now, b, Reply{}, out)"},
	{Name: "abandoned write sent again", File: "linear/clink/write.go", Pkg: explore, Run: "TestLinear",
		Old: "	case len(b.ops) == 0: // R16\n		return p.finish(now, b, Reply{}, out)\n", New: "	case len(b.ops) == 0:\n		return p.send(now, b, out)\n",
		Hygiene: "its caller was told unknown, which allows it; sending what nobody waits for is only waste"},
	{Name: "joiner of a read always answered", File: "linear/clink/read.go", Pkg: explore, Run: "TestLinear",
		Old: "	if fill || in.Status != OK {", New: "	if fill || in.Status != OK || len(l.late) > 0 {"},
	{Name: "conditional evaluated outside the queue", File: "linear/clink/write.go", Pkg: explore, Run: "TestLinear",
		Old:  "		if k == nil || k.flight != nil || len(k.queue) == 0 {",
		New:  "		if k == nil || k.flight != nil && (len(k.queue) == 0 || k.queue[0].blind) || len(k.queue) == 0 {",
		Also: [2]string{"			if m := p.keys[n]; m.flight != nil || m.queue[0] != o {", "			if m := p.keys[n]; m.flight != nil && o.blind || m.queue[0] != o {"}},
	{Name: "any SetGuard that returns taken for the fence", File: "linear/clink/guard.go", Pkg: explore, Run: "TestLinear",
		Old: "	case *fence:\n		return p.fenced(now, what, in.Status, out)\n",
		New: "	case *fence:\n		for _, f := range p.fences {\n			if f != what && in.Status == OK {\n				out = p.fenced(now, f, OK, out)\n			}\n		}\n		return p.fenced(now, what, in.Status, out)\n"},
	{Name: "late answer of a settled attempt taken", File: "linear/clink/write.go", Pkg: explore, Run: "TestLinear",
		Old: "	delete(p.calls, in.Call)\n	switch in.Status {", New: "	switch in.Status {",
		Hygiene: "every call is answered once, so there is no second answer to take"},
	{Name: "writes to a key leave together", File: "linear/clink/write.go", Pkg: explore, Run: "TestLinear",
		Old:  "		if k == nil || k.flight != nil || len(k.queue) == 0 {",
		New:  "		if k == nil || k.flight != nil && k.flight.state != sent || len(k.queue) == 0 {",
		Also: [2]string{"			if m := p.keys[n]; m.flight != nil || m.queue[0] != o {", "			if m := p.keys[n]; m.queue[0] != o {"}},
	{Name: "SetGuard that does not wait for writes in flight", File: "store/tablet/tablet.go", Pkg: "./store/...", Run: "TestConformance",
		Old: "	for g.inside > 0 {", New: "	for g.inside > 1<<30 {"},
	{Name: "split that leaves an older guard", File: "store/tablet/tablet.go", Pkg: "./store/...", Run: "TestConformance",
		Old: "		m.replace([]*tablet{t}, newTablet(t.low, at, left), newTablet(at, t.high, right))",
		New: "		m.replace([]*tablet{t}, newTablet(t.low, at, left), newTablet(at, t.high, nil))\n		_ = right"},
	{Name: "merge that spreads one half's guard", File: "store/tablet/tablet.go", Pkg: "./store/...", Run: "TestConformance",
		Old: "append(slices.Clone(*left.guards.Load()), *right.guards.Load()...)", New: "slices.Clone(*left.guards.Load())"},
	{Name: "restart that keeps its guards", File: "store/tablet/tablet.go", Pkg: "./store/...", Run: "TestConformance",
		Old: "		t.guards.Store(new([]guard))\n", New: ""},
	{Name: "a condition checked before the guard counts as checked", File: "store/memory/memory.go", Pkg: "./store/...", Run: "TestConformance",
		Old: "		if m.Check && s.load(m.Key).Version != m.Expect {", New: "		if m.Check && s.rows[m.Key].version != m.Expect {"},
	{Name: "pebble shows what is not durable and forgets versions", File: "store/pebble/pebble.go", Pkg: "./store/pebble", Run: "TestNothingAcknowledged|TestReopening",
		Old: "		s.reserved = next\n", New: "		s.reserved = next + 1<<40\n"},
}
