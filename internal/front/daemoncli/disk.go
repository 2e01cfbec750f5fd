package daemoncli

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/front/server"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// diskCheck is how often a full disk is probed.
const diskCheck = 500 * time.Millisecond

// cannotStart says what to do about a disk without room for a start: there is no
// service that could collect garbage.
func cannotStart(err error) error {
	if short, ok := errors.AsType[*store.DiskError](err); ok && !short.ReadOnly {
		return api.Errorf(api.CodeUnavailable, "%w", err).WithHint("the reserve is used up, and gc needs the service: move files that are not Bailiwick's off this disk")
	}
	return err
}

// awaitRoom returns true when the disk was full or read-only, so that the store
// refuses everything, and can be written again: then the service opens its state
// again, which is what a restart does. It returns false when ctx ends. It leaves
// any other failure of the disk to a person.
func awaitRoom(ctx context.Context, st *store.Store, reserve *store.Reserve, logger *slog.Logger) bool {
	failed := awaitPoison(ctx, st)
	if failed == nil {
		return false
	}
	if !failed.Full() && reserve.Writable() == nil {
		<-ctx.Done()
		return false
	}
	tick := time.NewTicker(diskCheck)
	defer tick.Stop()
	for err := reserve.Ensure(); err != nil; err = reserve.Ensure() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	logger.InfoContext(ctx, "the disk of the state can be written again; opening the state again")
	return true
}

// awaitPoison returns why the store refuses everything, once it does; nil when
// ctx ends.
func awaitPoison(ctx context.Context, st *store.Store) *store.PoisonedError {
	for {
		changed := st.Committed()
		if p, ok := errors.AsType[*store.PoisonedError](st.Poisoned()); ok {
			return p
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// standIn answers on the socket while the state cannot be opened again because of
// err, a lack of room that may pass. It returns true when it is time to try again,
// and false when err is for a person or ctx ends.
func (s *service) standIn(ctx context.Context, f *front, err error) bool {
	if !store.IsFault(err) {
		return false
	}
	s.logger.WarnContext(ctx, "the state cannot be opened again yet", slog.Any("err", err))
	l, err2 := f.listen()
	if err2 != nil {
		return false
	}
	why := func() error {
		if now := s.reserve.Writable(); now != nil {
			return now
		}
		return err
	}
	srv := server.NewHTTP(s.refusing(f.path, why), s.logger)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = srv.Serve(l) // it says that l is closed
	}()
	defer func() {
		// Shutdown would break off a request that it has not read yet: each
		// connection ends with its answer, and new ones wait on the socket.
		srv.SetKeepAlivesEnabled(false)
		_ = l.Close()
		<-ended
	}()
	tick := time.NewTicker(diskCheck)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
		if s.reserve.Ensure() == nil {
			return true
		}
	}
}

// refusing answers on the socket while the state is not open because of why.
func (s *service) refusing(socket string, why func() error) http.Handler {
	return server.StandIn(func() api.ServiceStatus {
		st := s.identity(socket)
		st.StateError = why().Error()
		st.NotReady = "store: " + st.StateError
		return st
	}, func() *api.Error {
		now := why()
		return api.Errorf(api.CodeAuditUnavailable, "nothing is allowed: %w", now).WithHint("%s", store.Advice(now))
	}, s.operates)
}

// operates reports whether an account has an operator key of the first set, which root wrote: later sets are in the state, which is
// not open.
func (s *service) operates(uid uint32) bool {
	root, err := seal.LoadTrustRoot(s.t.Dirs.OperatorRoot())
	if err != nil || !s.t.Dirs.System() {
		return false
	}
	p, err := server.LocalPrincipal(uid, s.t.Login)
	return err == nil && slices.ContainsFunc(root.Keys, func(k seal.Key) bool { return k.Principal == p })
}
