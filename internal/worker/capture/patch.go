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

// patcher makes the patch of a capture, and proves it.
type patcher struct {
	repo   *Repo
	root   *os.File // of the workspace
	change *change
	res    *Result
}

func (p *patcher) make(ctx context.Context) error {
	var err error
	if p.res.Tree, err = p.writeTree(ctx); err != nil {
		return err
	}
	if p.res.Tree == p.res.Base {
		return nil // the changes since the baseline restored the base
	}
	var files []api.FileChange
	listed := make(chan error, 1)
	go func() { // concurrently with the patch; ends before this function does
		var err error
		files, err = p.changedFiles(ctx)
		listed <- err
	}()
	err = p.spool(ctx)
	if err := errors.Join(err, <-listed); err != nil {
		return err
	}
	for i := range files {
		p.res.Changed = append(p.res.Changed, files[i].Path)
		files[i].Path = Printable(files[i].Path)
	}
	p.res.Files = files
	return nil
}

// spool writes the patch to a file and verifies it.
func (p *patcher) spool(ctx context.Context) error {
	f, err := os.CreateTemp(p.repo.dir, "patch-")
	if err != nil {
		return err
	}
	name := f.Name()
	if err = p.write(ctx, f); err == nil {
		err = p.verify(ctx, f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(name)
		return err
	}
	p.res.PatchFile = name
	return nil
}

// write writes the patch to f.
func (p *patcher) write(ctx context.Context, f *os.File) error {
	most := p.change.now.cfg.MaxPatch
	limit := &limitWriter{w: bufio.NewWriterSize(f, 1<<16), left: most}
	diff := p.repo.git()
	diff.Stdout = limit
	err := diff.Run(ctx, "diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv",
		"--no-color", "--src-prefix=a/", "--dst-prefix=b/", "--unified=3", "--inter-hunk-context=0",
		"--diff-algorithm=myers", "--indent-heuristic", "--submodule=short", "--ignore-submodules=none", p.res.Base, p.res.Tree)
	if limit.over {
		return &LimitError{What: "bytes of patch", Limit: most}
	}
	p.res.PatchSize = most - limit.left
	return errors.Join(err, limit.w.Flush())
}

// verify applies the patch in f to the base, in its own index: the result must
// be the captured tree.
func (p *patcher) verify(ctx context.Context, f *os.File) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	index := f.Name() + ".index"
	defer os.Remove(index) //nolint:errcheck // a leftover index is never read
	got, err := p.repo.apply(ctx, p.res.Base, f, index)
	if err != nil {
		return fmt.Errorf("verify the patch: %w", err)
	}
	if got != p.res.Tree {
		return fmt.Errorf("verify the patch: applied to the base it gives tree %s, want %s", Printable(got), p.res.Tree)
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

// writeTree writes the tree of the base with the change and returns its name.
func (p *patcher) writeTree(ctx context.Context) (string, error) {
	git := p.repo.git()
	in, out := io.Pipe()
	git.Stdin = in
	ended, streamed := errors.New("git fast-import exited"), make(chan error, 1)
	go func() { // ends when all is written or the reader is closed
		err := p.stream(ctx, out)
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

func (p *patcher) stream(ctx context.Context, out io.Writer) error {
	w := bufio.NewWriterSize(out, 1<<17)
	sent := map[string]bool{}
	for i := range p.change.set {
		if e := &p.change.set[i]; !sent[e.id] {
			sent[e.id] = true
			if err := streamBlob(ctx, w, p.root, e); err != nil {
				return err
			}
		}
	}
	put := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) } // w keeps its error for Flush
	put("commit %s\ncommitter capture <capture@invalid> 0 +0000\ndata 0\n", captureRef)
	if p.change.now.base.id != p.repo.emptyTree() {
		put("M 040000 %s \"\"\n", p.change.now.base.id)
	}
	for _, name := range sortedKeys(p.change.deleted) {
		put("D %s\n", gitexec.Quote(name))
	}
	for _, e := range p.change.set {
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
func (p *patcher) changedFiles(ctx context.Context) ([]api.FileChange, error) {
	out, err := p.repo.git().Output(ctx, "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", p.res.Base, p.res.Tree)
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
