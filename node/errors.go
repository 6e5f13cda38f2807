package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/store"
)

// errNowhere means that nothing was done: no owner could be reached in time.
var errNowhere = errors.New("TRYAGAIN nothing was written: the keys have no reachable owner at the moment; try again")

// errCrossOwner: transactions, like clusters of Redis, want their keys together.
var errCrossOwner = errors.New("CROSSSLOT the keys belong to different owners; a transaction's keys must have one owner")

// errorText is what a client reads: a code clients know, what happened, and what
// to do next.
func errorText(err error) string {
	switch {
	case errors.Is(err, errCrossOwner):
		return err.Error()
	case errors.Is(err, linear.ErrNotOwner), errors.Is(err, linear.ErrBusy):
		return "TRYAGAIN " + err.Error()
	case errors.Is(err, linear.ErrOutcomeUnknown):
		return "UNKNOWN " + linear.ErrOutcomeUnknown.Error()
	case errors.Is(err, store.ErrUnavailable): // where the store is, and as whom we ask, is not for clients
		return "TRYAGAIN " + store.ErrUnavailable.Error()
	case errors.Is(err, store.ErrFull):
		return "OOM " + err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("TRYAGAIN %v; the time limit was over", err)
	}
	return "ERR " + err.Error()
}
