package dispatch

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// records reads the stored state of dispatches. It checks no permissions.
type records struct{ cfg Config }

// row returns the row of a dispatch, and whether it exists.
func (s *records) row(ctx context.Context, id api.DispatchID) (r row, ok bool, err error) {
	err = s.cfg.Store.Read(ctx, func(v *store.View) error {
		r, ok, err = load(v, id)
		return err
	})
	return r, ok, err
}

// earlier returns the earlier attempts of a dispatch, oldest first.
func (s *records) earlier(ctx context.Context, id api.DispatchID) (list []api.Dispatch, err error) {
	err = s.cfg.Store.Read(ctx, func(v *store.View) error {
		list, err = attempts(v, id)
		return err
	})
	return list, err
}

// attempt returns an attempt of a dispatch; 0 is the current one.
func (s *records) attempt(ctx context.Context, d api.Dispatch, attempt int) (api.Dispatch, error) {
	if attempt == 0 || attempt == d.Attempt {
		return d, nil
	}
	list, err := s.earlier(ctx, d.ID)
	if err != nil {
		return d, err
	}
	for _, e := range list {
		if e.Attempt == attempt {
			return e, nil
		}
	}
	return d, api.Errorf(api.CodeNotFound, "dispatch %s has no attempt %d: it has %d", d.ID, attempt, d.Attempt)
}

// Bounds of the blobs that are read whole.
const (
	maxManifest = 1 << 20
	// maxQuestion: escaping makes a question longer than the agent wrote it.
	maxQuestion = 6*api.MaxQuestion + 1024
)

// manifest returns a dispatch manifest, verified with the service key that was
// in force when it was signed.
func (s *records) manifest(ctx context.Context, d api.Digest) (m record.Manifest, err error) {
	envelope, err := s.cfg.Blobs.Get(ctx, d, maxManifest)
	if err != nil {
		return m, err
	}
	payload, _, err := s.cfg.Keys.Verify(envelope, seal.Manifest)
	if err != nil {
		return m, err
	}
	return m, canon.DecodeExact(payload, &m)
}

// question returns the question that an attempt ended with, and its digest.
func (s *records) question(ctx context.Context, d *api.Dispatch) (q api.Question, digest api.Digest, err error) {
	if d.Outcome == nil || d.Outcome.Question == nil {
		return q, "", api.Errorf(api.CodeNotFound, "dispatch %s attempt %d has no question", d.ID, d.Attempt)
	}
	digest = d.Outcome.Question.Digest
	b, err := s.cfg.Blobs.Get(ctx, digest, maxQuestion)
	if err != nil {
		return q, digest, err
	}
	return q, digest, canon.Decode(b, &q)
}

// withDetails adds to a record what its row does not have: the question, the
// earlier attempts, and what retention knows.
func (s *records) withDetails(ctx context.Context, d api.Dispatch) (api.Dispatch, error) {
	list, err := s.earlier(ctx, d.ID)
	if err != nil {
		return d, err
	}
	for _, e := range list {
		if e.Attempt >= d.Attempt {
			break
		}
		d.Attempts = append(d.Attempts, api.Attempt{
			Attempt: e.Attempt, State: e.State, Message: e.Message, Manifest: e.Manifest, Result: e.Result, EndedAt: e.EndedAt, Answer: e.Answer,
		})
	}
	if err := s.addRetention(ctx, &d); err != nil || d.Outcome == nil || d.Outcome.Question == nil || removal(d.Removed, api.ClassContent) != nil {
		return d, err
	}
	q, _, err := s.question(ctx, &d)
	d.Question = &q
	return d, err
}

// marks returns what retention knows of a dispatch.
func (s *records) marks(ctx context.Context, id api.DispatchID) (k marks, err error) {
	err = s.cfg.Store.Read(ctx, func(v *store.View) error {
		k, err = loadMarks(v, id)
		return err
	})
	return k, err
}

// addRetention adds to a record what retention knows of it.
func (s *records) addRetention(ctx context.Context, d *api.Dispatch) error {
	k, err := s.marks(ctx, d.ID)
	d.Pinned, d.Removed = k.pin, k.removed
	return err
}

// open opens content of a dispatch, whose record has what was removed.
func (s *records) open(ctx context.Context, d *api.Dispatch, what string, a api.Artifact) (io.ReadCloser, int64, error) {
	if r := removal(d.Removed, api.ClassContent); r != nil {
		return nil, 0, removedError(d.ID, what, r)
	}
	r, err := s.cfg.Blobs.Open(ctx, a.Digest)
	if err != nil {
		return nil, 0, s.explainMissing(ctx, d.ID, what, err)
	}
	return r, a.Size, nil
}

// explainMissing replaces err where content is missing because it has just been
// removed.
func (s *records) explainMissing(ctx context.Context, id api.DispatchID, what string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	k, readErr := s.marks(ctx, id)
	if r := removal(k.removed, api.ClassContent); r != nil {
		return removedError(id, what, r)
	}
	return errors.Join(err, readErr)
}

// removal returns the removal of a class, or nil.
func removal(list []api.Removal, c api.Class) *api.Removal {
	for i := range list {
		if list[i].Class == c {
			return &list[i]
		}
	}
	return nil
}

func removedError(id api.DispatchID, what string, r *api.Removal) error {
	return api.Errorf(api.CodeNotFound, "the %s of dispatch %s was removed at %s by rule %s", what, id, r.At.Format(time.RFC3339), r.Rule).
		WithHint("its digests are in the record, so that a copy can still be checked: bailiwick dispatch show %s -o json", id)
}
