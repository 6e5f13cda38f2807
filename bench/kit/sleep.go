package kit

import (
	"context"
	"time"
)

// Sleep waits for d and reports whether ctx has lasted as long.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
