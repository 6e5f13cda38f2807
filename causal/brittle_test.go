package causal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/codec"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/journal"
	"github.com/freshet-cache/freshet/store/memory"
)

// brittle is a codec of strings that cannot write "unwritable", nor read what contains "unreadable".
type brittle struct{ codec.Codec[string] }

var errBrittle = errors.New("the codec gives up")

func (c brittle) Append(b []byte, v string) ([]byte, error) {
	if v == "unwritable" {
		return nil, errBrittle
	}
	return c.Codec.Append(b, v)
}

func (c brittle) Decode(b []byte) (string, error) {
	if strings.Contains(string(b), "unreadable") {
		return "", errBrittle
	}
	return c.Codec.Decode(b)
}

// absent is where a server is sought that has no place in its ring yet.
type absent struct{}

func (absent) Server() (*Server, error)  { return nil, ErrJoining }
func (absent) TokenKey() ([]byte, error) { return nil, ErrJoining }

// larger is a merge function of strings.
func larger(a, b string) string {
	if a == "angry" || b == "angry" {
		panic("no")
	}
	return max(a, b)
}

// brittleSpaces are a space without a merge function and one with, over the same faulty codec. The store does not answer
// while away says so. Both have "odd", a value that cannot be read.
func brittleSpaces(t *testing.T, away *atomic.Bool) map[string]*Space[string] {
	t.Helper()
	out := map[string]*Space[string]{}
	for name, merge := range map[string]func(a, b string) string{"plain": nil, "merged": larger} {
		c := gather(t, 1, memory.Options{Before: func(_ context.Context, c memory.Call) error {
			if away.Load() && c.Op == memory.OpLoad {
				return store.ErrUnavailable
			}
			return nil
		}}, func(o *ServerOptions) {
			if o.Concurrent = merge != nil; o.Concurrent {
				if err := o.Store.(*memory.Journal).KeepSiblings(t.Context(), true); err != nil {
					t.Fatal(err)
				}
			}
		})
		sp, err := NewSpace(c.servers[0], SpaceOptions[string]{Codec: brittle{codec.String()}, Merge: merge, MaxValue: 64})
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(c.store.Begin(t.Context(), 50, journal.NewName()), c.store.Persist(t.Context(), journal.Write{
			Dot: journal.Dot{Incarnation: 50, N: 1}, Stamp: journal.Stamp{Time: 1, Incarnation: 50}, Muts: []journal.Mutation{{Key: "odd", Value: []byte("unreadable")}}, Body: []byte{1},
		}), c.store.Truncate(t.Context(), 50, 1))
		if err != nil {
			t.Fatal(err)
		}
		c.enter(func(v *View) { v.Newest = 60 }) // incarnation 50 is retired
		out[name] = sp
	}
	return out
}

// work is what sessions and transactions do alike.
type work interface {
	Get(ctx context.Context, key string) (string, bool, error)
	GetMany(ctx context.Context, keys ...string) ([]Item[string], error)
	Update(ctx context.Context, key string, f func(string, bool) (string, error)) error
	Set(key, value string) error
	Delete(key string) error
}

// session is a session as work.
type session struct {
	*Session[string]
	ctx context.Context
}

func (s session) Set(key, value string) error { return s.Session.Set(s.ctx, key, value) }
func (s session) Delete(key string) error     { return s.Session.Delete(s.ctx, key) }

var errCaller = errors.New("the caller gives up")

