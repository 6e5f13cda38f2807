package explore

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// explored explores a scope, and fails the test with the shortest schedule that breaks a promise. It sees
// at most limit states; a sixteenth of them with -short, FRESHET_STATES if that is set, and all of
// them if FRESHET_EXPLORE is set, as make explore does.
func explored(t *testing.T, limit int, begin func() World) Result {
	t.Helper()
	if testing.Short() {
		limit /= 16
	}
	if n, err := strconv.Atoi(os.Getenv("FRESHET_STATES")); err == nil {
		limit = n
	}
	if os.Getenv("FRESHET_EXPLORE") != "" {
		limit = 1 << 40
	}
	r := Run(limit, begin)
	if r.Violation != nil {
		t.Fatalf("%v\nafter\n  %s", r.Violation, strings.Join(r.Trace, "\n  "))
	}
	t.Log(r)
	return r
}
