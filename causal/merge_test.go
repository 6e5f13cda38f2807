package causal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/quick"

	"github.com/freshet-cache/freshet/codec"
	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/store/journal"
	"github.com/freshet-cache/freshet/store/memory"
)

// sets is a space of sets of words, over a ring whose servers keep concurrent writes.
func sets(t testing.TB, n int) (*cluster, []*Space[[]byte]) {
	c := gather(t, n, memory.Options{}, func(o *ServerOptions) {
		if err := o.Store.(*memory.Journal).KeepSiblings(t.Context(), true); err != nil {
			t.Error(err)
		}
		o.Concurrent = true
	})
	var spaces []*Space[[]byte]
	for _, s := range c.servers {
		sp, err := NewSpace(s, SpaceOptions[[]byte]{Codec: codec.Bytes(), Name: "sets", Merge: MergeUnion})
		if err != nil {
			t.Fatal(err)
		}
		spaces = append(spaces, sp)
	}
	return c, spaces
}

func wordsOf(t *testing.T, b []byte) (out []string) {
	t.Helper()
	if b != nil {
		if err := json.Unmarshal(b, &out); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
	}
	return out
}

// sees wants what a session reads of a set.
func sees(t *testing.T, s *Session[[]byte], key string, want ...string) {
	t.Helper()
	b, _, err := s.Get(t.Context(), key)
	if got := wordsOf(t, b); err != nil || !slices.Equal(got, want) {
		t.Errorf("%s is %v, want %v: %v", key, got, want, err)
	}
}

// What was written out of each other's sight is merged; what is replaced is what was seen.
func TestMerge(t *testing.T) {
	_, at := sets(t, 3)
	ctx := t.Context()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a, b := at[0].Begin(), at[1].Begin()
	do(a.Set(ctx, "cart", []byte(`["apple"]`)))
	do(b.Set(ctx, "cart", []byte(`["bread"]`)))
	do(b.Set(ctx, "cart", []byte(`["butter"]`)))
	a.Join(&Session[[]byte]{a.sp, b.m})
	sees(t, a, "cart", "apple", "bread", "butter")

	// c takes something out; d, who knows of that, puts something in elsewhere.
	c := a.Fork()
	do(c.Update(ctx, "cart", func(v []byte, exists bool) ([]byte, error) {
		if !exists || len(wordsOf(t, v)) != 3 {
			t.Errorf("update is given %s", v)
		}
		return []byte(`["bread","butter"]`), nil
	}))
	d := &Session[[]byte]{at[2], c.Fork().m}
	sees(t, d, "cart", "bread", "butter")
	do(d.Set(ctx, "cart", []byte(`["cheese"]`)))
	c.Join(&Session[[]byte]{c.sp, d.m})
	sees(t, c, "cart", "bread", "butter", "cheese")

	refused := errors.New("refused")
	if err := c.Update(ctx, "cart", func([]byte, bool) ([]byte, error) { return nil, refused }); !errors.Is(err, refused) {
		t.Error(err)
	}
	do(c.Delete(ctx, "cart"))
	sees(t, c, "cart")
	do(c.Delete(ctx, "cart"))
	do(c.Delete(ctx, "never"))
	sees(t, c, "never")
	for _, s := range at { // whoever knows nothing sees it, sooner or later, everywhere
		testkit.Eventually(t, func() bool {
			b, _, err := s.Begin().Get(ctx, "cart")
			return err == nil && b == nil
		})
	}
}

