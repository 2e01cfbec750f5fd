package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// row returns what is stored of a dispatch, and whether there is one.
func (s *Service) row(ctx context.Context, id api.DispatchID) (r row, ok bool, err error) {
	err = s.cfg.Store.Read(ctx, func(v *store.View) error {
		r, ok, err = load(v, id)
		return err
	})
	return r, ok, err
}

// Bounds of the blobs that are read whole.
const (
	maxManifest = 1 << 20
	maxInput    = 2 << 20
)

// manifest returns a dispatch manifest that this service signed.
func (s *Service) manifest(ctx context.Context, d api.Digest) (record.Manifest, error) {
	var m record.Manifest
	envelope, err := s.cfg.Blobs.Get(ctx, d, maxManifest)
	if err != nil {
		return m, err
	}
	payload, _, err := seal.Verify(envelope, seal.Manifest, seal.RootOf(seal.KeyOf(s.cfg.Key, "")))
	if err != nil {
		return m, err
	}
	return m, canon.DecodeExact(payload, &m)
}

// Engine returns the policy to decide by now. While the catalog is refused it
// is one without grants, so that a service in trouble can still be looked at.
func (s *Service) Engine(ctx context.Context) (*policy.Engine, error) {
	p, err := s.book.current(ctx)
	if err == nil {
		return p.engine, nil
	}
	if api.CodeOf(err) == api.CodeAuditUnavailable {
		return nil, err
	}
	return policy.New(policy.Rules{Operator: s.cfg.Operator})
}

// access returns the row of a dispatch that principal may act on. A dispatch
// that is not there and one of somebody else's give the same answer.
func (s *Service) access(ctx context.Context, principal api.Principal, action policy.Action, id api.DispatchID) (row, policy.Decision, error) {
	engine, err := s.Engine(ctx)
	if err != nil {
		return row{}, policy.Decision{}, err
	}
	r, ok, err := s.row(ctx, id)
	if err != nil {
		return row{}, policy.Decision{}, err
	}
	d := engine.Decide(policy.Request{Principal: principal, Action: action, Resource: string(id), Owner: r.record.Principal})
	missing := api.Errorf(api.CodeNotFound, "no dispatch %s that %s may see", id, principal).WithHint("see: bailiwick dispatch list")
	if !d.Allowed() {
		_, err := s.cfg.Ledger.Commit(ctx, d, record.Entry{Kind: record.KindAccessAllowed, Dispatch: id, Detail: record.Access{Operation: string(action)}}, nil)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.CodeDenied {
			return row{}, d, err
		}
		missing.AuditEntry = e.AuditEntry
		return row{}, d, missing
	}
	if !ok {
		return row{}, d, missing
	}
	return r, d, nil
}

// Describe returns the record of a dispatch. With wait it returns when the
// dispatch has ended or the time is over.
func (s *Service) Describe(ctx context.Context, principal api.Principal, id api.DispatchID, wait time.Duration) (api.Dispatch, error) {
	r, _, err := s.access(ctx, principal, policy.ActionDispatchRead, id)
	if err != nil || wait <= 0 {
		return r.record, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		// Every end is a commit, so what is read after this channel is there
		// misses none.
		changed := s.cfg.Store.Committed()
		if r, _, err = s.row(ctx, id); err != nil || r.record.State.Ended() {
			return r.record, err
		}
		s.mu.Lock()
		if a := s.active[id]; a != nil {
			changed = a.ended
		}
		s.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			return r.record, nil
		case <-ctx.Done():
			return api.Dispatch{}, ctx.Err()
		case <-s.life.Done():
			return r.record, nil
		}
	}
}

// List returns the newest dispatches that principal may see, newest first.
func (s *Service) List(ctx context.Context, principal api.Principal, limit int) ([]api.Dispatch, error) {
	engine, err := s.Engine(ctx)
	if err != nil {
		return nil, err
	}
	query, args := columns+"WHERE principal = ? ORDER BY accepted DESC LIMIT ?", store.Args{principal, limit}
	if engine.Decide(policy.Request{Principal: principal, Action: policy.ActionDispatchRead, Resource: "all"}).Allowed() {
		query, args = columns+"ORDER BY accepted DESC LIMIT ?", store.Args{limit}
	}
	list := []api.Dispatch{}
	err = s.cfg.Store.Read(ctx, func(v *store.View) error {
		return v.Each(query, args, func(scan store.Scan) error {
			var r row
			err := scan(scanInto(&r)...)
			list = append(list, r.record)
			return err
		})
	})
	return list, err
}

// Counts returns how many dispatches there are in each state.
func (s *Service) Counts(ctx context.Context) (map[string]int, error) {
	counts := map[string]int{}
	err := s.cfg.Store.Read(ctx, func(v *store.View) error {
		return v.Each("SELECT state, count(*) FROM dispatch GROUP BY state", nil, func(scan store.Scan) error {
			var state string
			var n int
			err := scan(&state, &n)
			counts[state] = n
			return err
		})
	})
	return counts, err
}