// refusals are operations that cannot be done, and why.
var refusals = []struct {
	what string
	want error
	do   func(ctx context.Context, w work) error
}{
	{"reading no key", ErrKey, func(ctx context.Context, w work) error { _, _, err := w.Get(ctx, ""); return err }},
	{"reading some keys and no key", ErrKey, func(ctx context.Context, w work) error { return many(ctx, w, "k", "") }},
	{"setting no key", ErrKey, func(_ context.Context, w work) error { return w.Set("", "v") }},
	{"deleting no key", ErrKey, func(_ context.Context, w work) error { return w.Delete("") }},
	{"updating no key", ErrKey, func(ctx context.Context, w work) error { return w.Update(ctx, "", to("v", nil)) }},
	{"setting what cannot be written", errBrittle, func(_ context.Context, w work) error { return w.Set("k", "unwritable") }},
	{"updating to what cannot be written", errBrittle, func(ctx context.Context, w work) error { return w.Update(ctx, "k", to("unwritable", nil)) }},
	{"setting what is too large", store.ErrTooLarge, func(_ context.Context, w work) error { return w.Set("k", strings.Repeat("v", 65)) }},
	{"reading what cannot be read", errBrittle, func(ctx context.Context, w work) error { _, _, err := w.Get(ctx, "odd"); return err }},
	{"reading what can be read and what cannot", errBrittle, func(ctx context.Context, w work) error { return many(ctx, w, "k", "odd") }},
	{"updating what cannot be read", errBrittle, func(ctx context.Context, w work) error { return w.Update(ctx, "odd", to("v", nil)) }},
	{"a change that gives up", errCaller, func(ctx context.Context, w work) error { return w.Update(ctx, "k", to("v", errCaller)) }},
	{"reading while the store is away", store.ErrUnavailable, func(ctx context.Context, w work) error { _, _, err := w.Get(ctx, "unread"); return err }},
	{"reading several while the store is away", store.ErrUnavailable, func(ctx context.Context, w work) error { return many(ctx, w, "unread", "too") }},
	{"updating while the store is away", store.ErrUnavailable, func(ctx context.Context, w work) error { return w.Update(ctx, "unread", to("v", nil)) }},
}

func to(v string, err error) func(string, bool) (string, error) {
	return func(string, bool) (string, error) { return v, err }
}

// many reads several keys, of which none may be told if one cannot be.
func many(ctx context.Context, w work, keys ...string) error {
	items, err := w.GetMany(ctx, keys...)
	if items != nil {
		return fmt.Errorf("it is given %v", items)
	}
	return err
}

