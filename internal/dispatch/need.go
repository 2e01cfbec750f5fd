package dispatch

import (
	"context"
	"errors"
	"io/fs"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// takeOver finds what the needs of an order stand for, in the records of the
// dispatches that they name, and holds it. The commit is that of the order.
func (s *Service) takeOver(ctx context.Context, a *ask) error {
	if a.request.Source != nil {
		a.commit = a.request.Source.Commit
	}
	for _, n := range a.order.Needs {
		found, err := s.product(ctx, a, n)
		if err != nil {
			return err
		}
		a.needs = append(a.needs, record.Need{
			Name: n.Name, Task: n.Task, Dispatch: n.Dispatch, Kind: n.Kind, Path: n.Path, Digest: found.Digest, Size: found.Size,
		})
	}
	return nil
}

// product returns what one need stands for. Of a dispatch of another principal,
// or of no run, or of another task, it says what it says of one that is not
// there.
func (s *Service) product(ctx context.Context, a *ask, n Need) (api.Artifact, error) {
	r, ok, err := s.row(ctx, n.Dispatch)
	if err != nil {
		return api.Artifact{}, err
	}
	d := &r.record
	if !ok || d.Principal != a.principal || d.Task != n.Task || d.State != api.EventFinished || d.Outcome == nil {
		return api.Artifact{}, api.Errorf(api.CodeNotFound, "need %q of task %s: task %s has no finished dispatch %s in a run of %s", n.Name, a.task, n.Task, n.Dispatch, a.principal)
	}
	if err := s.kept(ctx, d); err != nil {
		return api.Artifact{}, err
	}
	if gone := removed(d, api.ClassContent); gone != nil {
		return api.Artifact{}, removedError(d.ID, n.words(), gone)
	}
	found, ok := record.Product(d.Outcome, n.Kind, n.Path)
	if !ok {
		return found, api.Errorf(api.CodeNotFound, "need %q of task %s: task %s is finished and left no %s", n.Name, a.task, n.Task, n.words()).
			WithHint("see what it left: bailiwick dispatch show %s", d.ID)
	}
	if n.Kind == record.NeedPatch && found.Size == 0 { // the empty patch of a dispatch that changed nothing is not stored
		if _, err := s.cfg.Blobs.Put(ctx, nil); err != nil {
			return found, unstorable(err)
		}
	}
	size, err := s.cfg.Blobs.Claim(ctx, found.Digest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return found, s.missing(ctx, d.ID, n.words(), err)
	case err == nil && size != found.Size:
		err = api.Errorf(api.CodeIntegrity, "need %q of task %s: the %s of dispatch %s has %d bytes, its result says %d", n.Name, a.task, n.words(), d.ID, size, found.Size)
	}
	return found, err
}

// words says what a need is about.
func (n Need) words() string {
	switch n.Kind {
	case record.NeedOutput:
		return "output " + n.Path
	case record.NeedResult:
		return "structured result"
	}
	return "patch"
}
