package runverbs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

func (t *planVerbs) appendCommand(v *console.Verb) {
	var key string
	var dry bool
	t.runVerb(v, func(ctx context.Context, c *client.Conn, id api.RunID, args []string) error {
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
	v.Flag(&key, "key")
	v.Flag(&dry, "dry-run")
}

// readTasks reads a file with the key tasks.
func (t *planVerbs) readTasks(file string) (plan.Text, json.RawMessage, error) {
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
			problems = append(problems, api.Problem{Path: plan.Member("$", name), Message: "unknown key: the file has tasks only; everything else is in the run's plan"})
		}
	}
	if len(problems) > 0 {
		return read, nil, t.refusePlan(file, read.Places(problems))
	}
	return read, members["tasks"], nil
}

// refuseTasks prints the problems that the service found with their places in the file.
func (t *planVerbs) refuseTasks(file string, read plan.Text, err error) error {
	e, ok := errors.AsType[*api.Error](err)
	if !ok || len(e.Problems) == 0 {
		return err
	}
	refused := t.refusePlan(file, read.Places(e.Problems))
	refused.Code, refused.AuditEntry, refused.Message = e.Code, e.AuditEntry, strings.Replace(refused.Message, "the plan has", "the tasks have", 1)
	refused.Hint = cmp.Or(e.Hint, refused.Hint)
	return refused
}

func (t *planVerbs) printAppended(run *api.Run, tasks json.RawMessage, dry bool) error {
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
