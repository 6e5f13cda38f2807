package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/internal/pgserver"
)

func TestRun(t *testing.T) {
	if pgserver.Bin() == "" {
		if os.Getenv("FRESHET_TEST_REQUIRE") != "" {
			t.Fatal("no PostgreSQL, and FRESHET_TEST_REQUIRE is set")
		}
		t.Skip("no PostgreSQL: install it, or name its programs' directory in FRESHET_TEST_PGBIN")
	}
	pg, err := pgserver.Start(t.Context(), t.TempDir(), "fsync=off")
	if err != nil {
		t.Fatal(err)
	}
	defer pg.Stop()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := run(t.Context(), pg.URL("admin", "postgres"), out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ann may read leave: true, by seven", "ann may read leave: true, from memory", "says so: false", "belongs to the key 'workspace:1'"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	t.Log(string(text))
	if err := run(t.Context(), "", out); err == nil || !strings.Contains(err.Error(), "--store") {
		t.Errorf("without a store: %v", err)
	}
}

func TestMay(t *testing.T) {
	w := &Workspace{Owner: "olga",
		Groups:  map[string][]string{"ann": {"juniors"}, "juniors": {"staff"}, "staff": {"juniors"}}, // in a circle, too
		Folders: map[string]string{"leave": "rules", "rules": "handbook", "a": "b", "b": "a"},
		Grants:  map[string]map[string]bool{"handbook": {"staff read": true}},
	}
	for question, want := range map[string]bool{"ann read leave": true, "ann write leave": false, "bob read leave": false, "olga write leave": true, "ann read a": false} {
		q := strings.Fields(question)
		if w.May(q[0], q[1], q[2]) != want {
			t.Errorf("%s: not %v", question, want)
		}
	}
}
