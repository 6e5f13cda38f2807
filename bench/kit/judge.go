package kit

import (
	"errors"
	"strings"
	"time"

	"github.com/freshet-cache/freshet/check"
)

// Judged checks a history. An operation that is not proven right counts as wrong.
func Judged(parts ...[]check.Op) (checked, wrong int, err error) {
	var ops []check.Op
	for _, p := range parts {
		ops = append(ops, p...)
	}
	wrong, _ = check.Stale(ops)
	if v := check.Linear(ops, time.Minute); v.Finding != check.Linearizable {
		wrong = max(wrong, 1)
		var b strings.Builder
		v.Print(&b)
		err = errors.New(b.String())
	}
	return len(ops), wrong, err
}
