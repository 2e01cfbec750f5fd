package executor

import (
	"context"
	"errors"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/internal/worker/launch"
)

// ErrFetch marks what a server or a credential is the cause of.
var ErrFetch = errors.New("fetch")

// Fetch has a process of its own fetch a commit of a source by URL into the state, and
// returns the full name of the commit. ref is the reference of the source's secret, and secret
// its value where the service has values. The process ends with ctx, and with the service.
func (l *Local) Fetch(ctx context.Context, o launch.Order, ref, secret string) (string, error) {
	result, err := l.Launcher.Fetch(ctx, o, ref, secret)
	if err == nil && result.Error != "" {
		err = fmt.Errorf("%w %s", ErrFetch, result.Error)
	}
	return result.Commit, err
}
