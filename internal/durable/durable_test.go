package durable

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "state")
	if err := os.WriteFile(name+".new", []byte("what a crash left behind, longer than what follows"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"old", "newer", ""} {
		if err := WriteFile(name, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%d files are left", len(files))
	}
	if err := WriteFile(filepath.Join(dir, "nowhere", "state"), nil); err == nil {
		t.Error("a folder that does not exist was written to")
	}
}
