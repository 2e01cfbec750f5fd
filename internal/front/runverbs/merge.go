package runverbs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// mergeFlags are those of run patch --merge and of the verbs apply.
type mergeFlags struct {
	branch, repo, source string     // without a branch, patches go into the work tree
	task                 api.TaskID // only this one; empty: all
	keepGoing            bool
}

// mergeReport is the outcome of merging a run's patches.
type mergeReport struct {
	Run       api.RunID        `json:"runId,omitempty"`
	Dispatch  api.DispatchID   `json:"dispatchId,omitempty"` // of dispatch apply
	Source    api.Name         `json:"source"`
	Branch    string           `json:"branch,omitempty"`
	Commit    string           `json:"commit,omitempty"`   // of the branch; absent: nothing was written to it
	WorkTree  string           `json:"workTree,omitempty"` // that the patches were applied to
	Files     []api.FileChange `json:"files,omitempty"`    // of the work tree that have changed
	Base      string           `json:"base"`
	Merged    []mergedTask     `json:"merged"`
	Conflicts []taskConflict   `json:"conflicts"`
	LeftOut   []taskLeftOut    `json:"leftOut"`
}

type mergedTask struct {
	Task   api.TaskID `json:"task,omitempty"` // empty: the dispatch
	Commit string     `json:"commit"`         // the task's patch on the commit that it started from
}

// taskConflict is a task whose patch could not be merged.
type taskConflict struct {
	Task  api.TaskID     `json:"task,omitempty"` // empty: all of it, or the dispatch
	Why   string         `json:"why"`
	Files []conflictFile `json:"files,omitempty"`
}

type conflictFile struct {
	Path string       `json:"path"`
	With []api.TaskID `json:"with,omitempty"` // tasks merged earlier that also change it
}

type taskLeftOut struct {
	Task api.TaskID `json:"task"`
	Why  string     `json:"why"`
}

// doneTask is a done task that has a patch.
type doneTask struct {
	task     api.RunTask
	dispatch api.Dispatch
}

// mergeRun merges the patches of the done tasks, or of one, in the order of their
// dependencies.
func (t *patchVerbs) mergeRun(ctx context.Context, r client.Runtime, run api.Run, f mergeFlags) error {
	if f.task != "" {
		task, err := taskOf(&run, f.task)
		if err != nil {
			return err
		}
		if task.State != api.TaskDone {
			return api.Errorf(api.CodeConflict, "task %s of run %s is %s: only the patch of a done task is applied", task.Task, run.RunID, task.State)
		}
		run.Tasks = withGrown(run.Tasks, f.task)
	}
	patches, left, err := t.selectPatches(ctx, r, run, f.source)
	if err != nil {
		return err
	}
	return t.mergePatches(ctx, r, mergeReport{Run: run.RunID, LeftOut: left}, patches, f)
}

// mergePatches puts patches on a new branch, which touches no work tree and no
// existing branch, or else into the work tree.
func (t *patchVerbs) mergePatches(ctx context.Context, r client.Runtime, rep mergeReport, patches []doneTask, f mergeFlags) error {
	repo := f.repo
	if repo == "" {
		repo = "."
	}
	m, err := t.openMerge(ctx, repo)
	if err != nil {
		return err
	}
	defer m.Close() //nolint:errcheck // a scratch folder below the temporary one
	if f.branch != "" {
		if err := m.checkBranch(ctx, f.branch); err != nil {
			return err
		}
	}
	var bases []string
	for _, p := range patches {
		if !m.has(ctx, p.dispatch.Source.Commit) {
			return api.Errorf(api.CodeNotFound, "repository %s has no commit %s, which %s started from", repo, p.dispatch.Source.Commit, rep.name(p.task.Task)).
				WithHint("name the repository that is source %s with --repo, or fetch that commit", p.dispatch.Source.Name)
		}
		bases = append(bases, p.dispatch.Source.Commit)
	}
	rep.Source, rep.Branch, rep.Base = patches[0].dispatch.Source.Name, f.branch, bases[0]
	rep.Merged, rep.Conflicts = []mergedTask{}, []taskConflict{}
	s := &merging{t: t, r: r, repo: m, report: &rep, touched: map[string][]api.TaskID{}}
	if err := s.mergeAll(ctx, patches, f.keepGoing); err != nil {
		return m.explain(ctx, err, bases)
	}
	if len(rep.Merged) > 0 && (f.keepGoing || len(rep.Conflicts) == 0) {
		if f.branch != "" {
			if !m.author.known {
				fmt.Fprintf(t.Stderr, "the author of the commits is bailiwick <%s>: git config has no user.name and user.email\n", noEmail)
			}
			err = m.publish(ctx, f.branch, s.head, bases, t.Now())
			rep.Commit = s.head
		} else {
			err = s.toWorkTree(ctx)
		}
		if err != nil {
			return m.explain(ctx, err, bases)
		}
	}
	if err := t.printMerge(rep); err != nil {
		return err
	}
	if len(rep.Conflicts) > 0 {
		return console.Exit{Status: 1}
	}
	return nil
}

