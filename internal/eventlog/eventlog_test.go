package eventlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func logger(t *testing.T, opt Options) (*slog.Logger, *Handler, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	opt.Out, opt.Node = &out, "n1"
	h, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	h.SetCluster("shop")
	return slog.New(h), h, &out
}

func lines(b *bytes.Buffer) []string {
	s := strings.TrimSuffix(b.String(), "\n")
	b.Reset()
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}

// Every line says which event it is, of which node and which cluster, in both formats.
func TestEveryLineHasEventNodeAndCluster(t *testing.T) {
	l, h, out := logger(t, Options{Format: "json"})
	NodeLost.Log(l, "n2 is lost", "member", "n2", "slices", 8, "writable_at", "10:02:21")
	l.Warn("something else", "err", "broken")
	l.With("node", "n3").Info("of another node")
	for i, want := range []map[string]any{
		{"event": "node_lost", "node": "n1", "level": "WARN", "slices": 8.0, "member": "n2", "writable_at": "10:02:21"},
		{"event": "message", "node": "n1", "err": "broken"},
		{"event": "message", "node": "n3"},
	} {
		var got map[string]any
		line := strings.SplitAfter(out.String(), "\n")[i]
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err, line)
		}
		want["cluster"] = "shop"
		for k, v := range want {
			if got[k] != v {
				t.Errorf("%s: %s is %v, want %v", line, k, got[k], v)
			}
		}
		if strings.Count(line, `"node"`) != 1 {
			t.Errorf("%s names several nodes", line)
		}
	}
	out.Reset()
	if err := h.SetFormat("text"); err != nil {
		t.Fatal(err)
	}
	SteppedAside.Log(l, "a rule was broken", "rule", "R3")
	if s := out.String(); !strings.Contains(s, "level=FATAL") || !strings.Contains(s, "event=stepped_aside node=n1 cluster=shop rule=R3") {
		t.Error(s)
	}
}

// Level and format change while the log is in use; what is not known is refused and
// changes nothing.
func TestLevelAndFormatChange(t *testing.T) {
	l, h, out := logger(t, Options{Level: "warn"})
	l.Info("quiet")
	if got := lines(out); got != nil {
		t.Error(got)
	}
	if err := h.SetLevel("debug"); err != nil || h.Level() != "debug" {
		t.Error(err, h.Level())
	}
	l.Debug("loud")
	if got := lines(out); len(got) != 1 {
		t.Error(got)
	}
	for _, err := range []error{h.SetLevel("loud"), h.SetFormat("xml")} {
		if err == nil || !strings.Contains(err.Error(), "use ") {
			t.Error(err)
		}
	}
	if h.Level() != "debug" || h.Format() != "text" {
		t.Error(h.Level(), h.Format())
	}
	if _, err := New(Options{Level: "nothing"}); err == nil {
		t.Error("a level that is none was taken")
	}
}

// What repeats takes one line a minute, with the number of those left out; the last
// count comes though nothing follows it. Subjects are counted apart.
func TestRepeatsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, h, out := logger(t, Options{})
		for range 1000 {
			StoreSlow.Log(l, "the store is slow", "request", "load", "ms", 1200)
			time.Sleep(10 * time.Millisecond)
		}
		StoreSlow.Log(l, "the store is slow", "request", "commit", "ms", 1200)
		if got := lines(out); len(got) != 2 {
			t.Fatalf("%d lines for two subjects: %v", len(got), got)
		}
		time.Sleep(time.Minute)
		h.Sweep(time.Now())
		if got := lines(out); len(got) != 1 || !strings.Contains(got[0], "count=999") || !strings.Contains(got[0], "request=load") {
			t.Fatal(got)
		}
		StoreSlow.Log(l, "the store is slow", "request", "load", "ms", 1300)
		if got := lines(out); len(got) != 0 {
			t.Fatal("a minute has not passed since the last line", got)
		}
		time.Sleep(3 * time.Minute)
		h.Sweep(time.Now())
		h.Sweep(time.Now().Add(2 * time.Minute))
		if got := lines(out); len(got) != 1 || !strings.Contains(got[0], "count=1") {
			t.Fatal(got)
		}
		StoreSlow.Log(l, "the store is slow", "request", "load", "ms", 1300)
		if got := lines(out); len(got) != 1 || strings.Contains(got[0], "count") {
			t.Fatal(got)
		}
	})
}

// Any number of subjects takes a bounded memory, and a bounded number of lines.
func TestSubjectsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, h, out := logger(t, Options{})
		for i := range 100_000 {
			ClientCut.Log(l, "a client was cut", "why", fmt.Sprint("reason ", i))
			l.Error(fmt.Sprint("message ", i))
		}
		if n := len(lines(out)); n > 2*maxSubjects {
			t.Errorf("%d lines", n)
		}
		if n := len(h.subjects); n > maxSubjects+2 {
			t.Errorf("%d subjects are remembered", n)
		}
	})
}
