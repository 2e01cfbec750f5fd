// Package runverbs has the verbs of bailiwick about plans and runs: run, queue and schedule.
//
// It checks and draws plans here (R-O2). Everything about a run is a call to
// the service, which carries the run out whatever happens to this process; none
// of these verbs starts a service. The patches of a run are merged beside the
// user's git repository and never touch its work tree (see mergeRepo).
package runverbs

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"slices"

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

// Manual is the text about the verbs.
//
//go:embed verbs.md
var Manual string

// Verbs are the verbs about runs, and dispatch apply.
func Verbs(cfg Config) console.Verbs {
	t := &commands{cfg}
	plan, patch, queue, budget, schedule := &planVerbs{t}, &patchVerbs{t}, &queueVerbs{t}, &budgetVerbs{t}, &scheduleVerbs{t}
	return console.Verbs{
		"run validate":     plan.validateCommand,
		"run render":       plan.renderCommand,
		"run schema":       plan.schemaCommand,
		"run import":       plan.importCommand,
		"run submit":       plan.submitCommand,
		"run list":         t.listCommand,
		"run show":         t.showCommand,
		"run watch":        t.watchCommand,
		"run logs":         t.logsCommand,
		"run wait":         t.waitCommand,
		"run cancel":       t.cancelCommand,
		"run pause":        t.steerVerb("is paused", client.Operator.PauseRun),
		"run resume":       t.steerVerb("is resumed", client.Operator.ResumeRun),
		"run append":       plan.appendCommand,
		"run retry":        plan.retryCommand,
		"run answer":       t.answerCommand,
		"run patch":        patch.patchCommand,
		"run apply":        patch.applyCommand,
		"run outputs":      t.outputsCommand,
		"queue list":       queue.listCommand,
		"queue pause":      queue.change(client.Operator.PauseQueue),
		"queue resume":     queue.change(client.Operator.ResumeQueue),
		"budget list":      budget.listCommand,
		"budget show":      budget.showCommand,
		"schedule list":    schedule.listCommand,
		"schedule show":    schedule.showCommand,
		"schedule next":    schedule.nextCommand,
		"schedule history": schedule.historyCommand,
		"schedule run":     schedule.runCommand,
		"schedule pause":   schedule.change(client.Operator.PauseSchedule),
		"schedule resume":  schedule.change(client.Operator.ResumeSchedule),
		"waiting":          t.waitingCommand,
		"dispatch apply":   patch.dispatchApplyCommand,
	}
}

// withConn calls do with a connection. A missing service is an error that says
// how to start one with an orchestrator, which a service that shuts down when it
// is idle does not have.
func (t *commands) withConn(do func(*client.Conn) error) error {
	c := t.Connect()
	defer c.Close()
	err := do(c)
	if e, ok := errors.AsType[*api.Error](err); ok && client.NoService(err) {
		return e.WithHint("run: %s", startRuns(err))
	}
	return err
}

// connVerb is a verb that calls the service.
func (t *commands) connVerb(v *console.Verb, do func(ctx context.Context, c *client.Conn, args []string) error) {
	v.Do(func(ctx context.Context, args []string) error {
		return t.withConn(func(c *client.Conn) error { return do(ctx, c, args) })
	})
}

// runVerb is a verb about the run that its first argument names.
func (t *commands) runVerb(v *console.Verb, do func(ctx context.Context, c *client.Conn, id api.RunID, args []string) error) {
	v.Do(func(ctx context.Context, args []string) error {
		id, err := api.ParseRunID(args[0])
		if err != nil {
			return api.Errorf(api.CodeInvalid, "%w", err)
		}
		return t.withConn(func(c *client.Conn) error { return do(ctx, c, id, args) })
	})
}

// runsVerb is a verb about the runs that its arguments name, each once.
func (t *commands) runsVerb(v *console.Verb, do func(ctx context.Context, c *client.Conn, ids []api.RunID) error) {
	v.Do(func(ctx context.Context, args []string) error {
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
		return t.withConn(func(c *client.Conn) error { return do(ctx, c, ids) })
	})
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
