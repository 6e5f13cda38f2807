package testkit

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// broken is a test that only notes what it fails with.
type broken struct {
	testing.TB
	says string
}

// Helper implements testing.TB.
func (b *broken) Helper() {}

// Fatalf implements testing.TB; it ends the goroutine's work by a panic.
func (b *broken) Fatalf(format string, args ...any) {
	b.says = fmt.Sprintf(format, args...)
	panic(b)
}

// A wait ends when the condition holds, or with the line that asked for it.
func TestEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, calls := time.Now(), 0
		Eventually(t, func() bool { calls++; return calls == 5 })
		if took := time.Since(began); took != 4*time.Millisecond {
			t.Errorf("the fifth call came after %v", took)
		}
		fails := func(want string, wait func(b *broken)) {
			b := &broken{TB: t}
			defer func() {
				if r := recover(); r != any(b) || b.says != want {
					t.Errorf("the wait ended with %v, and says %q", r, b.says)
				}
			}()
			wait(b)
		}
		never := func() bool { return false }
		fails("it never came to that: Eventually(b, never) // pigs fly", func(b *broken) {
			Eventually(b, never) // pigs fly
		})
		fails("it does not come true that pigs fly", func(b *broken) { True(b, "pigs fly", never) })
	})
	if source("nowhere.go", 1) != "" {
		t.Error("a file that is not there has a line")
	}
}
