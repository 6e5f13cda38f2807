package causal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/codec"
	"github.com/freshet-cache/freshet/internal/testkit"
)

// merging is a step of a transaction that writes k.
type merging = func(*Tx[[]byte]) error

func setK(v string) merging {
	return func(tx *Tx[[]byte]) error { return tx.Set("k", []byte(v)) }
}

func updateK(v string) merging {
	return func(tx *Tx[[]byte]) error {
		return tx.Update(context.Background(), "k", func([]byte, bool) ([]byte, error) { return []byte(v), nil })
	}
}

func removeK(tx *Tx[[]byte]) error { return tx.Delete("k") }

// mergings are what transactions do over a k that is ["o"], and what it is then.
var mergings = map[string]struct {
	before, here, there []merging // before the fork, and behind it
	want                string
}{
	"set":                        {[]merging{setK(`["n"]`)}, nil, nil, "n o"},
	"set twice":                  {[]merging{setK(`["n"]`), setK(`["m"]`)}, nil, nil, "m n o"},
	"replaced":                   {[]merging{updateK(`["n"]`)}, nil, nil, "n"},
	"replaced and set":           {[]merging{updateK(`["n"]`), setK(`["m"]`)}, nil, nil, "m n"},
	"set and replaced":           {[]merging{setK(`["m"]`), updateK(`["n"]`)}, nil, nil, "n"},
	"deleted":                    {[]merging{removeK}, nil, nil, ""},
	"deleted and set":            {[]merging{removeK, setK(`["n"]`)}, nil, nil, "n"},
	"set and deleted":            {[]merging{setK(`["n"]`), removeK}, nil, nil, ""},
	"a branch alone":             {nil, nil, []merging{setK(`["n"]`)}, "n o"},
	"a branch that replaces":     {nil, nil, []merging{updateK(`["n"]`)}, "n"},
	"both set":                   {nil, []merging{setK(`["h"]`)}, []merging{setK(`["t"]`)}, "h o t"},
	"both set behind one":        {[]merging{setK(`["f"]`)}, []merging{setK(`["h"]`)}, []merging{setK(`["t"]`)}, "f h o t"},
	"both replace":               {nil, []merging{updateK(`["h"]`)}, []merging{updateK(`["t"]`)}, "h t"},
	"one replaces, one sets":     {nil, []merging{updateK(`["h"]`)}, []merging{setK(`["t"]`)}, "h o t"},
	"one deletes, a branch sets": {nil, []merging{removeK}, []merging{setK(`["t"]`)}, "o t"},
	"one sets, a branch deletes": {nil, []merging{setK(`["h"]`)}, []merging{removeK}, ""},
}

