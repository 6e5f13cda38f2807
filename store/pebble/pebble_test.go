package pebble

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/storetest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("FRESHET_TEST_WRITER"); dir != "" {
		writeUntilKilled(dir)
	}
	// An Open that fails leaves this one behind, in pebble.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/cockroachdb/pebble/v2/vfs.(*diskHealthCheckingFS).startTickerLocked.func1"))
}

func open(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Store { return open(t, t.TempDir(), Options{}) })
}

func set(key, value string) []store.Mutation {
	return []store.Mutation{{Key: key, Value: []byte(value)}}
}

func TestReopeningKeepsRowsVersionsAndTablets(t *testing.T) {
	dir := t.TempDir()
	var last store.Version
	for i := range 3 {
		s := open(t, dir, Options{})
		if i > 0 {
			if r, err := s.Load(t.Context(), "k"); err != nil || string(r.Value) != fmt.Sprint(i-1) || r.Guard != (store.Token{}) {
				t.Fatalf("after reopening: %+v, %v", r, err)
			}
			if p, _ := s.Splits(t.Context(), "", ""); len(p) != 1 || p[0] != "m" {
				t.Fatalf("tablets after reopening: %q", p)
			}
		}
		st, err := s.Commit(t.Context(), store.ID{1}, set("k", fmt.Sprint(i)))
		if err != nil || st[0].Version <= last {
			t.Fatalf("version %v after %d, %v", st, last, err)
		}
		last = st[0].Version
		if err := errors.Join(s.Split(t.Context(), "m"), s.SetGuard(t.Context(), "", "m", store.Token{1}), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOtherDirectoriesAreRefusedAndLeftAlone(t *testing.T) {
	write := func(name, text string) func(string) {
		return func(dir string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	ours := func(then func(dir string)) func(string) {
		return func(dir string) {
			s := open(t, dir, Options{})
			if _, err := s.Commit(t.Context(), store.ID{1}, set("k", "v")); err != nil {
				t.Fatal(err)
			}
			s.Close()
			then(dir)
		}
	}
	manifest := func(change func(b []byte) []byte) func(string) {
		return func(dir string) {
			all, _ := filepath.Glob(filepath.Join(dir, dbDir, "MANIFEST-*"))
			for _, name := range all {
				b, _ := os.ReadFile(name)
				_ = os.WriteFile(name, change(b), 0o600)
			}
		}
	}
	for name, c := range map[string]struct {
		make func(dir string)
		want error
	}{
		"foreign":           {write("notes.txt", "mine"), ErrForeign},
		"newer":             {ours(write(markerFile, "freshet store 2\n")), ErrNewer},
		"marker damaged":    {ours(write(markerFile, "fresh")), ErrDamaged},
		"manifest cut":      {ours(manifest(func(b []byte) []byte { return b[:len(b)/3] })), ErrDamaged},
		"manifest garbage":  {ours(manifest(func(b []byte) []byte { return bytes.Repeat([]byte{0xff}, len(b)) })), ErrDamaged},
		"in use":            {func(dir string) { open(t, dir, Options{}) }, ErrLocked},
		"crash at creation": {write(markerFile+".new", "fre"), nil},
		"crash, and a file": {func(dir string) { write(markerFile+".new", "fre")(dir); write("notes.txt", "mine")(dir) }, ErrForeign},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.make(dir)
			s, err := Open(dir, Options{})
			if s != nil {
				s.Close()
			}
			if !errors.Is(err, c.want) || c.want != nil && !strings.Contains(err.Error(), dir) {
				t.Fatalf("opening ended with %v, want %v", err, c.want)
			}
		})
	}
}

func TestAFullDiskRefusesWritesAndServesReads(t *testing.T) {
	var free atomic.Uint64
	free.Store(1 << 40)
	s := open(t, t.TempDir(), Options{MinFree: 1 << 20, Free: func(string) (uint64, error) { return free.Load(), nil }})
	if _, err := s.Commit(t.Context(), store.ID{1}, set("k", "v")); err != nil {
		t.Fatal(err)
	}
	free.Store(1 << 10)
	var err error
	for err == nil { // the check is not made for every write
		_, err = s.Commit(t.Context(), store.ID{2}, set("other", strings.Repeat("x", 64<<10)))
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatal(err)
	}
	if r, err := s.Load(t.Context(), "k"); err != nil || string(r.Value) != "v" {
		t.Fatalf("a read of a full store: %+v, %v", r, err)
	}
	if _, err := s.Commit(t.Context(), store.ID{4}, []store.Mutation{{Key: "other", Delete: true}}); !errors.Is(err, store.ErrFull) {
		t.Fatalf("a delete beyond the reserve: %v", err)
	}
	free.Store(1 << 19) // less than is kept free, and more than the reserve of deletes
	for err = store.ErrFull; errors.Is(err, store.ErrFull); {
		_, err = s.Commit(t.Context(), store.ID{5}, []store.Mutation{{Key: "other", Delete: true}})
	}
	if err != nil {
		t.Fatalf("a delete, which makes room: %v", err)
	}
	if _, err := s.Commit(t.Context(), store.ID{6}, set("k", "w")); !errors.Is(err, store.ErrFull) {
		t.Fatalf("a write while only deletes are taken: %v", err)
	}
	free.Store(1 << 40)
	for err = store.ErrFull; errors.Is(err, store.ErrFull); {
		_, err = s.Commit(t.Context(), store.ID{3}, set("k", "w"))
	}
	if err != nil {
		t.Fatalf("after space was freed: %v", err)
	}
}

func TestLimits(t *testing.T) {
	s := open(t, t.TempDir(), Options{MaxKey: 4, MaxValue: 8})
	for _, m := range []store.Mutation{{Key: ""}, {Key: "12345"}, {Key: "k", Value: make([]byte, 9)}} {
		if _, err := s.Commit(t.Context(), store.ID{1}, []store.Mutation{m}); !errors.Is(err, store.ErrTooLarge) {
			t.Errorf("key %q, value of %d: %v", m.Key, len(m.Value), err)
		}
	}
	if _, err := s.Commit(t.Context(), store.ID{1}, []store.Mutation{{Key: "1234", Value: make([]byte, 8)}}); err != nil {
		t.Error(err)
	}
}

func TestSweepForgetsAndTheFloorRises(t *testing.T) {
	s := open(t, t.TempDir(), Options{Grace: time.Nanosecond, Sweep: time.Hour})
	ctx := t.Context()
	if _, err := s.Commit(ctx, store.ID{1}, set("gone", "v")); err != nil {
		t.Fatal(err)
	}
	st, err := s.Commit(ctx, store.ID{2}, []store.Mutation{{Key: "gone", Delete: true}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx, store.ID{3}, []store.Mutation{{Key: "back", Delete: true}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx, store.ID{4}, set("back", "v")); err != nil {
		t.Fatal(err)
	}
	if err := s.sweep(ctx); err != nil {
		t.Fatal(err)
	}
	r, err := s.Load(ctx, "gone")
	if err != nil || r.Exists || r.Writer != (store.ID{}) || r.Version <= st[0].Version {
		t.Fatalf("a swept key is %+v, %v; its delete had version %d", r, err, st[0].Version)
	}
	if r, err := s.Load(ctx, "back"); err != nil || string(r.Value) != "v" {
		t.Fatalf("a key written after its delete was swept: %+v, %v", r, err)
	}
	if st, err := s.Commit(ctx, store.ID{5}, set("gone", "v")); err != nil || st[0].Version <= r.Version {
		t.Fatalf("version %v follows absence of %d, %v", st, r.Version, err)
	}
}

func TestTabletsGrowApart(t *testing.T) {
	s := open(t, t.TempDir(), Options{TabletBytes: 1 << 16, NoSync: true})
	for i := range 400 {
		v := make([]byte, 1024)
		for j := range v {
			v[j] = byte(rand.Uint32())
		}
		if _, err := s.Commit(t.Context(), store.ID{1}, set(fmt.Sprintf("k%04d", i), string(v))); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.db.Flush(), s.grow(t.Context())); err != nil {
		t.Fatal(err)
	}
	if p, _ := s.Splits(t.Context(), "", ""); len(p) == 0 || p[0] < "k0100" || p[0] > "k0300" {
		t.Fatalf("400 KiB in tablets of 64 KiB have the boundaries %q", p)
	}
}

// writeUntilKilled writes for ever, and says on standard output what was
// acknowledged: version, and the number that all keys of the batch now hold.
func writeUntilKilled(dir string) {
	s, err := Open(dir, Options{})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	var mu sync.Mutex
	for w := range 6 {
		go func() {
			for i := 1; ; i++ {
				v := []byte(fmt.Sprint(i))
				muts := []store.Mutation{{Key: fmt.Sprintf("w%d.a", w), Value: v}, {Key: fmt.Sprintf("w%d.b", w), Value: v, TTL: time.Hour}}
				if i%5 == 0 {
					muts[0] = store.Mutation{Key: muts[0].Key, Delete: true}
				}
				st, err := s.Commit(context.Background(), store.ID{byte(w), 1, byte(i)}, muts)
				if err != nil {
					fmt.Println("error", err)
					os.Exit(1)
				}
				mu.Lock()
				fmt.Printf("ack %d %d %d\n", w, i, st[1].Version)
				mu.Unlock()
			}
		}()
	}
	select {}
}

func TestNothingAcknowledgedIsLostToSIGKILL(t *testing.T) {
	dir, seed := t.TempDir(), uint64(7)
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	acked := map[int]int{}
	var highest store.Version
	for round := range 6 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "FRESHET_TEST_WRITER="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		clear(acked) // every TTL counts from 1
		left := 50 + r.IntN(400)
		for sc := bufio.NewScanner(out); sc.Scan(); left-- {
			var w, i int
			var v store.Version
			if _, err := fmt.Sscanf(sc.Text(), "ack %d %d %d", &w, &i, &v); err != nil {
				t.Fatalf("the writer said %q", sc.Text())
			}
			acked[w] = max(acked[w], i)
			highest = max(highest, v)
			if left == 0 {
				_ = cmd.Process.Kill() // what it said before is read to the end
			}
		}
		_ = cmd.Wait()
		s := open(t, dir, Options{})
		for w, i := range acked {
			a, err1 := s.Load(t.Context(), fmt.Sprintf("w%d.a", w))
			b, err2 := s.Load(t.Context(), fmt.Sprintf("w%d.b", w))
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			var n int
			fmt.Sscan(string(b.Value), &n)
			if n != i && n != i+1 { // one more may have been committed and not said
				t.Fatalf("round %d: writer %d was told of %d, the store has %d", round, w, i, n)
			}
			if deleted := n%5 == 0; a.Exists == deleted || a.Exists && string(a.Value) != string(b.Value) || a.Writer != b.Writer {
				t.Fatalf("round %d: half a batch: %+v beside %+v", round, a, b)
			}
		}
		st, err := s.Commit(t.Context(), store.ID{9}, set("k", "v"))
		if err != nil || st[0].Version <= highest {
			t.Fatalf("round %d: version %v after %d, %v", round, st, highest, err)
		}
		s.Close()
	}
}

// FuzzRow: no bytes make decoding panic, and what it accepts has one meaning.
func FuzzRow(f *testing.F) {
	f.Add(row{exists: true, version: 7, writer: store.ID{1}, at: 9, value: []byte("v")}.append(nil))
	f.Add(appendList(nil, []string{"a", "b"}))
	f.Add(binary.BigEndian.AppendUint64(nil, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decodeRow("k", b); err == nil && !bytes.Equal(r.append(nil), b) {
			t.Fatalf("%x decodes to %+v, which encodes to something else", b, r)
		}
		if list, ok := decodeList(b); ok && len(b) > 0 && len(list) > 0 {
			if again, ok := decodeList(appendList(nil, list)); !ok || len(again) != len(list) {
				t.Fatalf("%x does not survive encoding", b)
			}
		}
	})
}

// BenchmarkGuards compares writes that pass their guard with the same writes
// that ask for none, in turns.
func BenchmarkGuards(b *testing.B) {
	for name, opt := range map[string]Options{"synced": {}, "unsynced": {NoSync: true}} {
		b.Run(name, func(b *testing.B) {
			s := open(b, b.TempDir(), opt)
			if err := s.SetGuard(b.Context(), "", "", store.Token{1}); err != nil {
				b.Fatal(err)
			}
			unguarded := func(muts []store.Mutation) error {
				defer s.lock(muts)()
				_, err := s.commit(store.ID{1}, muts)
				return err
			}
			value := make([]byte, 230)
			var took [2][]time.Duration
			n := 0
			for b.Loop() {
				for turn := range 2 {
					guarded := (turn + n) % 2
					muts := []store.Mutation{{Key: fmt.Sprintf("%07d", n%100_000), Value: value, Guard: store.Token{1}}}
					began := time.Now()
					var err error
					if guarded == 1 {
						_, err = s.Commit(b.Context(), store.ID{1}, muts)
					} else {
						err = unguarded(muts)
					}
					if err != nil {
						b.Fatal(err)
					}
					took[guarded] = append(took[guarded], time.Since(began))
				}
				n++
			}
			slices.Sort(took[0])
			slices.Sort(took[1])
			b.ReportMetric(float64(took[1][n/2])/float64(took[0][n/2]), "guarded/unguarded")
			b.ReportMetric(float64(took[1][n/2]), "ns/guarded")
		})
	}
}