// name names a task of a run, or the dispatch.
func (rep *mergeReport) name(task api.TaskID) string {
	if rep.Dispatch != "" {
		return "dispatch " + string(rep.Dispatch)
	}
	return "task " + string(task)
}

// toWorkTree applies what was merged to the work tree of the repository.
func (s *merging) toWorkTree(ctx context.Context) error {
	w, err := s.repo.openWorkTree(ctx)
	if err != nil {
		return err
	}
	defer w.Close() //nolint:errcheck // nothing is written through it
	tree, files, err := s.repo.merge(ctx, w.head, s.head)
	if err != nil {
		return err
	}
	if files != nil {
		c := taskConflict{Why: fmt.Sprintf("conflict with commit %.12s, which is checked out in %s", w.head, w.top)}
		for _, f := range files {
			c.Files = append(c.Files, conflictFile{f, s.touched[f]})
			if s.report.Dispatch != "" {
				c.Files[len(c.Files)-1].With = nil // its patch is the only one
			}
		}
		s.report.Conflicts = append(s.report.Conflicts, c)
		return nil
	}
	changes, err := w.changesTo(ctx, tree)
	if err != nil {
		return err
	}
	if err := w.check(ctx, changes); err != nil {
		return err
	}
	if err := w.write(ctx, changes); err != nil {
		return fmt.Errorf("work tree %s: %w", w.top, err)
	}
	s.report.WorkTree, s.report.Files = w.top, []api.FileChange{}
	for i := range changes {
		s.report.Files = append(s.report.Files, api.FileChange{Path: changes[i].path, Change: changes[i].word()})
	}
	return nil
}

// selectPatches returns the done tasks with a patch for one source, in the order
// of their dependencies, and why every other task is left out.
func (t *patchVerbs) selectPatches(ctx context.Context, r client.Runtime, run api.Run, source string) ([]doneTask, []taskLeftOut, error) {
	found, left, err := donePatches(ctx, r, run.Tasks)
	if err != nil {
		return nil, nil, err
	}
	var sources []api.Name
	for i := range found {
		if name := found[i].dispatch.Source.Name; !slices.Contains(sources, name) {
			sources = append(sources, name)
		}
	}
	if source == "" {
		switch len(sources) {
		case 0:
			why := ""
			if len(left) == 1 {
				why = fmt.Sprintf("; task %s: %s", left[0].Task, left[0].Why)
			}
			return nil, nil, api.Errorf(api.CodeNotFound, "run %s has no done task with a patch%s", run.RunID, why).WithHint("see: bailiwick run show %s", run.RunID)
		case 1:
			source = string(sources[0])
		default:
			return nil, nil, api.Errorf(api.CodeInvalid, "run %s changes %s: %s", run.RunID, record.Plural(len(sources), "source"), console.Joined(sources, ", ", "none")).WithHint("name one with --source")
		}
	}
	var patches []doneTask
	for _, p := range found {
		if string(p.dispatch.Source.Name) == source {
			patches = append(patches, p)
		} else {
			left = append(left, taskLeftOut{p.task.Task, fmt.Sprintf("it changes source %s", p.dispatch.Source.Name)})
		}
	}
	if patches == nil {
		return nil, nil, api.Errorf(api.CodeNotFound, "run %s has no done task with a patch of source %q", run.RunID, source).WithHint("there are patches of: %s", console.Joined(sources, ", ", "none"))
	}
	return patches, left, nil
}

