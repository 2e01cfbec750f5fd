package dispatch

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
)

// chunkSize is the largest chunk of a log.
const chunkSize = 64 << 10

// LogRequest is the part of a log to return.
type LogRequest struct {
	Attempt int   // 0 is the current one
	Offset  int64 // of the first byte
	Follow  bool  // continue until the attempt has ended
}

// Log calls each with the log of an attempt, in chunks.
func (s *reader) Log(ctx context.Context, principal api.Principal, id api.DispatchID, req LogRequest, each func(api.Chunk) error) error {
	r, _, err := s.access(ctx, principal, policy.ActionDispatchRead, id)
	if err != nil {
		return err
	}
	if req.Attempt == 0 {
		req.Attempt = r.record.Attempt
	}
	for {
		changed, ended := s.logSignals(id)
		if r, _, err = s.row(ctx, id); err != nil {
			return err
		}
		d, err := s.attempt(ctx, r.record, req.Attempt)
		if err != nil {
			return err
		}
		if d.State.Ended() {
			return s.storedLog(ctx, &d, req.Offset, each)
		}
		if req.Offset, err = s.liveLog(ctx, r, req.Offset, each); err != nil {
			return err
		}
		if !req.Follow {
			return nil
		}
		select {
		case <-changed:
		case <-ended:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.life.Done():
			return api.Errorf(api.CodeUnavailable, "the service is stopping")
		}
	}
}

// logSignals returns what is closed when the log of a dispatch grows, and when
// its running attempt ends.
func (l *lifecycle) logSignals(id api.DispatchID) (changed, ended <-chan struct{}) {
	changed = l.cfg.Store.Committed()
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.active[id]; a != nil {
		changed, ended = a.changed, a.ended
	}
	return changed, ended
}

// liveLog copies what a running attempt has written from offset on, and returns
// the offset after it.
func (s *reader) liveLog(ctx context.Context, r row, offset int64, each func(api.Chunk) error) (int64, error) {
	dir := s.files.dir(&r)
	parts, err := logParts(dir)
	if err != nil {
		return offset, err
	}
	files := map[int64]*os.File{}
	defer func() {
		for _, f := range files {
			_ = f.Close() // only read
		}
	}()
	for _, p := range parts {
		f, err := openWork(dir, filepath.Join(record.WorkLog, record.LogFile(p)))
		if err != nil {
			return offset, nil //nolint:nilerr // replaced by a newer part, or collected by now: the next round reads that
		}
		files[p.Offset] = f
	}
	// The files of an attempt are removed after its end is stored: until then a
	// missing part was never kept.
	now, _, err := s.row(ctx, r.record.ID)
	if err != nil || now.record.State.Ended() || now.record.Attempt != r.record.Attempt {
		return offset, err
	}
	return copyParts(parts, offset, each, func(p api.LogPart) (io.ReadCloser, error) { return io.NopCloser(files[p.Offset]), nil })
}

// storedLog copies the log of an attempt that has ended from offset on.
func (s *reader) storedLog(ctx context.Context, d *api.Dispatch, offset int64, each func(api.Chunk) error) error {
	if d.Outcome != nil {
		err := s.addRetention(ctx, d)
		if err != nil {
			return err
		}
		open := func(p api.LogPart) (io.ReadCloser, error) {
			r, _, err := s.open(ctx, d, "log", api.Artifact{Digest: p.Digest, Size: p.Size})
			return r, err
		}
		if offset, err = copyParts(d.Outcome.Log, offset, each, open); err != nil {
			return err
		}
	}
	return each(api.Chunk{Offset: offset, Ended: true})
}

// copyParts copies the parts of a log from offset on, and returns the offset
// after them.
func copyParts(parts []api.LogPart, offset int64, each func(api.Chunk) error, open func(api.LogPart) (io.ReadCloser, error)) (int64, error) {
	for _, p := range parts {
		if p.Offset+p.Size <= offset {
			continue
		}
		r, err := open(p)
		if err != nil {
			return offset, err
		}
		offset = max(offset, p.Offset)
		if _, err = io.CopyN(io.Discard, r, offset-p.Offset); err == nil {
			offset, err = copyChunks(r, offset, func(c api.Chunk) error {
				c.Verify = p.Verify
				return each(c)
			})
		}
		if err := errors.Join(err, r.Close()); err != nil {
			return offset, err
		}
	}
	return offset, nil
}

// copyChunks copies r, which is the log at offset, and returns the offset after
// it.
func copyChunks(r io.Reader, offset int64, each func(api.Chunk) error) (int64, error) {
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

// logParts returns the files of an attempt's log in order, with offset and size,
// complete or not. A missing log has no lines.
func logParts(work string) ([]api.LogPart, error) {
	dir := filepath.Join(work, record.WorkLog)
	st, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !st.IsDir() {
		return nil, nil // see openWork
	}
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var parts []api.LogPart
	for _, e := range entries {
		part, ok := record.ParseLogFile(e.Name())
		if !ok {
			continue // likewise
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // replaced by a newer part
		}
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			continue // likewise
		}
		part.Size = info.Size()
		parts = append(parts, part)
	}
	return parts, nil
}
