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
	"github.com/bailiwick-dev/bailiwick/internal/run/executor"
)

// workFiles is the directories of attempts: where they are, what a worker finds in its
// own, and their removal.
type workFiles struct{ *records }

// dir is the directory of an attempt.
func (f workFiles) dir(r *row) string { return f.cfg.Dirs.Dispatch(r.record.ID, r.record.Attempt) }

// job returns the files that a worker is given.
func (f workFiles) job(ctx context.Context, r row, m record.Manifest) executor.Job {
	files := map[string]executor.Content{record.WorkManifest: f.content(ctx, r.record.Manifest), record.WorkInput: f.content(ctx, m.Input)}
	if m.Resume != nil {
		files[record.WorkResume] = f.content(ctx, m.Resume.Answer)
		if m.Resume.Patch != "" {
			files[record.WorkPatch] = f.content(ctx, m.Resume.Patch)
		}
		if m.Resume.Session != "" {
			files[record.WorkSession] = f.content(ctx, m.Resume.Session)
		}
	}
	for _, n := range m.Needs {
		files[n.File()] = f.content(ctx, n.Digest)
	}
	return executor.Job{Dir: f.dir(&r), Files: files}
}

// content writes a blob.
func (f workFiles) content(ctx context.Context, d api.Digest) executor.Content {
	return func(w io.Writer) error {
		r, err := f.cfg.Blobs.Open(ctx, d)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, r)
		return errors.Join(err, r.Close())
	}
}

// removeWork removes the directories of a dispatch whose end is durable.
func (f workFiles) remove(id api.DispatchID) error {
	return os.RemoveAll(filepath.Dir(f.cfg.Dirs.Dispatch(id, 1)))
}

// removeFinished removes what a crash between a durable end and remove left.
func (f workFiles) removeFinished(ctx context.Context) error {
	entries, err := os.ReadDir(filepath.Dir(filepath.Dir(f.cfg.Dirs.Dispatch("x", 1))))
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
		r, ok, err := f.row(ctx, id)
		if err == nil && (!ok || r.record.State.Ended()) {
			err = f.remove(id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
