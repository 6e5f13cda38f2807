package eventlog

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/operating.md lists every event with its level and fields, and no other.
func TestDocumentation(t *testing.T) {
	b, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	row := regexp.MustCompile(`(?m)^\| (info|warn|error|fatal) \| ([^|]+) \| ([^|]*) \|`)
	for _, m := range row.FindAllStringSubmatch(string(b), -1) {
		for _, name := range strings.Split(m[2], ",") {
			name = strings.Trim(name, " `")
			listed[name] = true
			k := catalogue[name]
			if k == nil {
				t.Errorf("the event %s is listed, and there is none", name)
				continue
			}
			level := map[string]int{"info": 0, "warn": 4, "error": 8, "fatal": 12}[m[1]]
			if int(k.Level) != level {
				t.Errorf("%s has the level %v, not %s", name, k.Level, m[1])
			}
			words := regexp.MustCompile(`[a-z_]+`).FindAllString(m[3], -1)
			for _, f := range k.Fields {
				if !slices.Contains(words, f) {
					t.Errorf("the field %s of %s is not listed", f, name)
				}
			}
		}
	}
	for _, name := range Names() {
		if !listed[name] {
			t.Errorf("the event %s is not listed", name)
		}
	}
}
