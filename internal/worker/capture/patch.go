package capture

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/gitexec"
)

const captureRef = "refs/heads/capture"

func (r *Repo) makePatch(ctx context.Context, root *os.File, c *change, res *Result) error {
	var err error
	if res.Tree, err = r.writeChange(ctx, root, c); err != nil {
		return err
	}
	if res.Tree == res.Base {
		return nil // the changes since the baseline restored the base
	}
	var files []api.FileChange
	listed := make(chan error, 1)
	go func() { // concurrently with the patch; ends before this function does
		var err error
		files, err = r.changedFiles(ctx, res.Base, res.Tree)
		listed <- err
	}()
	err = r.spoolPatch(ctx, c.now.cfg.MaxPatch, res)
	if err := errors.Join(err, <-listed); err != nil {
		return err
	}
	for i := range files {
		res.Changed = append(res.Changed, files[i].Path)
		files[i].Path = Printable(files[i].Path)
	}
	res.Files = files
	return nil
}

// spoolPatch writes the patch to a file and verifies it.
func (r *Repo) spoolPatch(ctx context.Context, most int64, res *Result) error {
	f, err := os.CreateTemp(r.dir, "patch-")
	if err != nil {
		return err
	}
	name := f.Name()
	if err = r.writePatch(ctx, f, res, most); err == nil {
		err = r.verifyPatch(ctx, f, res)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(name)
		return err
	}
	res.PatchFile = name
	return nil
}

// writePatch writes the patch to f.
func (r *Repo) writePatch(ctx context.Context, f *os.File, res *Result, most int64) error {
	limit := &limitWriter{w: bufio.NewWriterSize(f, 1<<16), left: most}
	diff := r.git()
	diff.Stdout = limit
	err := diff.Run(ctx, "diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv",
		"--no-color", "--src-prefix=a/", "--dst-prefix=b/", "--unified=3", "--inter-hunk-context=0",
		"--diff-algorithm=myers", "--indent-heuristic", "--submodule=short", "--ignore-submodules=none", res.Base, res.Tree)
	if limit.over {
		return &LimitError{What: "bytes of patch", Limit: most}
	}
	res.PatchSize = most - limit.left
	return errors.Join(err, limit.w.Flush())
}

// verifyPatch applies the patch in f to the base, in its own index: the result must
// be the captured tree.
func (r *Repo) verifyPatch(ctx context.Context, f *os.File, res *Result) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	index := f.Name() + ".index"
	defer os.Remove(index) //nolint:errcheck // a leftover index is never read
	got, err := r.apply(ctx, res.Base, f, index)
	if err != nil {
		return fmt.Errorf("verify the patch: %w", err)
	}
	if got != res.Tree {
		return fmt.Errorf("verify the patch: applied to the base it gives tree %s, want %s", Printable(got), res.Tree)
	}
	return nil
}

// limitWriter refuses to write more than is left.
type limitWriter struct {
	w    *bufio.Writer
	left int64
	over bool
}

func (l *limitWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > l.left {
		l.over = true
		return 0, errors.New("limit exceeded")
	}
	l.left -= int64(len(p))
	return l.w.Write(p)
}

// writeChange writes the tree of the base with the change and returns its name.
func (r *Repo) writeChange(ctx context.Context, root *os.File, c *change) (string, error) {
	git := r.git()
	in, out := io.Pipe()
	git.Stdin = in
	ended, streamed := errors.New("git fast-import exited"), make(chan error, 1)
	go func() { // ends when all is written or the reader is closed
		err := r.streamChange(ctx, out, root, c)
		_ = out.CloseWithError(err)
		streamed <- err
	}()
	answer, err := git.Output(ctx, "fast-import", "--quiet", "--force", "--done", "--date-format=raw")
	_ = in.CloseWithError(ended)
	if serr := <-streamed; serr != nil && !errors.Is(serr, ended) {
		return "", serr // the cause of the early end of git's input
	}
	if err != nil {
		return "", err
	}
	return parseRootTree(answer)
}

// parseRootTree parses fast-import's answer to `ls ""`.
func parseRootTree(answer string) (string, error) {
	f := strings.Fields(answer)
	if len(f) != 3 || f[0] != "040000" || f[1] != "tree" || !fullObject.MatchString(f[2]) {
		return "", fmt.Errorf("git fast-import: unexpected answer %s", Printable(answer))
	}
	return f[2], nil
}

func (r *Repo) streamChange(ctx context.Context, out io.Writer, root *os.File, c *change) error {
	w := bufio.NewWriterSize(out, 1<<17)
	sent := map[string]bool{}
	for i := range c.set {
		if e := &c.set[i]; !sent[e.id] {
			sent[e.id] = true
			if err := streamBlob(ctx, w, root, e); err != nil {
				return err
			}
		}
	}
	put := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) } // w keeps its error for Flush
	put("commit %s\ncommitter capture <capture@invalid> 0 +0000\ndata 0\n", captureRef)
	if c.now.base.id != r.emptyTree() {
		put("M 040000 %s \"\"\n", c.now.base.id)
	}
	for _, p := range sortedKeys(c.deleted) {
		put("D %s\n", gitexec.Quote(p))
	}
	for _, e := range c.set {
		put("M %o %s %s\n", e.mode, e.id, gitexec.Quote(e.path))
	}
	put("ls \"\"\ndone\n")
	return w.Flush()
}

func streamBlob(ctx context.Context, w io.Writer, root *os.File, e *entry) error {
	if _, err := fmt.Fprintf(w, "blob\ndata %d\n", e.size); err != nil {
		return err
	}
	if e.mode == modeLink {
		_, err := fmt.Fprintf(w, "%s\n", e.link)
		return err
	}
	f, why, err := openRegular(root, e.path, e)
	if err != nil {
		return err
	}
	if why != "" {
		return fmt.Errorf("workspace: %s: %s", Printable(e.path), why)
	}
	defer f.Close() //nolint:errcheck // only read
	if n, err := io.CopyN(w, contextReader{ctx, f}, e.size); err != nil {
		return fmt.Errorf("workspace: %s: %d of %d bytes: %w", Printable(e.path), n, e.size, err)
	}
	_, err = io.WriteString(w, "\n")
	return err
}

// changedFiles lists the differences of two trees, with paths as they are.
func (r *Repo) changedFiles(ctx context.Context, from, to string) ([]api.FileChange, error) {
	out, err := r.git().Output(ctx, "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", from, to)
	if err != nil {
		return nil, err
	}
	return parseRaw(out)
}

// parseRaw parses ":<mode> <mode> <object> <object> <status>\0<path>\0", repeated.
func parseRaw(out string) ([]api.FileChange, error) {
	words := map[string]string{"A": "added", "M": "modified", "D": "deleted", "T": "type"}
	var list []api.FileChange
	for out != "" {
		head, rest, ok := strings.Cut(out, "\x00")
		p, rest, ok2 := strings.Cut(rest, "\x00")
		f := strings.Split(head, " ")
		if !ok || !ok2 || len(f) != 5 || words[f[4]] == "" || p == "" {
			return nil, fmt.Errorf("git diff-tree: unexpected answer %s", Printable(out))
		}
		list = append(list, api.FileChange{Path: p, Change: words[f[4]]})
		out = rest
	}
	return list, nil
}