// donePatches returns the done tasks that have a patch, in the order of their
// dependencies, and why the others have none.
func donePatches(ctx context.Context, r client.Runtime, tasks []api.RunTask) (found []doneTask, left []taskLeftOut, err error) {
	left = []taskLeftOut{}
	by, state := replacements(tasks), map[api.TaskID]api.TaskState{}
	for i := range tasks {
		state[tasks[i].Task] = tasks[i].State
	}
	for _, i := range inOrder(tasks) {
		task := tasks[i]
		why := ""
		of, grew := state[task.GrewFrom]
		switch fix := by[task.Task]; {
		case task.State != api.TaskDone:
			why = fmt.Sprintf("it is %s", task.State)
		case grew && of != api.TaskDone && fixOf(&task) > 0:
			why = fmt.Sprintf("task %s is %s", task.GrewFrom, of)
		case fix != "":
			why = fmt.Sprintf("%s replaces its patch", fix)
		case task.DispatchID == "":
			why = noWorker
		}
		var d api.Dispatch
		if why == "" {
			if d, err = r.Describe(ctx, task.DispatchID, 0); err != nil {
				return nil, nil, fmt.Errorf("task %s: %w", task.Task, err)
			}
			if why, err = noPatch(&d); err != nil {
				return nil, nil, api.Errorf(api.CodeIntegrity, "task %s: %w", task.Task, err)
			}
		}
		if why != "" {
			left = append(left, taskLeftOut{task.Task, why})
			continue
		}
		found = append(found, doneTask{task, d})
	}
	return found, left, nil
}

// noPatch says why a done dispatch has no patch that can be merged, if it has none.
func noPatch(d *api.Dispatch) (why string, err error) {
	switch {
	case d.Outcome == nil || d.Outcome.Patch == nil:
		return "it changed nothing", nil
	case d.Outcome.Patch.Redacted:
		return "values of secrets were removed from its patch", nil
	case d.Source == nil:
		return "it has no source", nil
	case !isCommit(d.Source.Commit):
		return "", fmt.Errorf("source %s at %q, which is not a commit id", d.Source.Name, d.Source.Commit)
	}
	return "", nil
}