// What a transaction is to write is merged with the snapshot unless it replaces that, in the order of what was done, and
// branches are merged with what they were forked from. After the commit every key has one version, and everybody sees what
// the transaction saw.
func TestWhatTransactionsMerge(t *testing.T) {
	c, at := sets(t, 1)
	ctx := t.Context()
	for what, x := range mergings {
		s := at[0].Begin()
		if err := errors.Join(s.Delete(ctx, "k"), s.Delete(ctx, "l"), s.Set(ctx, "k", []byte(`["o"]`)), s.Set(ctx, "l", []byte(`["o"]`))); err != nil {
			t.Fatal(err)
		}
		tx, err := s.BeginTx(ctx)
		if err != nil {
			t.Fatal(err)
		}
		do := func(tx *Tx[[]byte], all []merging) {
			t.Helper()
			for _, step := range all {
				if err := step(tx); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
		}
		do(tx, x.before)
		if x.here != nil || x.there != nil {
			branch := tx.Fork()
			do(tx, x.here)
			do(branch, x.there)
			if err := tx.Join(branch); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		if err := tx.Set("l", []byte(`["n"]`)); err != nil {
			t.Fatal(err)
		}
		saw, _, err := tx.Get(ctx, "k")
		if got := strings.Join(wordsOf(t, saw), " "); got != x.want || err != nil {
			t.Errorf("%s: the transaction sees %q, not %q: %v", what, got, x.want, err)
		}
		done, err := tx.Commit(ctx)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for key, want := range map[string]string{"k": x.want, "l": "n o"} {
			b, ok, err := done.Get(ctx, key)
			if got := strings.Join(wordsOf(t, b), " "); got != want || ok != (want != "") || err != nil {
				t.Errorf("%s: then %s is %q, not %q: %v", what, key, got, want, err)
			}
			rows, err := c.store.Load(ctx, key)
			if err != nil || len(rows[0].Siblings) != 1 {
				t.Errorf("%s: %s has %d versions, %v", what, key, len(rows[0].Siblings), err)
			}
		}
	}
}

// A transaction commits though its merge function breaks its laws: the value stands.
func TestUnlawfulMergeInATransaction(t *testing.T) {
	c, _ := sets(t, 1)
	ctx := t.Context()
	sp, err := NewSpace(c.servers[0], SpaceOptions[string]{Codec: codec.String(), Merge: func(a, b string) string { return a + b }})
	if err != nil {
		t.Fatal(err)
	}
	a, b := sp.Begin(), sp.Begin()
	tx, err := b.BeginTx(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Set(ctx, "k", "x"), tx.Set("k", "y")); err != nil {
		t.Fatal(err)
	}
	if b, err = tx.Commit(ctx); err != nil { // beside x
		t.Fatal(err)
	}
	b.Join(a)
	if tx, err = b.BeginTx(ctx); err != nil {
		t.Fatal(err)
	}
	if err := tx.Set("k", "z"); err != nil {
		t.Fatal(err)
	}
	if v, _, err := tx.Get(ctx, "k"); !errors.Is(err, ErrUnlawful) || !strings.HasSuffix(v, "z") || len(v) != 3 {
		t.Errorf("%q, %v", v, err)
	}
	if items, err := tx.GetMany(ctx, "none", "k"); !errors.Is(err, ErrUnlawful) || len(items) != 2 || len(items[1].Value) != 3 {
		t.Errorf("%v, %v", items, err)
	}
	if b, err = tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if v, _, err := b.Get(ctx, "k"); len(v) != 3 || err != nil {
		t.Errorf("%q, %v", v, err)
	}
}

// A merged value that cannot be encoded is read as it is, as often as it is asked for.
func TestAMergedValueThatCannotBeEncoded(t *testing.T) {
	c, _ := sets(t, 1)
	sp, err := NewSpace(c.servers[0], SpaceOptions[string]{Codec: brittle{codec.String()}, Merge: func(a, b string) string {
		if a == b {
			return a
		}
		return "unwritable"
	}})
	if err != nil {
		t.Fatal(err)
	}
	sp.folds.tries.Store(1) // the laws, for which values are encoded, are not tried
	w := func(n uint64, v string) *mesh.Write {
		return &mesh.Write{Dot: mesh.Dot{Incarnation: 1, N: n}, Muts: []mesh.Mut{{Key: "k", Value: []byte(v)}}}
	}
	for range 3 {
		it, err := sp.fold("k", mesh.Item{Exists: true, Siblings: []*mesh.Write{w(1, "x"), w(2, "y")}})
		if err != nil || it.Value != "unwritable" || !it.Exists {
			t.Errorf("%+v, %v", it, err)
		}
	}
}

// Keys that are merged now and then are made one version; a function that breaks its laws makes none, and what is
// remembered is bounded.
func TestWhenVersionsAreReplaced(t *testing.T) {
	f, now := &folds{}, time.Now()
	for _, c := range []struct {
		key  string
		at   time.Duration
		want bool
	}{{"k", 0, true}, {"k", 1, false}, {"l", 1, true}, {"k", compactRest - 1, false}, {"k", compactRest, true}, {"k", compactRest + 1, false}} {
		if got := f.due(c.key, now.Add(c.at)); got != c.want {
			t.Errorf("%s is replaced at %v: %v", c.key, c.at, got)
		}
	}
	for i := range 3 * compactsMost {
		if f.due(fmt.Sprint(i), now); len(f.compacts) > compactsMost {
			t.Fatalf("%d keys are remembered", len(f.compacts))
		}
	}
	f.broken.Store(true)
	if f.due("another", now) {
		t.Error("versions are replaced by what an unlawful function makes of them")
	}
}

// Values that were merged are kept up to a bound, for versions that have names, the latest of every key.
func TestMergedValuesAreBounded(t *testing.T) {
	f := &folds{}
	dots := func(n uint64) []mesh.Dot { return []mesh.Dot{{Incarnation: 1, N: n}, {Incarnation: 2, N: n}} }
	sum := func() (n int) {
		for _, all := range f.keys {
			if len(all) > foldEach {
				t.Fatalf("%d values of a key are kept", len(all))
			}
			for _, is := range all {
				n += is.weight()
			}
		}
		return n
	}
	f.keep("nameless", folded{dots: []mesh.Dot{{Incarnation: 1, N: 1}, {}}})
	f.keep("long", folded{dots: dots(1), text: make([]byte, foldBytes/foldEach+1)})
	if len(f.keys) > 0 || f.bytes != 0 {
		t.Errorf("%d keys are kept, of %d bytes", len(f.keys), f.bytes)
	}
	for n := range uint64(2 * foldEach) {
		f.keep("k", folded{dots: dots(n + 1), text: fmt.Append(nil, n+1)})
		f.keep("k", folded{dots: dots(n + 1), text: []byte("another")})
	}
	if got := f.find("k", dots(2*foldEach)); string(got.text) != fmt.Sprint(2*foldEach) || f.bytes != sum() {
		t.Errorf("the latest is %q, and %d bytes are kept as %d", got.text, sum(), f.bytes)
	}
	if got := f.find("k", dots(1)); got.text != nil {
		t.Error("an old value is kept")
	}
	if got := f.find("k", append(dots(2*foldEach), mesh.Dot{Incarnation: 3, N: 1})); len(got.dots) != 2 {
		t.Error("a value of the first versions is not found")
	}
	if got := f.find("k", dots(2 * foldEach)[:1]); got.dots != nil {
		t.Error("a value of more versions than there are is found")
	}
	for i := range 3 * foldEach {
		f.keep(fmt.Sprint("large ", i), folded{dots: dots(1), text: make([]byte, foldBytes/foldEach)})
		if f.bytes > foldBytes || f.bytes != sum() || len(f.keys) == 0 {
			t.Fatalf("%d bytes are kept as %d", sum(), f.bytes)
		}
	}
}

// A set as MergeUnion leaves it is read without a JSON decoder, so that large sets stay cheap.
func TestPlainSetsAreReadFast(t *testing.T) {
	for text, want := range map[string]int{`["a"]`: 1, `["a","b c"]`: 2, `["~"," ",""]`: 3, `[""]`: 1} {
		if all, ok := words([]byte(text)); !ok || len(all) != want {
			t.Errorf("%s has %q", text, all)
		}
	}
	for _, text := range []string{``, `[]`, `["]`, `["a"`, `"a"]`, `["a",]`, `["a" ]`, `["a"b]`, `[1,2]`, `["a",1]`, `["<"]`, `[">"]`, `["&"]`, `["\x"]`, `["a<]`, `["a<,"b"]`, "[\"\x7f\"]", "[\"\x1f\"]", `["a"]]`} {
		if all, ok := words([]byte(text)); ok {
			t.Errorf("%s has %q", text, all)
		}
	}
	for text, want := range map[string]string{`[">"]`: `["\u003e"]`, `["&"]`: `["\u0026"]`, `["<"]`: `["\u003c"]`, `["?"]`: `["?"]`, `["\x"]`: `["[\"\\x\"]"]`, `["b","a","b"]`: `["a","b"]`, `[{"a":1,"b":[2,{"c":"},"}]},3]`: `[3,{"a":1,"b":[2,{"c":"},"}]}]`} {
		if got := string(MergeUnion([]byte(text), []byte(text))); got != want {
			t.Errorf("%s becomes %s", text, got)
		}
	}
	for _, c := range []struct{ a, b, want string }{{"9", "10", "10"}, {"-1", "-2", "-1"}, {"x", "10", "10"}, {"x", "y", "y"}, {"1", "+1", "1"}, {"1", "1", "1"}, {"", "0", "0"}, {"", "", ""}} {
		if x, y := string(MergeMax([]byte(c.a), []byte(c.b))), string(MergeMax([]byte(c.b), []byte(c.a))); x != c.want || y != c.want {
			t.Errorf("the larger of %q and %q is %q, and %q", c.a, c.b, x, y)
		}
	}
}

// A merge function that panics, or whose values cannot be encoded, is found out by CheckMerge.
func TestCheckMergeFindsWhatCannotBeMerged(t *testing.T) {
	if err := CheckMerge(codec.String(), larger, "a", "angry"); err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Error(err)
	}
	if err := CheckMerge[string](brittle{codec.String()}, larger, "a", "unwritable"); !errors.Is(err, errBrittle) {
		t.Error(err)
	}
	if err := CheckMerge(codec.String(), larger, "a", "b", "c"); err != nil {
		t.Error(err)
	}
}

// A key of which many versions stand beside each other is made one version behind the back of who reads it.
func TestManyVersionsBecomeOne(t *testing.T) {
	c, at := sets(t, 1)
	ctx := t.Context()
	var all []*Tx[[]byte]
	for i := range compactAt {
		tx, err := at[0].Begin().BeginTx(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Set("k", fmt.Appendf(nil, `["%d"]`, i)); err != nil {
			t.Fatal(err)
		}
		all = append(all, tx.Fork()) // its snapshot does not move, so that it sees none of the others
		all[i].m.Branch, all[i].m.Open = false, 0
	}
	for _, tx := range all {
		tx.m.Seen = []mesh.Seen{}
		if _, err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := c.store.Load(ctx, "k")
	if err != nil || len(rows[0].Siblings) < compactAt {
		t.Skipf("only %d versions stand beside each other, %v", len(rows[0].Siblings), err)
	}
	if b, _, err := at[0].Begin().Get(ctx, "k"); err != nil || len(wordsOf(t, b)) != compactAt {
		t.Fatalf("%s, %v", b, err)
	}
	testkit.Eventually(t, func() bool {
		rows, err := c.store.Load(ctx, "k")
		return err == nil && len(rows[0].Siblings) == 1
	})
	if b, _, err := at[0].Begin().Get(ctx, "k"); err != nil || len(wordsOf(t, b)) != compactAt {
		t.Errorf("%s, %v", b, err)
	}
}
