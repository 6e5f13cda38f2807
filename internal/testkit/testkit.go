// Package testkit has what the tests of several packages wait with: conditions, and never times.
package testkit

import (
	"bufio"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Limit bounds every wait for a condition. No test depends on its length: it only ends a test that
// fails. Tests that run with a mutant are expected to fail, and do so sooner.
var Limit = func() time.Duration {
	if os.Getenv("FRESHET_MUTANT") != "" {
		return 20 * time.Second
	}
	return time.Minute
}()

// Eventually waits until ok, which it calls every millisecond, and fails the test if that takes
// longer than Limit. The failure shows the caller's line, which says what did not come true.
func Eventually(t testing.TB, ok func() bool) {
	t.Helper()
	if !within(Limit, ok) {
		_, file, line, _ := runtime.Caller(1)
		t.Fatalf("it never came to that: %s", source(file, line))
	}
}

// True is Eventually for conditions that a line of code does not explain. what completes the sentence
// "it does not come true that".
func True(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !within(Limit, ok) {
		t.Fatalf("it does not come true that %s", what)
	}
}

func within(limit time.Duration, ok func() bool) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !ok(); <-tick.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// source is a line of a file, as it stands there; empty if it cannot be read.
func source(file string, line int) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		if n == line {
			return strings.TrimSpace(lines.Text())
		}
	}
	return ""
}