// isCommit reports whether s is an object id, so that nothing else reaches git's
// arguments.
func isCommit(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

// merging merges the patches of tasks one after the other.
type merging struct {
	t       *patchVerbs
	r       client.Runtime
	repo    *mergeRepo
	report  *mergeReport
	head    string                  // commit of the merge so far; empty: nothing
	touched map[string][]api.TaskID // tasks merged so far that change a path
}

func (s *merging) mergeAll(ctx context.Context, patches []doneTask, keepGoing bool) error {
	p := s.t.NewProgress("merging " + record.Plural(len(patches), "patch"))
	defer p.Close()
	for i, patch := range patches {
		c, err := s.mergeOne(ctx, patch)
		if err != nil {
			return fmt.Errorf("%s: %w", s.report.name(patch.task.Task), err)
		}
		if c == nil {
			continue
		}
		s.report.Conflicts = append(s.report.Conflicts, *c)
		if !keepGoing {
			for _, rest := range patches[i+1:] {
				s.report.LeftOut = append(s.report.LeftOut, taskLeftOut{rest.task.Task, "the merge stopped before it"})
			}
			break
		}
	}
	return nil
}

// mergeOne merges the patch of a task into the merge so far, or returns the
// conflict.
func (s *merging) mergeOne(ctx context.Context, p doneTask) (*taskConflict, error) {
	at := p.dispatch.Since()
	if p.dispatch.EndedAt != nil {
		at = *p.dispatch.EndedAt
	}
	commit, err := s.commit(ctx, p, at)
	if e, ok := errors.AsType[*patchError](err); ok {
		return &taskConflict{Task: p.task.Task, Why: "git refuses its patch: " + e.why}, nil
	}
	if err != nil {
		return nil, err
	}
	switch s.head {
	case "", p.dispatch.Source.Commit:
		s.head = commit
	default:
		tree, files, err := s.repo.merge(ctx, s.head, commit)
		if err != nil {
			return nil, err
		}
		if files != nil {
			return s.conflict(p, files), nil
		}
		message := fmt.Sprintf("Merge task %s of run %s\n", p.task.Task, s.report.Run)
		if s.head, err = s.repo.record(ctx, tree, message, at, s.head, commit); err != nil {
			return nil, err
		}
	}
	for _, f := range p.dispatch.Outcome.Files {
		s.touched[f.Path] = append(s.touched[f.Path], p.task.Task)
	}
	s.report.Merged = append(s.report.Merged, mergedTask{p.task.Task, commit})
	return nil, nil //nolint:nilnil // no conflict and no error
}

// commit makes a commit of a task's patch on the commit that it started from.
func (s *merging) commit(ctx context.Context, p doneTask, at time.Time) (string, error) {
	patch, err := os.Create(filepath.Join(s.repo.dir, "patch"))
	if err != nil {
		return "", err
	}
	defer patch.Close() //nolint:errcheck // read again through the same file
	if err := s.r.Patch(ctx, p.dispatch.ID, p.dispatch.Attempt, patch); err != nil {
		return "", err
	}
	message := fmt.Sprintf("Dispatch %s of %s\n\n", p.dispatch.ID, p.task.Subagent)
	if s.report.Run != "" {
		message = fmt.Sprintf("Task %s of run %s\n\nBailiwick-Run: %[2]s\nBailiwick-Task: %[1]s\n", p.task.Task, s.report.Run)
	}
	message += fmt.Sprintf("Bailiwick-Subagent: %s\nBailiwick-Dispatch: %s\nBailiwick-Result: %s\n", p.task.Subagent, p.dispatch.ID, p.dispatch.Result)
	return s.repo.commit(ctx, p.dispatch.Source.Commit, patch, message, at)
}

func (s *merging) conflict(p doneTask, files []string) *taskConflict {
	c := &taskConflict{Task: p.task.Task, Why: "it conflicts with earlier patches"}
	for _, f := range files {
		c.Files = append(c.Files, conflictFile{f, s.touched[f]})
	}
	return c
}

func (t *patchVerbs) printMerge(rep mergeReport) error {
	written := rep.Commit != "" || rep.WorkTree != ""
	if t.Format == "name" && !written {
		return nil
	}
	return t.Emit(rep, cmp.Or(rep.Branch, rep.WorkTree), func() {
		switch {
		case rep.Commit != "":
			t.Row("branch", "%s at %s", rep.Branch, rep.Commit)
		case rep.WorkTree != "" && len(rep.Files) == 0:
			t.Row("work tree", "%s has these changes already", rep.WorkTree)
		case rep.WorkTree != "":
			t.Row("work tree", "%s: %s changed, nothing is staged or committed", rep.WorkTree, record.Plural(len(rep.Files), "file"))
			t.Rows("", min(len(rep.Files), maxTroubles), func(i int) string {
				return fmt.Sprintf("%-8s %s", rep.Files[i].Change, console.Line(rep.Files[i].Path))
			})
			if rest := len(rep.Files) - maxTroubles; rest > 0 {
				t.Row("", "and %d more", rest)
			}
		case rep.Branch != "":
			t.Row("branch", "none: nothing was written")
		default:
			t.Row("work tree", "unchanged: nothing was written")
		}
		t.Row("base", "%s of source %s", rep.Base, rep.Source)
		if rep.Dispatch == "" && rep.Branch != "" {
			t.Rows("merged", len(rep.Merged), func(i int) string { return fmt.Sprintf("%s %.12s", rep.Merged[i].Task, rep.Merged[i].Commit) })
		} else if rep.Dispatch == "" && written {
			t.Rows("applied", len(rep.Merged), func(i int) string { return string(rep.Merged[i].Task) })
		}
		for _, c := range rep.Conflicts {
			why := console.Line(c.Why)
			if c.Task != "" || rep.Dispatch != "" {
				why = rep.name(c.Task) + ": " + why
			}
			t.Row("CONFLICT", "%s", why)
			for _, f := range c.Files {
				with := ""
				if len(f.With) > 0 {
					with = " (also changed by " + console.Joined(f.With, ", ", "") + ")"
				}
				t.Row("", "  %s%s", console.Line(f.Path), with)
			}
		}
		t.Rows("left out", len(rep.LeftOut), func(i int) string { return fmt.Sprintf("%s: %s", rep.LeftOut[i].Task, rep.LeftOut[i].Why) })
		switch {
		case rep.Commit != "":
			t.Row("next", "git log --graph %s, git diff %.12s %s", rep.Branch, rep.Base, rep.Branch)
		case rep.WorkTree != "" && len(rep.Files) > 0:
			t.Row("next", "%s", console.ShellText("git", "-C", rep.WorkTree, "status"))
		case rep.Dispatch != "" && len(rep.Conflicts) > 0:
			t.Row("next", "put it on a branch and merge that: bailiwick dispatch apply %s --branch NAME", rep.Dispatch)
		case rep.Branch == "" && len(rep.Conflicts) > 0 && rep.Conflicts[0].Task == "":
			t.Row("next", "put the patches on a branch and merge that: bailiwick run apply %s --branch NAME", rep.Run)
		case len(rep.Conflicts) > 0:
			t.Row("next", "leave out conflicting patches with --keep-going, or take one task's: bailiwick run apply %s TASK", rep.Run)
		}
	})
}
