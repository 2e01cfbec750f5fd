package dispatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/run/executor"
	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
	"github.com/bailiwick-dev/bailiwick/internal/worker/launch"
)

// maxFetches is how many sources are fetched at once. Requests for one source wait for
// each other, so that a slow server delays its own.
const maxFetches = 8

// sources says what the sources of the catalog refer to now.
type sources struct {
	*records
	fetches *fetches
}

// fetches admits them.
type fetches struct {
	all chan struct{}

	mu  sync.Mutex
	one map[string]chan struct{} // by Dirs.Fetched
}

func newFetches() *fetches {
	return &fetches{all: make(chan struct{}, maxFetches), one: map[string]chan struct{}{}}
}

// enter waits for the turn of a source.
func (f *fetches) enter(ctx context.Context, source string) (leave func(), err error) {
	f.mu.Lock()
	one, ok := f.one[source]
	if !ok {
		one = make(chan struct{}, 1)
		f.one[source] = one
	}
	f.mu.Unlock()
	for i, c := range []chan struct{}{one, f.all} {
		select {
		case c <- struct{}{}:
		case <-ctx.Done():
			if i > 0 {
				<-one
			}
			return nil, context.Cause(ctx)
		}
	}
	return func() { <-f.all; <-one }, nil
}

// fetch returns the commit that a source by URL refers to now, once it is in the
// state. It uses the network for a caller that may start from the source, before the
// decision is durable: it reads what the decision will name.
func (s *sources) fetch(ctx context.Context, p inforce.Snapshot, src api.Source, commit string) (string, error) {
	leave, err := s.fetches.enter(ctx, s.cfg.Dirs.Fetched(src))
	if err != nil {
		return "", err
	}
	defer leave()
	var secret api.Secret
	value := ""
	if src.Secret != "" {
		if secret, _, err = p.Revision.Secret(src.Secret); err != nil {
			return "", err
		}
		if value, err = s.secret(ctx, secret); err != nil {
			return "", api.Errorf(api.CodeInvalid, "source %q: %w", src.Name, err)
		}
	}
	if err := os.MkdirAll(s.cfg.Dirs.Fetched(src), 0o700); err != nil { // the launcher shows it to the process
		return "", err
	}
	pinned, err := s.cfg.Executor.Fetch(ctx, launch.Order{Revision: p.Revision.Digest(), Source: src.Name, Commit: commit}, secret.Ref, value)
	switch {
	case errors.Is(err, executor.ErrFetch):
		err = api.Errorf(api.CodeInvalid, "source %q: %w", src.Name, err)
	case err != nil: // its process may have been killed
		s.cfg.Sweep()
	}
	return pinned, err
}

// secret returns the value of a secret; empty where only the launcher has values.
func (s *sources) secret(ctx context.Context, secret api.Secret) (string, error) {
	if s.cfg.Secrets == nil {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, secretTime)
	defer cancel()
	value, err := s.cfg.Secrets.Resolve(ctx, secret.Ref)
	if err != nil {
		err = fmt.Errorf("secret %q: %w", secret.Name, err)
	}
	return value, err
}