// What cannot be done is refused by every operation, with the reason, and writes nothing; sessions and transactions do the
// next one.
func TestRefusalsOfEveryOperation(t *testing.T) {
	var away atomic.Bool
	ctx := t.Context()
	for name, sp := range brittleSpaces(t, &away) {
		s := sp.Begin()
		if err := s.Set(ctx, "k", "a"); err != nil {
			t.Fatal(err)
		}
		tx, err := s.BeginTx(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for kind, w := range map[string]work{"session": session{s, ctx}, "transaction": tx} {
			if items, err := w.GetMany(ctx); items != nil || err != nil {
				t.Errorf("%s %s: no keys are %v, %v", name, kind, items, err)
			}
			for _, c := range refusals {
				away.Store(c.want == store.ErrUnavailable)
				if err := c.do(ctx, w); !errors.Is(err, c.want) {
					t.Errorf("%s %s: %s: %v", name, kind, c.what, err)
				}
				away.Store(false)
			}
			if v, ok, err := w.Get(ctx, "k"); v != "a" || !ok || err != nil {
				t.Errorf("%s %s: then k is %q, %v, %v", name, kind, v, ok, err)
			}
		}
		if err := tx.Set("other", "v"); err != nil {
			t.Error(err)
		}
		done, err := tx.Commit(ctx)
		if err != nil {
			t.Fatal(err)
		}
		items, err := done.GetMany(ctx, "k", "other", "unread")
		if err != nil || items[0].Value != "a" || items[1].Value != "v" || items[2].Exists {
			t.Errorf("%s: what was refused is written: %v, %v", name, items, err)
		}
	}
}

// What a merge function gets cannot always be read, and it may panic: then nothing is written, and a transaction and its
// branches stay as they were.
func TestRefusalsOfMerges(t *testing.T) {
	ctx := t.Context()
	sp := brittleSpaces(t, new(atomic.Bool))["merged"]
	s := sp.Begin()
	if err := errors.Join(s.Set(ctx, "k", "b"), s.Set(ctx, "wild", "angry")); err != nil {
		t.Fatal(err)
	}
	begin := func() *Tx[string] {
		tx, err := s.BeginTx(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	tx := begin() // what it is to write itself cannot be read
	if err := tx.Set("k", "unreadable"); err != nil {
		t.Fatal(err)
	}
	_, _, err := tx.Get(ctx, "k")
	_, commit := tx.Commit(ctx)
	for what, err := range map[string]error{"reading": err, "setting again": tx.Set("k", "z"), "the commit": commit} {
		if !errors.Is(err, errBrittle) {
			t.Errorf("%s what cannot be read: %v", what, err)
		}
	}
	tx = begin() // what it is to be merged with cannot be read, or angers the function
	for key, says := range map[string]string{"odd": "gives up", "wild": "panicked"} {
		if err := tx.Set(key, "z"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := tx.Get(ctx, key); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("reading %s: %v", key, err)
		}
		if _, err := tx.Commit(ctx); err == nil {
			t.Error("it commits")
		}
		if err := tx.Delete(key); err != nil {
			t.Fatal(err)
		}
	}
	for what, values := range map[string][2]string{"unreadable here": {"unreadable", "x"}, "unreadable there": {"x", "unreadable"}, "angry": {"angry", "x"}} {
		tx = begin()
		branch := tx.Fork()
		if err := errors.Join(tx.Set("k", values[0]), branch.Set("k", values[1])); err != nil {
			t.Fatal(err)
		}
		if err := tx.Join(branch); err == nil || errors.Is(err, ErrNotBranch) {
			t.Errorf("%s: a branch is joined: %v", what, err)
		}
		if tx.m.Open != 1 || len(tx.m.Buffer) != 1 || string(tx.m.Buffer[0].Value) != values[0] {
			t.Errorf("%s: the transaction is %+v after that", what, tx.m)
		}
	}
	if v, _, err := s.Get(ctx, "k"); v != "b" || err != nil {
		t.Errorf("k is %q, %v", v, err)
	}
}

// Where there is no server, or it is closed, sessions and transactions say so and can be used elsewhere.
func TestWithoutAServer(t *testing.T) {
	ctx := t.Context()
	nowhere, err := NewSpace(absent{}, SpaceOptions[string]{Codec: codec.String()})
	if err != nil {
		t.Fatal(err)
	}
	_, server, sp := alone(t, memory.Options{})
	s := sp.Begin()
	tx, err := s.BeginTx(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Set(ctx, "k", "v"), tx.Set("k", "w")); err != nil {
		t.Fatal(err)
	}
	token, err := tx.Token()
	if err != nil {
		t.Fatal(err)
	}
	check := func(want error, s *Session[string], tx *Tx[string]) {
		t.Helper()
		_, _, get := s.Get(ctx, "k")
		_, _, look := tx.Get(ctx, "k")
		_, commit := tx.Commit(ctx)
		_, begin := s.BeginTx(ctx)
		_, transact := s.Transact(ctx, func(*Tx[string]) error { t.Error("it runs"); return nil })
		for what, err := range map[string]error{"get": get, "set": s.Set(ctx, "k", "v"), "delete": s.Delete(ctx, "k"), "look": look, "commit": commit, "begin": begin, "transact": transact,
			"update": tx.Update(ctx, "k", to("x", nil))} {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
	}
	check(ErrJoining, &Session[string]{nowhere, s.m}, &Tx[string]{nowhere, tx.m})
	for what, err := range map[string]error{
		"a token":            func() error { _, err := (&Session[string]{nowhere, s.m}).Token(); return err }(),
		"a transaction's":    func() error { _, err := (&Tx[string]{nowhere, tx.m}).Token(); return err }(),
		"resuming":           func() error { _, err := nowhere.Resume(newSealer("", nil).seal(nil)); return err }(),
		"a transaction's to": func() error { _, err := nowhere.ResumeTx(newSealer(txsOf(""), nil).seal(nil)); return err }(),
	} {
		if !errors.Is(err, ErrJoining) {
			t.Errorf("%s without a key: %v", what, err)
		}
	}
	if tx, err = sp.ResumeTx(token); err != nil {
		t.Fatal(err)
	}
	if err := server.Close(ctx); err != nil {
		t.Fatal(err)
	}
	check(ErrClosed, s, tx)
	if only, err := (&Tx[string]{sp, &mesh.Tx{Session: *s.m}}).Commit(ctx); err != nil || only == nil {
		t.Errorf("what has only read has nothing to commit: %v", err)
	}
}
