package runverbs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

func (t *commands) appendCommand() *cobra.Command {
	var key string
	var dry bool
	cmd := t.runVerb(&cobra.Command{
		Use: "append RUN FILE|-", Short: "Add tasks to a run that has not ended", Args: cobra.ExactArgs(2),
		Long: `Add the tasks of a file, YAML or JSON with the key tasks, to a run of yours that is open. They
are checked as a submitted plan is, with the names of the catalog revision of the run and by
the grants, ceilings and stops of today: all of them are added, or none, and every problem is
reported. They may depend on each other, and on tasks of the plan and those appended before.

Only the owner of a run appends to it. The limit limits.tasks of the plan counts all its tasks.
Repeating the command with the same --key adds nothing, so a script can retry it.`,
		Example: console.Examples("bailiwick run append RUN more.yaml", "bailiwick run append RUN more.yaml --dry-run", "bailiwick run append nightly-7 - --key docs < more.json"),
	}, func(ctx context.Context, c *client.Conn, id api.RunID, args []string) error {
		read, tasks, err := t.readTasks(args[1])
		if err != nil {
			return err
		}
		run, err := c.Operator().AppendRun(ctx, id, api.RunAppend{Tasks: tasks, Key: key, DryRun: dry})
		if err != nil {
			return t.refuseTasks(args[1], read, err)
		}
		return t.printAppended(&run, tasks, dry)
	})
	cmd.Flags().StringVar(&key, "key", "", "a text of your choice: repeating the command with it adds nothing (default: a random one)")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "check the tasks with the service, and add nothing")
	return cmd
}

// readTasks reads a file with the key tasks.
func (t *commands) readTasks(file string) (plan.Text, json.RawMessage, error) {
	text, err := t.readPlanText(file)
	if err != nil {
		return plan.Text{}, nil, err
	}
	read, places := plan.ReadText(text)
	if places != nil {
		return read, nil, t.refusePlan(file, places)
	}
	var members map[string]json.RawMessage
	var problems []api.Problem
	if json.Unmarshal(read.JSON, &members) != nil || members["tasks"] == nil {
		problems = append(problems, api.Problem{Path: "$", Message: "want an object with the key tasks"})
	}
	for name := range members {
		if name != "tasks" {
			problems = append(problems, api.Problem{Path: plan.Member("$", name), Message: "unknown key: the file has tasks only; the rest is that of the run's plan"})
		}
	}
	if len(problems) > 0 {
		return read, nil, t.refusePlan(file, read.Places(problems))
	}
	return read, members["tasks"], nil
}

// refuseTasks prints the problems that the service found with their places in the file.
func (t *commands) refuseTasks(file string, read plan.Text, err error) error {
	e, ok := errors.AsType[*api.Error](err)
	if !ok || len(e.Problems) == 0 {
		return err
	}
	refused := t.refusePlan(file, read.Places(e.Problems))
	refused.Code, refused.AuditEntry, refused.Message = e.Code, e.AuditEntry, strings.Replace(refused.Message, "the plan has", "the tasks have", 1)
	refused.Hint = cmp.Or(e.Hint, refused.Hint)
	return refused
}

func (t *commands) printAppended(run *api.Run, tasks json.RawMessage, dry bool) error {
	var list []json.RawMessage
	_ = json.Unmarshal(tasks, &list) // the service has read it
	return t.Emit(run, string(run.RunID), func() {
		if dry {
			fmt.Fprintf(t.Stdout, "run %s would have %s; nothing was appended\n", run.RunID, record.Plural(run.Total, "task"))
			return
		}
		fmt.Fprintln(t.Stdout, run.RunID)
		fmt.Fprintf(t.Stderr, "%s appended; the run has %d now; watch with: bailiwick run watch %s\n", record.Plural(len(list), "task"), run.Total, run.RunID)
	})
}