// Patch returns the patch of a dispatch. The caller closes it.
func (s *Service) Patch(ctx context.Context, principal api.Principal, id api.DispatchID) (io.ReadCloser, int64, error) {
	d, err := s.Describe(ctx, principal, id, 0)
	if err != nil {
		return nil, 0, err
	}
	if d.Outcome == nil || d.Outcome.Patch == nil {
		return nil, 0, api.Errorf(api.CodeNotFound, "dispatch %s is %s and has no patch", id, d.State)
	}
	return s.blob(ctx, *d.Outcome.Patch)
}

// Output returns one output of a dispatch. The caller closes it.
func (s *Service) Output(ctx context.Context, principal api.Principal, id api.DispatchID, path string) (io.ReadCloser, int64, error) {
	d, err := s.Describe(ctx, principal, id, 0)
	if err != nil {
		return nil, 0, err
	}
	if d.Outcome != nil {
		for _, o := range d.Outcome.Outputs {
			if o.Path == path {
				return s.blob(ctx, o)
			}
		}
	}
	return nil, 0, api.Errorf(api.CodeNotFound, "dispatch %s is %s and has no output %q", id, d.State, path)
}

func (s *Service) blob(ctx context.Context, a api.Artifact) (io.ReadCloser, int64, error) {
	r, err := s.cfg.Blobs.Open(ctx, a.Digest)
	if err != nil {
		return nil, 0, err
	}
	return r, a.Size, nil
}

// chunkSize is how much of a log goes into one chunk.
const chunkSize = 64 << 10

// Log gives each the log of a dispatch from offset on, in chunks. With follow
// it goes on until the dispatch has ended.
func (s *Service) Log(ctx context.Context, principal api.Principal, id api.DispatchID, offset int64, follow bool, each func(api.Chunk) error) error {
	if _, _, err := s.access(ctx, principal, policy.ActionDispatchRead, id); err != nil {
		return err
	}
	for {
		s.mu.Lock()
		a := s.active[id]
		var changed chan struct{}
		if a != nil {
			changed = a.changed
		}
		s.mu.Unlock()
		if a == nil {
			return s.endedLog(ctx, id, offset, each)
		}
		n, err := s.copyLive(a, offset, each)
		offset += n
		if err != nil {
			return err
		}
		if !follow {
			// The end may have come meanwhile, and taken the file with it.
			if r, _, err := s.row(ctx, id); err != nil || !r.record.State.Ended() {
				return err
			}
			return s.endedLog(ctx, id, offset, each)
		}
		select {
		case <-changed:
		case <-a.ended:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.life.Done():
			return api.Errorf(api.CodeUnavailable, "the service is stopping")
		}
	}
}

func (s *Service) copyLive(a *active, offset int64, each func(api.Chunk) error) (int64, error) {
	f, err := os.Open(filepath.Join(s.attemptDir(a.row), record.WorkLog))
	if err != nil {
		return 0, nil //nolint:nilerr // not there yet, or collected by now: the next round finds it
	}
	defer f.Close() //nolint:errcheck // only read
	return copyChunks(f, offset, each)
}

func (s *Service) endedLog(ctx context.Context, id api.DispatchID, offset int64, each func(api.Chunk) error) error {
	r, ok, err := s.row(ctx, id)
	if err != nil || !ok {
		return errors.Join(err, fmt.Errorf("dispatch %s: no record", id))
	}
	if o := r.record.Outcome; o != nil && o.LogDigest != "" && o.LogKept > offset {
		content, err := s.cfg.Blobs.Open(ctx, o.LogDigest)
		if err != nil {
			return err
		}
		defer content.Close() //nolint:errcheck // only read
		if _, err := io.CopyN(io.Discard, content, offset); err != nil {
			return err
		}
		if offset, err = forward(content, offset, each); err != nil {
			return err
		}
	}
	return each(api.Chunk{Offset: offset, Ended: true})
}

func copyChunks(f *os.File, offset int64, each func(api.Chunk) error) (int64, error) {
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return 0, err
	}
	end, err := forward(f, offset, each)
	return end - offset, err
}

// forward hands over what r has, as the log from offset on, and returns where
// it ended.
func forward(r io.Reader, offset int64, each func(api.Chunk) error) (int64, error) {
	buf := make([]byte, chunkSize)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if err := each(api.Chunk{Offset: offset, Data: buf[:n]}); err != nil {
				return offset, err
			}
			offset += int64(n)
		}
		if errors.Is(err, io.EOF) {
			return offset, nil
		}
		if err != nil {
			return offset, err
		}
	}
}
