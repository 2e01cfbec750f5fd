package server

import (
	"context"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
)

// The parts of dispatches that the tests of requests do not need. A method that is not
// below panics.
type (
	noTools    struct{ dispatch.Tools }
	nobody     struct{ dispatch.People }
	noSecrets  struct{ dispatch.Secrets }
	noObserver struct{}
)

func (noTools) ClosedSince(*catalog.Revision, api.Tool) time.Time { return time.Time{} }

func (nobody) Shows(context.Context, api.Principal, api.RunID, api.DispatchID) (bool, error) {
	return false, nil
}

func (noObserver) Accepted(api.Dispatch, time.Duration) {}
func (noObserver) Started(api.Dispatch)                 {}
func (noObserver) Ended(api.Dispatch)                   {}
func (noObserver) Recovered(string)                     {}
