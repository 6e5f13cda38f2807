package clink

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// TestStories runs testdata/*.txt: what happens to a pod, and what it asks for.
// Guards are called g1, g2 and so on, and writes w1, w2, in the order they appear;
// an answer goes to the oldest request of its kind for that key or range, and with
// "again" to one that had an answer before. go test -rewrite fills in the answers.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &story{}
		s.open(Options{Incarnation: 1})
		datadriven.RunTest(t, path, s.run)
	})
}

// story is a pod and the memory of the runtime around it.
type story struct {
	pod     *Pod
	now     ticks.Tick
	entries map[string]Keep
	until   map[lease.Gen]ticks.Tick
	asked   []request
	names   map[[16]byte]string
	named   map[string][16]byte
}

// request is what the pod asked of the store.
type request struct {
	kind, key string // the key, or where the range begins
	call      Call
	keys      int // that a Store writes
	answered  bool
}

func (s *story) open(opt Options) {
	*s = story{entries: map[string]Keep{}, until: map[lease.Gen]ticks.Tick{}, names: map[[16]byte]string{}, named: map[string][16]byte{}, now: 1}
	opt.Entry = func(k string) (Keep, bool) { e, ok := s.entries[k]; return e, ok }
	s.pod = NewPod(opt)
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	if at := int64(0); d.HasArg("at") { // every line may move the clock
		d.ScanArgs(t, "at", &at)
		s.now = ticks.Tick(at)
	}
	switch d.Cmd {
	case "pod":
		opt := Options{Incarnation: 1, Tags: d.HasArg("tags")}
		d.MaybeScanArgs(t, "drift", &opt.Drift)
		d.MaybeScanArgs(t, "queue", &opt.Queue)
		s.open(opt)
		return ""
	case "serve":
		return s.serve(arg(t, d, "key"))
	case "forget": // memory is full
		delete(s.entries, arg(t, d, "key"))
		return ""
	case "write-many": // keys of a letter and a number, one after the other, and all of them are stored
		for i := range num(t, d, "n") {
			s.writeOne(Op(1000+i), fmt.Sprintf("%s%05d", arg(t, d, "prefix"), i))
		}
		return ""
	case "dump":
		text := s.pod.Dump()
		for b, name := range s.names {
			text = regexp.MustCompile(`\b`+regexp.QuoteMeta(show(b))+`\b`).ReplaceAllString(text, name)
		}
		return text
	}
	before := Output(Event{EventKinds})
	outs := s.pod.Step(s.now, s.input(t, d), []Output{before})
	s.pod.Check()
	if len(outs) == 0 || outs[0] != before {
		d.Fatalf(t, "the outputs of an earlier step are gone: %v", outs)
	}
	outs = outs[1:]
	var b strings.Builder
	for _, out := range outs {
		b.WriteString(s.perform(out) + "\n")
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// writeOne writes a key, and forgets the entry: memory is full.
func (s *story) writeOne(op Op, key string) {
	for _, out := range s.pod.Step(s.now, Write{Op: op, Muts: []Mut{{Key: key, Value: []byte("v")}}}, nil) {
		if st, ok := out.(Store); ok {
			s.pod.Step(s.now, Stored{Call: st.Call, Stamps: []Stamp{{Version: 1}}}, nil)
		}
	}
	s.pod.Check()
}

// serve is what a runtime would serve from memory.
func (s *story) serve(key string) string {
	e, ok := s.entries[key]
	switch {
	case !ok:
		return "nothing is kept\n"
	case !Serves(s.now, s.until[e.Gen], e.Until):
		return "what is kept may not be served\n"
	case !e.Row.Exists:
		return "absent\n"
	}
	return fmt.Sprintf("%q version %d\n", e.Row.Value, e.Row.Version)
}

func (s *story) input(t *testing.T, d *datadriven.TestData) Input {
	op := Op(num(t, d, "op"))
	switch d.Cmd {
	case "acquired":
		gen, until := lease.Gen(num(t, d, "gen")), ticks.Tick(num(t, d, "until"))
		s.until[gen] = until
		return Acquired{Lease: lease.Lease{Range: s.rng(t, d), Gen: gen}, Until: until, After: lease.Gen(num(t, d, "after"))}
	case "extended":
		gen, until := lease.Gen(num(t, d, "gen")), ticks.Tick(num(t, d, "until"))
		s.until[gen] = until
		return Extended{gen, until}
	case "revoked":
		delete(s.until, lease.Gen(num(t, d, "gen")))
		return Revoked{lease.Gen(num(t, d, "gen"))}
	case "splits":
		return Splits{Call: s.answer(t, d, arg(t, d, "low")).call, Points: list(t, d, "points"), Status: status(d)}
	case "guarded":
		return Guarded{Call: s.answer(t, d, arg(t, d, "low")).call, Status: status(d)}
	case "read":
		return Read{Op: op, Key: arg(t, d, "key")}
	case "loaded":
		return Loaded{Call: s.answer(t, d, arg(t, d, "key")).call, Row: s.row(t, d), Status: status(d)}
	case "write":
		return Write{Op: op, Muts: []Mut{{Key: arg(t, d, "key"), Value: []byte(arg(t, d, "value")), TTL: ticks.Tick(num(t, d, "ttl"))}}}
	case "writes":
		in := Write{Op: op}
		for i, v := range list(t, d, "values") {
			in.Muts = append(in.Muts, Mut{Key: list(t, d, "keys")[i], Value: []byte(v)})
		}
		return in
	case "delete":
		return Write{Op: op, Muts: []Mut{{Key: arg(t, d, "key"), Delete: true}}}
	case "update":
		return Update{Op: op, Keys: list(t, d, "keys")}
	case "lock":
		id := ID{15: byte(200 + op)}
		s.name("t", id)
		return Lock{Op: op, ID: id, Keys: list(t, d, "keys")}
	case "evaluated":
		in := Evaluated{Op: op}
		for i, v := range list(t, d, "values") {
			in.Muts = append(in.Muts, Mut{Key: list(t, d, "keys")[i], Value: []byte(v), TTL: ticks.Tick(num(t, d, "ttl"))})
		}
		return in
	case "stored":
		r := s.answer(t, d, arg(t, d, "key"))
		in := Stored{Call: r.call, Status: status(d)}
		for range r.keys {
			in.Stamps = append(in.Stamps, Stamp{uint64(num(t, d, "version")), ticks.Tick(num(t, d, "ttl"))})
		}
		return in
	case "offered":
		return Offered{After: lease.Gen(num(t, d, "after")), Key: arg(t, d, "key"), Row: s.row(t, d)}
	case "abandoned":
		return Abandoned{Op: op}
	}
	d.Fatalf(t, "nothing is known of %q", d.Cmd)
	return nil
}

// answer is the request that an input answers.
func (s *story) answer(t *testing.T, d *datadriven.TestData, key string) *request {
	for i := range s.asked {
		if r := &s.asked[i]; r.kind == d.Cmd && r.key == key && r.answered == d.HasArg("again") {
			r.answered = true
			return r
		}
	}
	d.Fatalf(t, "nothing of %s waits to be %s", key, d.Cmd)
	return nil
}

func (s *story) ask(kind, key string, call Call, keys int) {
	s.asked = append(s.asked, request{kind: kind, key: key, call: call, keys: keys})
}

// name is what a token or an id is called.
func (s *story) name(prefix string, b [16]byte) string {
	if s.names[b] == "" && b != [16]byte{} {
		n := 1
		for s.named[fmt.Sprint(prefix, n)] != [16]byte{} {
			n++
		}
		s.names[b] = fmt.Sprint(prefix, n)
		s.named[s.names[b]] = b
	}
	return s.names[b]
}

// perform does what the runtime does, and says it.
func (s *story) perform(out Output) string {
	switch out := out.(type) {
	case ReadSplits:
		s.ask("splits", out.Range.Low, out.Call, 0)
		return fmt.Sprintf("read the splits of %v%s", out.Range, attempt(out.Try))
	case SetGuard:
		s.ask("guarded", out.Range.Low, out.Call, 0)
		return fmt.Sprintf("guard %v with %v%s", out.Range, s.name("g", out.Token), attempt(out.Try))
	case Load:
		s.ask("loaded", out.Key, out.Call, 0)
		if out.Bare {
			return "look who wrote " + out.Key + attempt(out.Try)
		}
		return "load " + out.Key + attempt(out.Try)
	case Evaluate:
		text := fmt.Sprintf("let op %d decide from", out.Op)
		for _, r := range out.Rows {
			text += " " + rowText(r)
		}
		return text
	case Store:
		text := "store"
		for _, m := range out.Muts {
			text += " " + s.mut(m)
		}
		s.ask("stored", out.Muts[0].Key, out.Call, len(out.Muts))
		return fmt.Sprintf("%s as %v", text, s.name("w", out.ID))
	case Locked:
		text := fmt.Sprintf("lock to op %d:", out.Op)
		for _, g := range out.Guards {
			text += " under " + s.name("g", g)
		}
		s.ask("stored", fmt.Sprint("op", out.Op), out.Call, len(out.Guards))
		return text
	case Keep:
		s.entries[out.Key] = out
		text := fmt.Sprintf("keep %s = %s under lease %d", out.Key, rowText(out.Row), out.Gen)
		if out.Until != 0 {
			text += fmt.Sprintf(" until %d", out.Until)
		}
		return text
	case Drop:
		delete(s.entries, out.Key)
		return "drop " + out.Key
	case Retag:
		for k, e := range s.entries {
			if e.Gen == out.Old && out.Range.Contains(k) {
				e.Gen = out.New
				s.entries[k] = e
			}
		}
		return fmt.Sprintf("what is kept of %v under lease %d goes on under %d", out.Range, out.Old, out.New)
	case Reply:
		return replyText(out)
	case Event:
		return "count " + eventNames[out.Kind]
	}
	return fmt.Sprintf("%T", out)
}

// attempt says that a request is made again, which the runtime puts off.
func attempt(try int) string {
	if try == 0 {
		return ""
	}
	return fmt.Sprintf(", attempt %d", try+1)
}

var eventNames = [EventKinds]string{"a fill refused: no guard", "a fill refused: overlap", "a fill refused: lease", "a fill refused: expired",
	"an unknown outcome", "proven done", "proven failed", "left unknown", "a guard installed", "a guard refused", "a guard lost", "a mismatch",
	"a conflict", "a write combined", "a read joined", "an entry transferred"}

func replyText(r Reply) string {
	what := [...]string{"done", "not the owner", "not sent", "rejected", "failed", "unknown", "busy", "lapsed"}[r.Outcome]
	text := fmt.Sprintf("reply to op %d: %s", r.Op, what)
	switch {
	case r.Outcome != Done:
	case len(r.Stamps) > 0:
		text += fmt.Sprintf(", version %d", r.Stamps[0].Version)
	case r.Row.Version != 0 || r.Row.Exists:
		text += ", " + rowText(r.Row)
	}
	return text
}

func rowText(r Row) string {
	text := "absence"
	if r.Exists {
		text = fmt.Sprintf("%q", r.Value)
	}
	return fmt.Sprintf("%s version %d", text, r.Version)
}

func (s *story) mut(m Mut) string {
	text := fmt.Sprintf("%s = %q", m.Key, m.Value)
	if m.Delete {
		text = "no " + m.Key
	}
	if m.Check {
		text += fmt.Sprintf(" if version %d", m.Expect)
	}
	return fmt.Sprintf("%s under %v", text, s.name("g", m.Guard))
}

func arg(t *testing.T, d *datadriven.TestData, name string) (v string) {
	d.MaybeScanArgs(t, name, &v)
	return v
}

func num(t *testing.T, d *datadriven.TestData, name string) (v int64) {
	d.MaybeScanArgs(t, name, &v)
	return v
}

func list(_ *testing.T, d *datadriven.TestData, name string) []string {
	for _, a := range d.CmdArgs {
		if a.Key == name {
			return a.Vals
		}
	}
	return nil
}

func (s *story) rng(t *testing.T, d *datadriven.TestData) lease.Range {
	return lease.Range{Low: arg(t, d, "low"), High: arg(t, d, "high")}
}

func status(d *datadriven.TestData) Status {
	names := []string{"ok", "mismatch", "conflict", "layout", "refused", "lost"}
	for _, a := range d.CmdArgs {
		if i := slices.Index(names, a.Key); i >= 0 {
			return Status(i)
		}
	}
	return OK
}

// row is what a read found: value=, version=, ttl=, by= the write, guard=.
func (s *story) row(t *testing.T, d *datadriven.TestData) Row {
	r := Row{Exists: d.HasArg("value"), Version: uint64(num(t, d, "version")), TTL: ticks.Tick(num(t, d, "ttl"))}
	if r.Exists {
		r.Value = []byte(arg(t, d, "value"))
	}
	r.Writer, r.Guard = s.named[arg(t, d, "by")], s.named[arg(t, d, "guard")]
	return r
}
