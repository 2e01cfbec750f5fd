package capture

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/base/gitexec"
)

// dropIgnored removes the untracked paths that the base's .gitignore files ignore
// from list; their content is never read. Git matches the paths in a work tree of
// ours that has only those files of the base.
func (r *Repo) dropIgnored(ctx context.Context, s *Snapshot, list []entry) ([]entry, map[string]stamp, error) {
	var rules []treeFile
	for _, f := range s.base.files {
		if (f.path == ".gitignore" || strings.HasSuffix(f.path, "/.gitignore")) && (f.mode == modeFile || f.mode == modeExec) {
			rules = append(rules, f)
		}
	}
	candidate := func(e entry) bool {
		_, tracked := s.base.byPath[e.path]
		return !tracked && e.mode != 0 && !s.overlay[e.path]
	}
	var names bytes.Buffer
	for _, e := range list {
		if candidate(e) {
			names.WriteString("./" + e.path) // a name that begins with a colon would be an expression
			names.WriteByte(0)
		}
	}
	if len(rules) == 0 || names.Len() == 0 {
		return list, nil, nil
	}
	work, err := os.MkdirTemp(r.dir, "ignore-")
	if err != nil {
		return nil, nil, fmt.Errorf("ignore rules: %w", err)
	}
	defer os.RemoveAll(work) //nolint:errcheck // scratch, removed with the Repo at the latest
	if err := r.writeRules(ctx, work, rules); err != nil {
		return nil, nil, fmt.Errorf("ignore rules: %w", err)
	}
	git := r.git()
	var out bytes.Buffer
	git.WorkTree, git.Stdin, git.Stdout = work, &names, &out
	if err := git.Run(ctx, "check-ignore", "--no-index", "-z", "--stdin"); err != nil && !gitexec.Exited(err, 1) { // 1: no path is ignored
		return nil, nil, fmt.Errorf("ignore rules: %w", err)
	}
	ignored := map[string]bool{}
	for p := range strings.SplitSeq(out.String(), "\x00") {
		ignored[strings.TrimPrefix(p, "./")] = true
	}
	kept, dropped := list[:0], map[string]stamp{}
	for _, e := range list {
		if ignored[e.path] && candidate(e) {
			dropped[e.path] = e.stamp
			continue
		}
		kept = append(kept, e)
	}
	return kept, dropped, nil
}

func (r *Repo) writeRules(ctx context.Context, work string, rules []treeFile) error {
	o, err := r.openObjects(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	dir, err := os.Open(work) //nolint:gosec // G304: our own scratch directory
	if err != nil {
		return err
	}
	w := &treeWriter{root: dir, dir: -1}
	defer w.close()
	if err := o.writeTree(w, rules); err != nil {
		return err
	}
	_, err = os.Lstat(filepath.Join(work, ".git"))
	if !os.IsNotExist(err) {
		return fmt.Errorf("unexpected .git in %s", work)
	}
	return nil
}
