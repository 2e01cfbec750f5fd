package runverbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/gitexec"
)

// mergeRepo is a scratch git directory that patches are merged in. It has its own
// configuration and borrows the objects of the user's repository. So no hook,
// driver, filter, attribute or setting of that repository has an effect, no work
// tree is involved, and the user's repository receives nothing before the merge
// is complete.
type mergeRepo struct {
	user    *gitexec.Foreign
	view    gitexec.Repo // of the user's repository; what is written there is written to it
	scratch gitexec.Git
	dir     string // of both
	author  person
}

// openMerge makes a scratch repository that borrows from the one at path. The
// caller closes it.
func (t *patchVerbs) openMerge(ctx context.Context, path string) (*mergeRepo, error) {
	if err := checkGit(ctx); err != nil {
		return nil, err
	}
	user, err := gitexec.Discover(ctx, t.Env, path)
	if err == nil {
		err = user.CheckOwner(t.Env)
	}
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "repository %s: %w", path, err).WithHint("name a git repository with --repo")
	}
	m := &mergeRepo{user: user, author: authorOf(t.Env, user)}
	return m, m.create()
}

// mergeAttributes unset the attributes that a tree sets for merging its files: with
// "merge=union" a patch could hide its conflicts.
const mergeAttributes = "* !merge !diff !text !eol !filter !ident !conflict-marker-size !working-tree-encoding\n"

func (m *mergeRepo) create() (err error) {
	if m.dir, err = os.MkdirTemp("", "bailiwick-merge-"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if m.view, err = m.user.View(filepath.Join(m.dir, "view")); err != nil {
		return err
	}
	scratch, err := gitexec.Create(filepath.Join(m.dir, "git"), m.user.Format, m.user.Objects)
	if err != nil {
		return err
	}
	m.scratch = gitexec.Git{Repo: scratch}
	// The boundary of a shallow clone is not among its objects.
	shallow, err := gitexec.ReadFile(filepath.Join(m.view.Dir(), "shallow"))
	if err == nil {
		err = os.WriteFile(filepath.Join(scratch.Dir(), "shallow"), shallow, 0o600)
	} else if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, os.WriteFile(filepath.Join(scratch.Dir(), "info", "attributes"), []byte(mergeAttributes), 0o600))
}

// Close removes the scratch repository.
func (m *mergeRepo) Close() error { return os.RemoveAll(m.dir) }

// minGit is the oldest git that merges without a work tree.
const minGit = "2.38"

func checkGit(ctx context.Context) error {
	text, major, minor, err := gitexec.Version(ctx)
	if err == nil && (major < 2 || major == 2 && minor < 38) {
		err = fmt.Errorf("this is %q", text)
	}
	if err != nil {
		return api.Errorf(api.CodeInvalid, "git: %w", err).WithHint("install git %s or later, which can merge without a work tree", minGit)
	}
	return nil
}

// users is git on the user's repository.
func (m *mergeRepo) users() gitexec.Git { return gitexec.Git{Repo: m.view} }

// has reports whether the repository has a commit.
func (m *mergeRepo) has(ctx context.Context, commit string) bool {
	_, err := m.scratch.Output(ctx, "cat-file", "-e", commit+"^{commit}")
	return err == nil
}

// patchError is a patch that git refuses.
type patchError struct{ why string }

func (e *patchError) Error() string { return e.why }

// commit makes a commit of a patch on base.
func (m *mergeRepo) commit(ctx context.Context, base string, patch *os.File, message string, at time.Time) (string, error) {
	git := m.scratch
	git.Index = filepath.Join(m.dir, "index")
	if err := git.Run(ctx, "read-tree", base); err != nil {
		return "", err
	}
	if st, err := patch.Stat(); err != nil {
		return "", err
	} else if st.Size() > 0 { // git apply refuses an empty patch
		if _, err := patch.Seek(0, io.SeekStart); err != nil {
			return "", err
		}
		apply := git
		apply.Stdin = patch
		if err := apply.Run(ctx, "apply", "--cached", "--binary", "--whitespace=nowarn", "-"); err != nil {
			e, ok := errors.AsType[*gitexec.Error](err)
			if ok && strings.Contains(e.Message, "failed to read") && m.missing(ctx, base) != "" {
				return "", err // no fault of the patch
			}
			if ok {
				return "", &patchError{e.Message}
			}
			return "", err
		}
	}
	tree, err := git.Output(ctx, "write-tree")
	if err != nil {
		return "", err
	}
	return m.record(ctx, tree, message, at, base)
}

