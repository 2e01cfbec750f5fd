package runverbs

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/gitexec"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

// noteTimeout bounds what a note may cost a command.
const noteTimeout = 2 * time.Second

// view calls use with a view of the repository of a source, which is removed then.
func view(ctx context.Context, env []string, repo string, use func(*gitexec.Foreign, gitexec.Repo) error) error {
	f, err := gitexec.At(ctx, env, repo)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bailiwick-view-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // at worst a copy of an index is left in the temporary directory
	v, err := f.View(filepath.Join(dir, "git"))
	if err != nil {
		return err
	}
	return use(f, v)
}

// HasCommit reports whether a repository has a commit to start from.
func HasCommit(ctx context.Context, env []string, repo string) bool {
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	return view(ctx, env, repo, func(_ *gitexec.Foreign, v gitexec.Repo) error {
		return gitexec.Git{Repo: v}.Run(ctx, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
	}) == nil
}

// NoteSource tells the user, on standard error, that the work tree of a source has
// changes that are not in the commit it starts from. It is silent if the request
// names a commit, and where the repository cannot be seen.
func NoteSource(ctx context.Context, o *console.Output, r client.Runtime, req *api.SourceRequest) {
	if req == nil || req.Commit != "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	page, err := r.Artifacts(ctx, api.KindSource, req.Name, "")
	if err != nil || len(page.Items) == 0 || page.Items[0].Repo == "" || api.IsRemote(page.Items[0].Repo) {
		return
	}
	changed, filtered, err := uncommitted(ctx, o.Env, page.Items[0].Repo)
	if err != nil {
		return
	}
	if changed > 0 {
		fmt.Fprintf(o.Stderr, "note: source %s has uncommitted changes to %s, which workers do not see\n", req.Name, record.Plural(changed, "file"))
	}
	if filtered > 0 {
		fmt.Fprintf(o.Stderr, "note: source %s: %s may have uncommitted changes; only the filter that .gitattributes names could tell, and filters of a source are not run\n",
			req.Name, record.Plural(filtered, "file"))
	}
}

// uncommitted counts the tracked files of a repository that differ from its commit,
// and those that only a filter could compare. Line endings and encodings are
// converted as git does; of filters, the form of Git LFS is known here.
func uncommitted(ctx context.Context, env []string, repo string) (changed, filtered int, err error) {
	err = view(ctx, env, repo, func(f *gitexec.Foreign, v gitexec.Repo) error {
		if f.Top == "" || elsewhere(f) { // its files are in another folder
			return nil
		}
		git := gitexec.Git{Repo: v, WorkTree: f.Top}
		list, other, err := modified(ctx, git)
		if changed = other; err != nil || len(list) == 0 {
			return err
		}
		filters, err := filtersOf(ctx, git, list)
		if err != nil {
			return err
		}
		for _, name := range list {
			switch filter := filters[name]; {
			case filter == "" || filter == "unspecified" || filter == "unset" || filter == "set":
				changed++
			case samePointer(ctx, git, f.Top, name): // unchanged
			case filter == "lfs":
				changed++
			default:
				filtered++
			}
		}
		return nil
	})
	return changed, filtered, err
}

// modified returns the tracked files whose content in the work tree alone differs from
// the index, and the number of other changes.
func modified(ctx context.Context, git gitexec.Git) (list []string, other int, err error) {
	out, err := git.Output(ctx, "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=no", "--ignore-submodules=all")
	if err != nil {
		return nil, 0, err
	}
	for entry := range strings.SplitSeq(out, "\x00") {
		if name, ok := strings.CutPrefix(entry, " M "); ok {
			list = append(list, name)
		} else if entry != "" {
			other++
		}
	}
	return list, other, nil
}

// filtersOf returns the attribute filter of paths.
func filtersOf(ctx context.Context, git gitexec.Git, names []string) (map[string]string, error) {
	git.Stdin = strings.NewReader(strings.Join(names, "\x00") + "\x00")
	out, err := git.Output(ctx, "check-attr", "-z", "--stdin", "filter")
	if err != nil {
		return nil, err
	}
	filters := map[string]string{}
	words := strings.Split(out, "\x00") // path, attribute, value
	for i := 0; i+2 < len(words); i += 3 {
		filters[words[i]] = words[i+2]
	}
	return filters, nil
}

// samePointer reports whether the index has, for a file of the work tree, the pointer
// that Git LFS makes of its content.
func samePointer(ctx context.Context, git gitexec.Git, top, name string) bool {
	git.MaxOutput = 1 << 10
	pointer, err := git.Output(ctx, "cat-file", "blob", ":0:"+name)
	if err != nil {
		return false
	}
	root, err := os.OpenRoot(top)
	if err != nil {
		return false
	}
	defer root.Close() //nolint:errcheck // only read
	st, err := root.Lstat(name)
	if err != nil || !st.Mode().IsRegular() || !strings.Contains(pointer, fmt.Sprintf("\nsize %d", st.Size())) {
		return false
	}
	f, err := root.Open(name)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // only read
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, st.Size()))
	want := fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%x\nsize %d", h.Sum(nil), n)
	return err == nil && ctx.Err() == nil && pointer == want
}

// noteSources is NoteSource for each source of a plan.
func (t *commands) noteSources(ctx context.Context, r client.Runtime, p *plan.Plan) {
	noted := map[api.SourceRequest]bool{}
	for _, task := range p.Tasks {
		if task.Source != nil && !noted[*task.Source] {
			noted[*task.Source] = true
			NoteSource(ctx, t.Output, r, task.Source)
		}
	}
}
