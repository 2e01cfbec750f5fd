package dispatch

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// People keeps what people are asked to approve. *approval.Approvals implements it.
type People interface {
	// Shows reports whether an open request for an approval shows a dispatch of a run to p.
	Shows(ctx context.Context, p api.Principal, run api.RunID, id api.DispatchID) (bool, error)
	// UseTask marks as used, in the transaction that admits its dispatch, the approval of
	// exactly what action says. It reports false without one.
	UseTask(tx *store.Tx, action api.TaskAction) (bool, error)
	// EndDispatch ends the open requests of a dispatch, in the transaction of its end.
	EndDispatch(tx *store.Tx, id api.DispatchID) error
	// ForgetDispatch removes the requests of a dispatch with its evidence.
	ForgetDispatch(tx *store.Tx, id api.DispatchID) error
}
