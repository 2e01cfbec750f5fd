package runcli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/console"
	"github.com/bailiwick-dev/bailiwick/internal/gitexec"
	"github.com/bailiwick-dev/bailiwick/internal/plan"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// noteTimeout bounds what a note may cost a command.
const noteTimeout = 2 * time.Second

// HasCommit reports whether a repository has a commit to start from.
func HasCommit(ctx context.Context, env []string, repo string) bool {
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	_, err := gitexec.Git{Dir: repo, User: env}.Output(ctx, "rev-parse", "--verify", "--quiet", "HEAD")
	return err == nil
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
	out, err := gitexec.Git{Dir: page.Items[0].Repo, User: o.Env}.Output(ctx, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all")
	if err != nil || out == "" {
		return
	}
	fmt.Fprintf(o.Stderr, "note: source %s has uncommitted changes to %s, which workers do not see\n",
		req.Name, record.Plural(strings.Count(out, "\n")+1, "file"))
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
