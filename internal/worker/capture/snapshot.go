package capture

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
)

// Snapshot is the state of a workspace. The one taken before the agent starts is
// the baseline of its patch.
type Snapshot struct {
	cfg     Config
	base    *tree
	entries map[string]*entry
	order   []string         // paths of entries, bytewise
	ignored map[string]stamp // untracked files that the base's .gitignore files ignore
	overlay map[string]bool  // of cfg
}

// Snapshot reads a workspace. base is the full object name of the commit or tree
// that the workspace started from, or "" for the empty tree. No process may run in
// the workspace meanwhile. The error is a *LimitError when it exceeds a bound.
func (r *Repo) Snapshot(ctx context.Context, root *os.File, base string, cfg Config) (*Snapshot, error) {
	t, err := r.tree(ctx, base)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	s, err := r.snapshot(ctx, root, t, cfg.withDefaults())
	if err != nil || cfg.Resumed == "" {
		return s, err
	}
	resumed, err := r.tree(ctx, cfg.Resumed)
	if err != nil {
		return nil, fmt.Errorf("snapshot: resumed state: %w", err)
	}
	s.forget(resumed)
	return s, nil
}

// forget resets paths that an earlier attempt changed to the base, so that its
// changes count as changes since the baseline.
func (s *Snapshot) forget(resumed *tree) {
	_, changed := difference(s.base, resumed)
	for p := range changed {
		was, had := s.base.byPath[p]
		switch {
		case s.cfg.excluded(p), s.overlay[p], had && was.mode == modeGitlink:
		case had:
			s.entries[p] = &entry{path: p, mode: was.mode, id: was.id}
		default:
			delete(s.entries, p)
		}
	}
	s.order = sortedKeys(s.entries)
}

func (r *Repo) snapshot(ctx context.Context, root *os.File, base *tree, cfg Config) (*Snapshot, error) {
	s := &Snapshot{cfg: cfg, base: base, overlay: map[string]bool{}}
	for _, p := range cfg.Overlay {
		s.overlay[p] = true
	}
	links := map[string]bool{}
	for _, p := range base.gitlinks {
		links[p] = true
	}
	w := &walker{ctx: ctx, cfg: cfg, cached: cfg.cached(), skip: cfg.excluded, refuse: func(p string) string {
		if links[p] {
			return whySubmodule
		}
		return ""
	}}
	if w.cached {
		w.list = make([]entry, 0, len(cfg.Index.files)+1024)
	}
	list, err := w.walk(root, ".")
	if err != nil {
		return nil, err
	}
	if list, s.ignored, err = r.dropIgnored(ctx, s, list); err != nil {
		return nil, err
	}
	if err := r.hashAll(ctx, root, list, cfg); err != nil {
		return nil, err
	}
	s.entries, s.order = make(map[string]*entry, len(list)), make([]string, len(list))
	for i := range list {
		s.entries[list[i].path], s.order[i] = &list[i], list[i].path
	}
	return s, nil
}

// hashAll sets the object names of files and links.
func (r *Repo) hashAll(ctx context.Context, root *os.File, list []entry, cfg Config) error {
	var total int64
	for i := range list {
		e := &list[i]
		if e.id == "" && (e.mode == modeFile || e.mode == modeExec) {
			e.id = cfg.Index.unchanged(e.path, e.stamp)
		}
		if e.mode != 0 && e.id == "" {
			total += e.size
		}
	}
	if total > cfg.MaxRead {
		return &LimitError{What: "bytes of content", Limit: cfg.MaxRead}
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, min(runtime.GOMAXPROCS(0), 8))
	for i := range errs {
		wg.Go(func() {
			buf := make([]byte, 128<<10)
			for {
				k := int(next.Add(1)) - 1
				if k >= len(list) || errs[i] != nil {
					return
				}
				errs[i] = r.hashEntry(ctx, root, &list[k], buf)
			}
		})
	}
	wg.Wait()
	return cmp.Or(errs...)
}

func (r *Repo) hashEntry(ctx context.Context, root *os.File, e *entry, buf []byte) error {
	switch {
	case e.id != "" || e.mode == 0:
		return nil
	case e.mode == modeLink:
		e.id = r.objectID("blob", []byte(e.link))
		return nil
	}
	f, why, err := openRegular(root, e.path, e)
	if err != nil {
		return err
	}
	if why == "" {
		defer f.Close() //nolint:errcheck // only read
		h := r.objectHash("blob", e.size)
		n, err := io.CopyBuffer(h, io.LimitReader(contextReader{ctx, f}, e.size+1), buf)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			why = whyFSError
		case n != e.size:
			why = whyChanged
		default:
			e.id = hex.EncodeToString(h.Sum(nil))
		}
	}
	if why != "" {
		e.mode, e.why = 0, why
	}
	return nil
}

// contextReader stops reading when its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}
