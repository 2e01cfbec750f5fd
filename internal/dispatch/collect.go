package dispatch

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/blob"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// maxResult bounds a signed result document.
const maxResult = 16 << 20

// outcome is how a dispatch ended.
type outcome struct {
	event    api.Event
	reason   api.Reason
	message  string
	digest   api.Digest // of the signed result; empty when there is none
	summary  *api.ResultSummary
	cancelBy api.Principal
	wait     time.Duration // for an answer, where there is a question
}

// collect reads what a worker left, stores it, and makes the end durable. It
// is the only way in which a dispatch that was started ends.
func (s *Service) collect(ctx context.Context, r row) error {
	ctx = context.WithoutCancel(ctx)
	failpoint.Hit(failpoint.CollectBegin, string(r.record.ID))
	ctx, release := s.cfg.Blobs.Protect(ctx)
	defer release() // the row refers to what is stored by then
	for {
		// A cancel may have been recorded while the worker lived.
		latest, ok, err := s.row(ctx, r.record.ID)
		if err != nil || !ok {
			return errors.Join(err, fmt.Errorf("dispatch %s: no record", r.record.ID))
		}
		o, err := s.read(ctx, latest)
		if err != nil {
			return err
		}
		by := latest.record.CancelBy
		err = s.end(ctx, latest, o, func(tx *store.Tx, r row) error {
			now, ok, err := load(tx, r.record.ID)
			if err == nil && ok && now.record.CancelBy != by {
				err = errCancelled
			}
			if err != nil {
				return err
			}
			return update(tx, r)
		})
		if errors.Is(err, errCancelled) {
			continue // and it cannot be cancelled again
		}
		if err != nil || o.event != api.EventNeedsInput || by == "" {
			return err
		}
		return s.endCancelled(ctx, r.record.ID)
	}
}

// errCancelled says that a cancel was recorded after the row was read.
var errCancelled = errors.New("the dispatch was cancelled meanwhile")

// endCancelled ends a dispatch that asked something when it had been cancelled
// already.
func (s *Service) endCancelled(ctx context.Context, id api.DispatchID) error {
	r, ok, err := s.row(ctx, id)
	if err != nil || !ok || r.record.State != api.EventNeedsInput {
		return err
	}
	return s.endWaiting(ctx, r, cancelled(r.record))
}

// read turns the directory of an attempt into the truth about it.
func (s *Service) read(ctx context.Context, r row) (outcome, error) {
	dir := s.attemptDir(r)
	envelope, err := blob.ReadBounded(filepath.Join(dir, record.WorkResult), maxResult)
	if errors.Is(err, fs.ErrNotExist) {
		return s.lost(ctx, r, dir)
	}
	if err != nil {
		return outcome{}, err
	}
	fence, err := s.fence(ctx, r)
	if api.CodeOf(err) == api.CodeIntegrity { // without it nothing that the worker brings can be held against anything
		return outcome{event: api.EventFailed, reason: api.ReasonIntegrity, message: "the manifest: " + err.Error()}, nil
	}
	if err != nil {
		return outcome{}, err
	}
	result, err := open(r, envelope, fence)
	if err != nil {
		return outcome{event: api.EventFailed, reason: api.ReasonIntegrity, message: "the worker's result: " + err.Error()}, nil //nolint:nilerr // that is the outcome
	}
	if err := s.takeBlobs(ctx, dir, result.Summary); err != nil {
		var bad *api.Error
		if errors.As(err, &bad) && bad.Code == api.CodeIntegrity {
			return outcome{event: api.EventFailed, reason: api.ReasonIntegrity, message: bad.Message}, nil
		}
		return outcome{}, err
	}
	digest, err := s.cfg.Blobs.Put(ctx, envelope)
	failpoint.Hit(failpoint.CollectResult, string(r.record.ID))
	o := outcome{event: result.Outcome, reason: result.Reason, message: result.Message, digest: digest, summary: &result.Summary}
	switch o.event { //nolint:exhaustive // the others need nothing more
	case api.EventCancelled:
		o.cancelBy = r.record.CancelBy
	case api.EventNeedsInput:
		m, manifestErr := s.manifest(ctx, r.record.Manifest)
		o.wait, err = time.Duration(m.Limits.Answer), errors.Join(err, manifestErr)
	}
	return o, err
}

