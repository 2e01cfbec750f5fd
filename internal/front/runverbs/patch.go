package runverbs

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// patchVerbs are the verbs that print, apply and merge patches.
type patchVerbs struct{ *commands }

func (t *patchVerbs) patchCommand(v *console.Verb) {
	var all, raw bool
	var dir string
	var f mergeFlags
	t.runVerb(v, func(ctx context.Context, c *client.Conn, id api.RunID, args []string) error {
		merge := v.Flags().Changed("merge")
		task, err := patchArgs(args, all, merge, v.Flags().Changed("dir"), f)
		if err != nil {
			return err
		}
		run, err := wholeRun(ctx, c.Runtime(), id)
		switch {
		case err != nil:
			return err
		case all:
			return t.writePatches(ctx, c.Runtime(), &run, dir)
		case merge:
			return t.mergeRun(ctx, c.Runtime(), run, f)
		case task == "":
			return t.listPatches(ctx, c.Runtime(), &run)
		}
		return t.Content(raw, func(w io.Writer) error { return printPatch(ctx, c.Runtime(), &run, task, w, t.Stderr) })
	})
	v.Flag(&raw, "raw")
	v.Flag(&all, "all")
	dir = "."
	v.Flag(&dir, "dir")
	v.Flag(&f.branch, "merge")
	v.Flag(&f.repo, "repo")
	v.Flag(&f.source, "source")
	v.Flag(&f.keepGoing, "keep-going")
}

// patchArgs refuses arguments and flags that do not go together.
func patchArgs(args []string, all, merge, dirSet bool, f mergeFlags) (task api.TaskID, err error) {
	var a console.Args
	modes := 0
	for _, chosen := range []bool{len(args) == 2, all, merge} {
		if chosen {
			modes++
		}
	}
	if len(args) == 2 {
		task = console.Parse(&a, args[1], api.ParseGrownTaskID)
	}
	switch {
	case modes > 1:
		a.Fail(fmt.Errorf("patch: want a task, --all or --merge BRANCH, one of the three"))
	case !all && dirSet, !merge && (f.repo != "" || f.source != "" || f.keepGoing):
		a.Fail(fmt.Errorf("patch: --dir goes with --all; --repo, --source and --keep-going go with --merge"))
	case merge && f.branch == "":
		a.Fail(fmt.Errorf("patch: --merge needs the name of the new branch"))
	}
	return task, a.Err
}

func printPatch(ctx context.Context, r client.Runtime, run *api.Run, id api.TaskID, w, notes io.Writer) error {
	task, err := taskOf(run, id)
	if err != nil {
		return err
	}
	if fix := replacements(run.Tasks)[id]; fix != "" && task.State == api.TaskDone {
		fmt.Fprintf(notes, "this is the patch of %s, which replaces the patch of %s\n", fix, id)
		if task, err = taskOf(run, fix); err != nil {
			return err
		}
	}
	if task.DispatchID == "" && task.State == api.TaskDone {
		return api.Errorf(api.CodeNotFound, "task %s of run %s has no patch: %s", id, run.RunID, noWorker).WithHint("see: bailiwick run patch %s", run.RunID)
	}
	if task.DispatchID == "" {
		return api.Errorf(api.CodeNotFound, "task %s of run %s is %s and was never started, so it has no patch", id, run.RunID, task.State)
	}
	if d, err := r.Describe(ctx, task.DispatchID, 0); err == nil && d.Outcome != nil && d.Outcome.Patch != nil && d.Outcome.Patch.Redacted {
		fmt.Fprintf(notes, "%s\n", console.RedactedPatch)
	}
	return r.Patch(ctx, task.DispatchID, 0, w)
}

// taskPatch describes a task's patch.
type taskPatch struct {
	Task    api.TaskID    `json:"task"`
	State   api.TaskState `json:"state"`
	Size    int64         `json:"size,omitempty"`
	Digest  api.Digest    `json:"digest,omitempty"`
	Partial bool          `json:"partial,omitempty"`
	Why     string        `json:"why,omitempty"`  // it has no patch
	File    string        `json:"file,omitempty"` // that it was written to
	// Replaced is the fix of a gate whose patch replaces this one.
	Replaced api.TaskID `json:"replacedBy,omitempty"`

	dispatch api.DispatchID
	attempt  int // of the dispatch
}

func (p taskPatch) exists() bool { return p.Why == "" }

func describePatch(ctx context.Context, r client.Runtime, task *api.RunTask) (taskPatch, error) {
	p := taskPatch{Task: task.Task, State: task.State}
	switch {
	case task.DispatchID == "" && task.State == api.TaskDone:
		p.Why = noWorker
		return p, nil
	case task.DispatchID == "":
		p.Why = "it was never started"
		return p, nil
	}
	d, err := r.Describe(ctx, task.DispatchID, 0)
	switch {
	case err != nil:
		return p, fmt.Errorf("task %s: %w", task.Task, err)
	case d.Outcome == nil:
		p.Why = "it has not ended"
	case d.Outcome.Patch == nil:
		p.Why = console.NoChanges
	default:
		p.Size, p.Digest, p.Partial, p.dispatch, p.attempt = d.Outcome.Patch.Size, d.Outcome.Patch.Digest, d.Outcome.Partial, d.ID, d.Attempt
	}
	return p, nil
}

// describePatches describes the patches of all tasks, after each has seen it.
func describePatches(ctx context.Context, r client.Runtime, run *api.Run, each func(*taskPatch) error) ([]taskPatch, error) {
	list, by := []taskPatch{}, replacements(run.Tasks)
	for i := range run.Tasks {
		p, err := describePatch(ctx, r, &run.Tasks[i])
		p.Replaced = by[p.Task]
		if err == nil && p.exists() {
			err = each(&p)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

func (t *patchVerbs) listPatches(ctx context.Context, r client.Runtime, run *api.Run) error {
	list, err := describePatches(ctx, r, run, func(*taskPatch) error { return nil })
	if err != nil {
		return err
	}
	return t.printPatches(list, func(p taskPatch) string { return string(p.Task) })
}

func (t *patchVerbs) printPatches(list []taskPatch, name func(taskPatch) string) error {
	if t.Format == "name" {
		list = slices.DeleteFunc(list, func(p taskPatch) bool { return !p.exists() })
	}
	return console.List(t.Output, list, name, "TASK\tSTATE\tPATCH", func(p taskPatch) string {
		what := "none: " + p.Why
		if p.exists() {
			what = strings.TrimSpace(p.File + " " + console.Bytes(p.Size))
		}
		if p.Partial {
			what += ", partial: captured before the work was complete"
		}
		if p.Replaced != "" && p.exists() {
			what += ", which " + string(p.Replaced) + " replaces"
		}
		return fmt.Sprintf("%s\t%s\t%s", p.Task, p.State, what)
	})
}

// writePatches writes every task's patch below dir and nowhere else.
func (t *patchVerbs) writePatches(ctx context.Context, r client.Runtime, run *api.Run, dir string) error {
	folder, err := console.CreateFolder(dir)
	if err != nil {
		return err
	}
	defer folder.Close() //nolint:errcheck // nothing is written through it
	list, err := describePatches(ctx, r, run, func(p *taskPatch) (err error) {
		// A task id is safe as the name of a file.
		p.File, err = folder.WriteFile(string(p.Task)+".patch", func(w io.Writer) error { return r.Patch(ctx, p.dispatch, p.attempt, w) })
		if err != nil {
			err = fmt.Errorf("task %s: %w", p.Task, err)
		}
		return err
	})
	if err != nil {
		return err
	}
	return t.printPatches(list, func(p taskPatch) string { return p.File })
}