// Many add words to one set at once, some in transactions; none is lost.
func TestMergeLosesNothing(t *testing.T) {
	_, at := sets(t, 3)
	ctx := t.Context()
	const adders, adds = 6, 20
	var wg sync.WaitGroup
	for i := range adders {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			s := at[i%3].Begin()
			for n := range adds {
				s = &Session[[]byte]{at[r.IntN(3)], s.m} // it roams
				word := fmt.Appendf(nil, `["w%d.%d"]`, i, n)
				var err error
				if n%4 == 0 {
					s, err = s.Transact(ctx, func(tx *Tx[[]byte]) error { return errors.Join(tx.Set("all", word), tx.Set("other", word)) })
				} else {
					err = s.Set(ctx, "all", word)
				}
				b, _, e := s.Get(ctx, "all")
				if err = errors.Join(err, e); err != nil || !strings.Contains(string(b), fmt.Sprintf(`"w%d.%d"`, i, n)) {
					t.Errorf("adder %d does not see word %d in %s: %v", i, n, b, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for _, sp := range at {
		var last []byte
		testkit.Eventually(t, func() bool {
			var err error
			last, _, err = sp.Begin().Get(ctx, "all")
			return err == nil && len(wordsOf(t, last)) == adders*adds
		})
	}
}

func TestMergeInTransactions(t *testing.T) {
	_, at := sets(t, 2)
	ctx := t.Context()
	s := at[0].Begin()
	if err := s.Set(ctx, "a", []byte(`["1"]`)); err != nil {
		t.Fatal(err)
	}
	s, err := s.Transact(ctx, func(tx *Tx[[]byte]) error {
		want := func(key string, want ...string) {
			t.Helper()
			b, _, err := tx.Get(ctx, key)
			if got := wordsOf(t, b); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s is %v, want %v: %v", key, got, want, err)
			}
		}
		err := errors.Join(tx.Set("a", []byte(`["2"]`)), tx.Set("a", []byte(`["3"]`)), tx.Set("gone", []byte(`["x"]`)), tx.Delete("gone"))
		want("a", "1", "2", "3")
		want("gone")
		branch := tx.Fork()
		err = errors.Join(err, branch.Set("a", []byte(`["4"]`)), branch.Set("b", []byte(`["b"]`)), tx.Join(branch))
		want("a", "1", "2", "3", "4")
		token, e := tx.Token()
		if err = errors.Join(err, e); err == nil { // it goes on at the other server
			var next *Tx[[]byte]
			if next, err = at[1].ResumeTx(token); err == nil {
				*tx = *next
			}
		}
		err = errors.Join(err, tx.Update(ctx, "b", func(v []byte, exists bool) ([]byte, error) { return []byte(`["B"]`), nil }), tx.Set("b", []byte(`["c"]`)))
		want("b", "B", "c")
		return errors.Join(err, tx.Delete("a"), tx.Set("a", []byte(`["new"]`)))
	})
	if err != nil {
		t.Fatal(err)
	}
	sees(t, s, "a", "new")
	sees(t, s, "b", "B", "c")
	sees(t, s, "gone")
}

func TestMergeLaws(t *testing.T) {
	for name, merge := range map[string]func(a, b []byte) []byte{"max": MergeMax, "union": MergeUnion} {
		f := func(x [3]int16, s [3]string, arrays bool) bool {
			var values [][]byte
			for i := range x {
				if arrays {
					b, _ := json.Marshal([]any{x[i], s[i], x[0]})
					values = append(values, b, b[:len(b)/(1+i%2)])
				} else {
					values = append(values, fmt.Appendf(nil, "%d", x[i]), []byte(s[i]))
				}
			}
			err := CheckMerge(codec.Bytes(), merge, values...)
			if err != nil {
				t.Log(err)
			}
			return err == nil
		}
		if err := quick.Check(f, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for law, merge := range map[string]func(a, b int) int{
		"merge(merge(a, b), b)": func(a, b int) int { return a + b }, "merge(b, a)": func(a, _ int) int { return a },
		"merge(b, c)": func(a, b int) int {
			if (a-b+12)%3 == 1 { // paper wraps stone
				return a
			}
			return b
		},
	} {
		if err := CheckMerge(codec.JSON[int](), merge, 0, 1, 2); !errors.Is(err, ErrUnlawful) || !strings.Contains(err.Error(), law) {
			t.Errorf("%s: %v", law, err)
		}
	}
	if got := string(MergeMax([]byte("9"), []byte("10"))); got != "10" {
		t.Error(got)
	}
	if got := string(MergeMax([]byte("x"), []byte("10"))); got != "10" {
		t.Error(got)
	}
	if got := string(MergeUnion([]byte(`[2, "a"]`), []byte(`["a",{"b": 1}]`))); got != `["a",2,{"b":1}]` {
		t.Error(got)
	}
	if got := string(MergeUnion([]byte(`apple`), []byte(`["pear"]`))); got != `["apple","pear"]` {
		t.Error(got)
	}
}

// A merge function that breaks its laws, or panics, is told of, and the session goes on.
func TestUnlawfulMerge(t *testing.T) {
	c, _ := sets(t, 1)
	ctx := t.Context()
	for i, v := range []string{`"x"`, `"y"`} { // beside each other, as two servers would leave them
		o := uint32(50 + i)
		if err := errors.Join(c.store.Begin(ctx, o, journal.NewName()), c.store.Persist(ctx, journal.Write{Dot: journal.Dot{Incarnation: o, N: 1}, Stamp: journal.Stamp{Time: 1, Incarnation: o},
			Muts: []journal.Mutation{{Key: "k", Value: []byte(v)}}, Body: []byte{1}}), c.store.Truncate(ctx, o, 1)); err != nil {
			t.Fatal(err)
		}
	}
	open := func(merge func(a, b string) string) *Session[string] {
		sp, err := NewSpace(c.servers[0], SpaceOptions[string]{Codec: codec.JSON[string](), Merge: merge})
		if err != nil {
			t.Fatal(err)
		}
		return sp.Begin()
	}
	c.enter(func(v *View) { v.Newest = 60 }) // the two incarnations are retired
	s := open(func(a, b string) string { return a + b })
	if v, ok, err := s.Get(ctx, "k"); v != "xy" || !ok || !errors.Is(err, ErrUnlawful) {
		t.Errorf("%q %v %v", v, ok, err)
	}
	if items, err := s.GetMany(ctx, "other", "k"); len(items) != 2 || items[1].Value != "xy" || !errors.Is(err, ErrUnlawful) {
		t.Errorf("%v %v", items, err)
	}
	angry := open(func(a, b string) string { panic("no") })
	if _, _, err := angry.Get(ctx, "k"); err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Error(err)
	}
	if err := s.Update(ctx, "k", func(v string, _ bool) (string, error) { return v + "!", nil }); err != nil {
		t.Error(err)
	}
	if v, _, err := s.Get(ctx, "k"); v != "xy!" || err != nil {
		t.Errorf("%q %v", v, err)
	}
}

// The servers keep what the space merges, or neither.
func TestMergeSetting(t *testing.T) {
	c := gather(t, 1, memory.Options{}, nil)
	sp, err := NewSpace(c.servers[0], SpaceOptions[[]byte]{Codec: codec.Bytes(), Merge: MergeUnion})
	if err != nil {
		t.Fatal(err)
	}
	s := sp.Begin()
	for _, err := range []error{s.Set(t.Context(), "k", nil), s.Delete(t.Context(), "k"), func() error { _, _, err := s.Get(context.Background(), "k"); return err }()} {
		if !errors.Is(err, errSetting) {
			t.Error(err)
		}
	}
}

// Sets are read in two ways, of which one is fast: both know the same elements of the same text.
func FuzzElements(f *testing.F) {
	for _, s := range []string{`["a","b"]`, `[]`, `["a", "b"]`, `["<"]`, `["a]"]`, `["a"`, `["]`, `[""]`, `["a\"b"]`, `[1,{"x":[2,"]"]}]`, `x`, "[\"\x00\"]", `["é","a"]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fast, ok := words([]byte(text))
		var slow []json.RawMessage
		err := json.Unmarshal([]byte(text), &slow)
		if ok && (err != nil || len(fast) != len(slow)) {
			t.Fatalf("%q has %q, %v", text, fast, err)
		}
		for i := range fast {
			if string(fast[i]) != string(slow[i]) {
				t.Fatalf("%q has %q, not %q", text, fast[i], slow[i])
			}
		}
		once := MergeUnion([]byte(text), []byte(text))
		if again := MergeUnion(once, []byte(text)); !json.Valid(once) || string(again) != string(once) {
			t.Fatalf("%q becomes %q, and then %q", text, once, again)
		}
		want, err := json.Marshal(json.RawMessage(once))
		if err != nil || string(want) != string(once) {
			t.Fatalf("%q is not as json.Marshal writes it: %q", once, want)
		}
	})
}
