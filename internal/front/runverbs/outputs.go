package runverbs

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// taskOutput is an output of a task.
type taskOutput struct {
	Task     api.TaskID     `json:"task"`
	Dispatch api.DispatchID `json:"dispatchId"`
	api.Artifact
	File string `json:"file,omitempty"` // that it was written to

	attempt int // of the dispatch
}

func (t *commands) outputsCommand(v *console.Verb) {
	var dir string
	var force bool
	t.runVerb(v, func(ctx context.Context, c *client.Conn, id api.RunID, args []string) error {
		var a console.Args
		var only api.TaskID
		if len(args) == 2 {
			only = console.Parse(&a, args[1], api.ParseGrownTaskID)
		}
		if force && dir == "" {
			a.Fail(fmt.Errorf("--force goes with --dir"))
		}
		if a.Err != nil {
			return a.Err
		}
		run, err := wholeRun(ctx, c.Runtime(), id)
		if err != nil {
			return err
		}
		list, err := outputsOf(ctx, c.Runtime(), &run, only)
		if err == nil && dir != "" {
			err = writeOutputs(ctx, c.Runtime(), list, dir, only == "", force)
		}
		if err != nil {
			return err
		}
		return t.printOutputs(list)
	})
	v.Flag(&dir, "dir")
	v.Flag(&force, "force")
}

// outputsOf returns the outputs of the latest attempt of every task, or of one.
func outputsOf(ctx context.Context, r client.Runtime, run *api.Run, only api.TaskID) ([]taskOutput, error) {
	list := []taskOutput{}
	if only != "" {
		task, err := taskOf(run, only)
		if err != nil {
			return nil, err
		}
		if task.DispatchID == "" && task.State == api.TaskDone {
			return nil, api.Errorf(api.CodeNotFound, "task %s of run %s has no outputs: %s", only, run.RunID, noWorker).WithHint("see: bailiwick run outputs %s", run.RunID)
		}
		if task.DispatchID == "" {
			return nil, api.Errorf(api.CodeNotFound, "task %s of run %s is %s and was never started, so it has no outputs", only, run.RunID, task.State)
		}
	}
	for i := range run.Tasks {
		task := &run.Tasks[i]
		if task.DispatchID == "" || only != "" && task.Task != only {
			continue
		}
		d, err := r.Describe(ctx, task.DispatchID, 0)
		if err != nil {
			return nil, fmt.Errorf("task %s: %w", task.Task, err)
		}
		if d.Outcome == nil {
			continue
		}
		for _, o := range d.Outcome.Outputs {
			list = append(list, taskOutput{Task: task.Task, Dispatch: d.ID, Artifact: o, attempt: d.Attempt})
		}
	}
	return list, nil
}

// writeOutputs writes below dir and nowhere else, whatever the paths are.
func writeOutputs(ctx context.Context, r client.Runtime, list []taskOutput, dir string, byTask, force bool) error {
	folder, err := console.CreateFolder(dir)
	if err != nil {
		return err
	}
	defer folder.Close() //nolint:errcheck // nothing is written through it
	write := folder.WriteFile
	if force {
		write = folder.ReplaceFile
	}
	for i := range list {
		o := &list[i]
		name := o.Path
		if byTask { // a task id is safe as the name of a folder
			name = filepath.Join(string(o.Task), o.Path)
		}
		o.File, err = write(name, func(w io.Writer) error { return r.Output(ctx, o.Dispatch, o.attempt, o.Path, w) })
		if err != nil {
			return fmt.Errorf("task %s, output %s: %w", o.Task, o.Path, err)
		}
	}
	return nil
}

func (t *commands) printOutputs(list []taskOutput) error {
	return console.List(t.Output, list, func(o taskOutput) string { return filepath.Join(string(o.Task), o.Path) }, "TASK\tOUTPUT\tSIZE\tDIGEST", func(o taskOutput) string {
		path := o.Path
		if o.File != "" {
			path = o.File
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s", o.Task, console.Line(path), console.Bytes(o.Size), o.Digest.Short())
	})
}