// lost is the end of a dispatch whose worker left no result. Its log is kept.
func (s *Service) lost(ctx context.Context, r row, dir string) (outcome, error) {
	s.work.Go(s.orphans)
	o := outcome{event: api.EventFailed, reason: api.ReasonLost, message: strings.TrimSpace("the worker died without a result " + s.lastWords(dir))}
	if r.record.CancelBy != "" {
		o = outcome{event: api.EventCancelled, cancelBy: r.record.CancelBy, message: "the worker left no result"}
	}
	parts, err := logParts(filepath.Join(dir, record.WorkLog))
	if err != nil || len(parts) == 0 {
		return o, err
	}
	o.summary = &api.ResultSummary{Partial: true}
	for _, p := range parts {
		if p.Digest, p.Size, err = s.takeFile(ctx, filepath.Join(dir, record.WorkLog, record.LogFile(p.Offset))); err != nil {
			return o, err
		}
		o.summary.Log = append(o.summary.Log, p)
		o.summary.LogBytes, o.summary.LogKept = p.Offset+p.Size, o.summary.LogKept+p.Size
	}
	return o, nil
}

// orphans removes what a worker's jail leaves when nobody closes it.
func (s *Service) orphans() {
	if left := s.cfg.Sweep(); left > 0 {
		s.cfg.Logger.WarnContext(s.life, "control groups of killed workers cannot be removed; the next jail tries again", slog.Int("left", left))
	}
}

// takeFile stores a file of a worker's directory.
func (s *Service) takeFile(ctx context.Context, path string) (api.Digest, int64, error) {
	f, err := os.Open(path) //nolint:gosec // G304: our own directory, and a parsed digest or offset
	if err != nil {
		return "", 0, err
	}
	digest, size, err := s.cfg.Blobs.PutStream(ctx, f)
	failpoint.Hit(failpoint.CollectBlob, path)
	return digest, size, errors.Join(err, f.Close())
}

// lastWords is what the worker itself printed, which is nothing unless it
// went wrong.
func (s *Service) lastWords(dir string) string {
	b, err := blob.ReadBounded(filepath.Join(dir, record.WorkErrors), 1<<20)
	if err != nil || len(b) == 0 {
		return ""
	}
	return string(b[max(0, len(b)-1000):])
}

// fence is the number of the lease under which an attempt runs; 0 where it is
// no task's.
func (s *Service) fence(ctx context.Context, r row) (uint64, error) {
	if r.record.Run == "" {
		return 0, nil
	}
	m, err := s.manifest(ctx, r.record.Manifest)
	return m.Fence, err
}

// open verifies a result: signed with the key that the log binds to this
// attempt, about this attempt, and made under its lease.
func open(r row, envelope []byte, fence uint64) (record.Result, error) {
	var result record.Result
	raw, err := base64.StdEncoding.DecodeString(r.key)
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return result, errors.New("no key of its worker is bound in the log")
	}
	root := seal.RootOf(seal.Key{ID: seal.IDOf(raw), Public: raw})
	payload, _, err := seal.Verify(envelope, seal.Result, root)
	if err != nil {
		return result, err
	}
	if err := canon.DecodeExact(payload, &result); err != nil {
		return result, err
	}
	return result, result.Check(r.record.ID, r.record.Attempt, r.record.Manifest, fence)
}

