// Package runverbs has the verbs of bailiwick about plans and runs: run, queue and schedule.
//
// It checks and draws plans here (R-O2). Everything about a run is a call to
// the service, which carries the run out whatever happens to this process; none
// of these verbs starts a service. The patches of a run are merged beside the
// user's git repository and never touch its work tree (see mergeRepo).
package runverbs

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// Config is what the verbs need of the command tree that they are part of.
type Config struct {
	*console.Output
	Stdin   io.Reader
	Connect func() *client.Conn // to a running service; it must not start one
	Start   func() *client.Conn // to a service, which it starts if none is running
}

type commands struct{ Config }

// Commands returns the nouns run, queue and schedule, and the verb waiting.
func Commands(cfg Config) []*cobra.Command {
	t := &commands{cfg}
	run := console.Noun("run", "Submit plans of many dispatches, watch and steer the runs, and take their results",
		console.Group{Title: "Plans:", Commands: []*cobra.Command{t.validateCommand(), t.renderCommand(), t.schemaCommand(), t.importCommand(), t.submitCommand()}},
		console.Group{Title: "Watch:", Commands: []*cobra.Command{t.listCommand(), t.showCommand(), t.watchCommand(), t.logsCommand(), t.waitCommand()}},
		console.Group{Title: "Steer:", Commands: []*cobra.Command{t.cancelCommand(), t.pauseCommand(), t.resumeCommand(), t.appendCommand(), t.retryCommand(), t.answerCommand()}},
		console.Group{Title: "Results:", Commands: []*cobra.Command{t.patchCommand(), t.applyCommand(), t.outputsCommand()}})
	run.Long = `A plan is a file of tasks. Each task is a dispatch, with its dependencies, the results it
needs from other tasks, its locks and its retries. A run is a submitted plan. The service
carries it out, even if this command or the service stops meanwhile.

A service with an orchestrator carries out runs: bailiwick up --orchestrator. Without one
they are only shown. validate, render, schema and import need no service.`
	run.Example = console.Examples("bailiwick run validate plan.yaml", "bailiwick run submit plan.yaml --watch", "bailiwick run show RUN",
		"bailiwick run answer RUN --task TASK 'use the second one'", "bailiwick run patch RUN --merge BRANCH")
	return []*cobra.Command{run, t.queueCommand(), t.budgetCommand(), t.scheduleCommand(), t.waitingCommand()}
}

// withConn calls do with a connection. A missing service is an error that says
// how to start one with an orchestrator, which a service that shuts down when it
// is idle does not have.
func (t *commands) withConn(do func(*client.Conn) error) error {
	c := t.Connect()
	defer c.Close()
	err := do(c)
	if e, ok := errors.AsType[*api.Error](err); ok && client.NoService(err) {
		return e.WithHint("run: bailiwick up --orchestrator")
	}
	return err
}

// runVerb is a verb about the run that its first argument names.
func (t *commands) runVerb(cmd *cobra.Command, do func(ctx context.Context, c *client.Conn, id api.RunID, args []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := api.ParseRunID(args[0])
		if err != nil {
			return api.Errorf(api.CodeInvalid, "%w", err)
		}
		return t.withConn(func(c *client.Conn) error { return do(cmd.Context(), c, id, args) })
	}
	return cmd
}

// runsVerb is a verb about the runs that its arguments name, each once.
func (t *commands) runsVerb(cmd *cobra.Command, do func(ctx context.Context, c *client.Conn, ids []api.RunID) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var a console.Args
		var ids []api.RunID
		for _, arg := range args {
			if id := console.Parse(&a, arg, api.ParseRunID); !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		if a.Err != nil {
			return a.Err
		}
		return t.withConn(func(c *client.Conn) error { return do(cmd.Context(), c, ids) })
	}
	return cmd
}

// taskID parses the id of a task; it may be empty.
func taskID(a *console.Args, s string) api.TaskID {
	return console.Optional(a, s, api.ParseGrownTaskID)
}

// wholeRun returns a run with all of its tasks.
func wholeRun(ctx context.Context, r client.Runtime, id api.RunID) (api.Run, error) {
	return r.WholeRun(ctx, id)
}

// taskOf returns a task of a run.
func taskOf(run *api.Run, id api.TaskID) (*api.RunTask, error) {
	for i := range run.Tasks {
		if run.Tasks[i].Task == id {
			return &run.Tasks[i], nil
		}
	}
	return nil, api.Errorf(api.CodeNotFound, "run %s has no task %s", run.RunID, id).WithHint("see: bailiwick run show %s", run.RunID)
}

// outcome is the exit status of a command that followed a run to its end. A
// denial has its own status, since a retry fails in the same way.
func outcome(run *api.Run) error {
	switch {
	case run.State == api.RunDone:
		return nil
	case run.Counts[api.TaskDenied] > 0:
		return console.ExitFor(api.CodeDenied)
	}
	return console.Exit{Status: 1}
}
