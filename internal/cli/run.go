package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

func (t *tree) runsCommand() *cobra.Command {
	cmd := group("run", "Submit plans of many dispatches, watch and steer them, and take their results")
	cmd.Long = `A plan is a file of tasks, each of which is a dispatch: what comes after what, what it takes
over from others, what it locks, how often it is tried. A run is a plan that was submitted.
The service carries it out by itself, whatever becomes of this command or of the service.

Runs are carried out by a service that lasts and was told to: bailiwick up --orchestrator.
validate, render, schema and import need none.`
	cmd.Example = `  bailiwick run validate plan.yaml
  bailiwick run submit plan.yaml --watch
  bailiwick run show RUN
  bailiwick run answer RUN --task TASK 'use the second one'
  bailiwick run patch RUN --merge BRANCH`
	cmd.AddCommand(t.runSubmitCommand(), t.runListCommand(), t.runShowCommand(), t.runWatchCommand(), t.runLogsCommand(), t.runWaitCommand(),
		t.runCancelCommand(), t.runPauseCommand(), t.runResumeCommand(), t.runRetryCommand(), t.runAnswerCommand(), t.runPatchCommand())
	cmd.AddCommand(t.planCommands()...)
	return cmd
}

// runConn is for a verb about runs. None starts a service: one that ends when
// it is idle has no orchestrator.
func (t *tree) runConn(do func(*client.Conn) error) error {
	c := t.connThere()
	defer c.Close()
	err := do(c)
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code == api.CodeUnavailable && e.Hint == "run: bailiwick up" {
		return e.WithHint("run: bailiwick up --orchestrator")
	}
	return err
}

// withRun is for a verb about one run.
func (t *tree) withRun(arg string, do func(*client.Conn, api.RunID) error) error {
	var p parser
	id := p.run(arg)
	if p.err != nil {
		return p.err
	}
	return t.runConn(func(c *client.Conn) error { return do(c, id) })
}

// run reads the id of a run.
func (p *parser) run(s string) api.RunID {
	v, err := api.ParseRunID(s)
	p.fail(err)
	return v
}

// task reads the id of a task; empty means none was given.
func (p *parser) task(s string) api.TaskID {
	if s == "" {
		return ""
	}
	v, err := api.ParseTaskID(s)
	p.fail(err)
	return v
}

// runPage is as many tasks as the service gives at once.
const runPage = 1000

// wholeRun returns a run with all of its tasks.
func wholeRun(ctx context.Context, r client.Runtime, id api.RunID) (api.Run, error) {
	run, err := r.Run(ctx, id, "", runPage)
	for next := run.Next; err == nil && next != ""; {
		var page api.Run
		if page, err = r.Run(ctx, id, next, runPage); err != nil {
			break
		}
		// The head as it is now; the tasks before may have been a moment older.
		page.Tasks = append(run.Tasks, page.Tasks...)
		if len(page.Tasks) > api.MaxPlanTasks || page.Next == next {
			return run, api.Errorf(api.CodeInternal, "run %s: the service gives tasks without end", id)
		}
		run, next = page, page.Next
	}
	return run, err
}

// taskOf finds a task of a run.
func taskOf(run *api.Run, id api.TaskID) (*api.RunTask, error) {
	for i := range run.Tasks {
		if run.Tasks[i].Task == id {
			return &run.Tasks[i], nil
		}
	}
	return nil, api.Errorf(api.CodeNotFound, "run %s has no task %s", run.RunID, id).WithHint("see: bailiwick run show %s", run.RunID)
}

// runOutcome turns how a run ended into how the command ends. Whoever is denied
// is not helped by trying again.
func runOutcome(run *api.Run) error {
	switch {
	case run.State == api.RunDone:
		return nil
	case run.Counts[api.TaskDenied] > 0:
		return errSilent{api.Table()[api.CodeDenied].Exit}
	}
	return errSilent{1}
}

func (t *tree) runListCommand() *cobra.Command {
	var last int
	cmd := &cobra.Command{
		Use: "list", Short: "List runs, newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.runConn(func(c *client.Conn) error {
				list, err := c.Runtime().Runs(cmd.Context(), last)
				if err != nil {
					return err
				}
				return printList(t, append([]api.Run{}, list...), func(r api.Run) string { return string(r.RunID) }, "RUN\tSTATE\tDONE\tQUEUE\tPRINCIPAL\tSUBMITTED\tTASKS", func(r api.Run) string {
					return fmt.Sprintf("%s\t%s\t%d/%d\t%s\t%s\t%s\t%s", r.RunID, r.State, r.Counts[api.TaskDone], r.Total, r.Queue, r.Principal, r.SubmittedAt.Format(timeFormat), countsText(r.Counts))
				})
			})
		},
	}
	cmd.Flags().IntVar(&last, "last", 50, "how many")
	return cmd
}