// takeBlobs stores what the result names, and the log. Content that is not
// what its name says is an integrity error.
func (s *Service) takeBlobs(ctx context.Context, dir string, sum api.ResultSummary) error {
	want := map[string]api.Digest{}
	for _, p := range sum.Log {
		want[filepath.Join(record.WorkLog, record.LogFile(p.Offset))] = p.Digest
	}
	out := func(a *api.Artifact) { want[filepath.Join(record.WorkOut, a.Digest.Hex())] = a.Digest }
	for i := range sum.Outputs {
		out(&sum.Outputs[i])
	}
	for _, a := range []*api.Artifact{sum.Patch, sum.Question} {
		if a != nil {
			out(a)
		}
	}
	for name, digest := range want {
		got, _, err := s.takeFile(ctx, filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return api.Errorf(api.CodeIntegrity, "captured content %s: %w", digest.Short(), err)
		}
		if err != nil {
			return err
		}
		if got != digest {
			return api.Errorf(api.CodeIntegrity, "captured content: digest %s, the result says %s", got.Short(), digest.Short())
		}
	}
	return nil
}

// end makes the end of an attempt durable, once; save stores the row.
func (s *Service) end(ctx context.Context, r row, o outcome, save func(*store.Tx, row) error) error {
	now := s.cfg.Now().UTC()
	rec := &r.record
	rec.State, rec.Reason, rec.Message, rec.EndedAt, rec.Result, rec.Outcome = o.event, o.reason, o.message, &now, o.digest, o.summary
	if o.event != api.EventNeedsInput { // that is not its end, which a cancel may have asked for
		if rec.CancelBy = o.cancelBy; o.cancelBy == "" {
			rec.CancelReason = ""
		}
	} else {
		by := now.Add(o.wait)
		rec.AnswerBy = &by
	}
	detail, refs := record.EndOf(o.summary)
	detail.By, detail.Message, detail.Reason, detail.Millis = string(o.cancelBy), o.message, string(o.reason), now.Sub(rec.Since()).Milliseconds()
	entry := fact(record.KindOf(o.event), r, detail)
	entry.Refs = refs
	refs[record.RefManifest] = rec.Manifest
	if o.digest != "" {
		refs[record.RefResult] = o.digest
	}
	failpoint.Hit(failpoint.EndCommit, string(rec.ID))
	_, err := s.cfg.Ledger.Record(ctx, entry, func(tx *store.Tx) error {
		if err := save(tx, r); err != nil {
			return err
		}
		return owe(tx, rec)
	})
	failpoint.Hit(failpoint.EndCommitted, string(rec.ID))
	if errors.Is(err, errEnded) {
		return nil
	}
	if err != nil {
		return err
	}
	s.ended(*rec)
	if rec.AnswerBy == nil {
		nudge(s.overs)
		err := s.removeWork(rec.ID)
		failpoint.Hit(failpoint.EndRemoved, string(rec.ID))
		return err
	}
	nudge(s.asked)
	// The next attempt may begin at once, beside this one's directory.
	return os.RemoveAll(s.attemptDir(r))
}

// nudge wakes whoever listens to c, now or when it looks next.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// settle ends a dispatch that no worker has ever had.
func (s *Service) settle(r row, o outcome) {
	if err := s.end(context.WithoutCancel(s.life), r, o, update); err != nil {
		s.logOf(&r.record).ErrorContext(s.life, "a dispatch could not be recorded; the next start tries again", slog.Any("err", err))
	}
}

// removeWork removes the directories of a dispatch whose end is durable.
func (s *Service) removeWork(id api.DispatchID) error {
	return os.RemoveAll(filepath.Dir(s.cfg.Dirs.Dispatch(id, 1)))
}

// sweep removes what a crash between a durable end and removeWork left.
func (s *Service) sweep(ctx context.Context) error {
	entries, err := os.ReadDir(filepath.Dir(filepath.Dir(s.cfg.Dirs.Dispatch("x", 1))))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		id, err := api.ParseDispatchID(e.Name())
		if err != nil {
			continue // not ours
		}
		r, ok, err := s.row(ctx, id)
		if err != nil {
			return err
		}
		if !ok || r.record.State.Ended() {
			if err := s.removeWork(id); err != nil {
				return err
			}
		}
	}
	return nil
}