// missing returns an object of commits that the user's repository, if it is a partial
// clone, lacks; or "". Git looks for it through our configuration, so it asks no remote.
func (m *mergeRepo) missing(ctx context.Context, commits ...string) string {
	if _, partial := m.user.Config.Promisor(); !partial {
		return ""
	}
	args := append([]string{"rev-list", "--quiet", "--objects", "--no-walk", "--missing=print", "--end-of-options"}, commits...)
	out, err := m.scratch.Output(ctx, args...)
	first, _, _ := strings.Cut(out, "\n")
	if object, ok := strings.CutPrefix(first, "?"); ok && err == nil {
		return object
	}
	return ""
}

// explain words the error of a git that failed since the user's repository is a partial
// clone without an object of commits or of its HEAD.
func (m *mergeRepo) explain(ctx context.Context, err error, commits []string) error {
	if _, failed := errors.AsType[*gitexec.Error](err); !failed {
		return err
	}
	if head, headErr := m.users().Output(ctx, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"); headErr == nil {
		commits = append(commits, head)
	}
	object := m.missing(ctx, commits...)
	if object == "" {
		return err
	}
	place := m.user.Place()
	remote, _ := m.user.Config.Promisor()
	return api.Errorf(api.CodeInvalid, "object %s is missing from repository %s, a partial clone (git clone --filter): %w", object, place, err).
		WithHint("%s", gitexec.FetchMissing(place, remote))
}

// record makes a commit of a tree.
func (m *mergeRepo) record(ctx context.Context, tree, message string, at time.Time, parents ...string) (string, error) {
	git := m.scratch
	git.Identity, git.Stdin = m.author.identity(at), strings.NewReader(message)
	args := []string{"commit-tree", tree}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	return git.Output(ctx, args...)
}

// merge merges two commits and returns the resulting tree, or the files that
// conflict.
func (m *mergeRepo) merge(ctx context.Context, head, commit string) (tree string, conflicts []string, err error) {
	out, err := m.scratch.Output(ctx, "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", head, commit)
	if gitexec.Exited(err, 1) {
		_, names, _ := strings.Cut(out, "\x00")
		return "", strings.Split(strings.TrimSuffix(names, "\x00"), "\x00"), nil
	}
	return strings.TrimSuffix(out, "\x00"), nil, err
}

// checkBranch refuses an invalid or existing name.
func (m *mergeRepo) checkBranch(ctx context.Context, branch string) error {
	valid := !strings.HasPrefix(branch, "-") && branch != "HEAD"
	if valid {
		_, err := m.scratch.Output(ctx, "check-ref-format", "refs/heads/"+branch)
		valid = err == nil
	}
	if !valid {
		return api.Errorf(api.CodeInvalid, "branch %s: not a valid branch name", branch)
	}
	if _, err := m.users().Output(ctx, "rev-parse", "--verify", "--quiet", "refs/heads/"+branch); err == nil {
		return branchExists(branch)
	}
	// The current branch may have no commit yet.
	if head, err := m.users().Output(ctx, "symbolic-ref", "--quiet", "HEAD"); err == nil && head == "refs/heads/"+branch {
		return branchExists(branch)
	}
	return nil
}

func branchExists(branch string) error {
	return api.Errorf(api.CodeConflict, "branch %s already exists", branch).WithHint("existing branches are not overwritten; name another one")
}

// publish adds to the user's repository the commits that lead to head, and then a
// new branch at head.
func (m *mergeRepo) publish(ctx context.Context, branch, head string, bases []string, at time.Time) error {
	pack, err := os.Create(filepath.Join(m.dir, "pack"))
	if err != nil {
		return err
	}
	defer pack.Close() //nolint:errcheck // a scratch file, read to its end
	git := m.scratch
	git.Stdin, git.Stdout = strings.NewReader(head+"\n^"+strings.Join(bases, "\n^")+"\n"), pack
	if err := git.Run(ctx, "pack-objects", "--revs", "--stdout", "-q"); err != nil {
		return err
	}
	if _, err := pack.Seek(0, io.SeekStart); err != nil {
		return err
	}
	index := m.users()
	index.Stdin = pack
	if err := index.Run(ctx, "index-pack", "--stdin", "--strict"); err != nil {
		return err
	}
	update := m.users()
	update.Identity = m.author.identity(at)
	err = update.Run(ctx, "update-ref", "-m", "bailiwick run patch", "refs/heads/"+branch, head, "")
	if err != nil && m.checkBranch(ctx, branch) != nil {
		return branchExists(branch)
	}
	return err
}
