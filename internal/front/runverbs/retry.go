package runverbs

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

type retryFlags struct {
	id                         string
	from, sources, inputs, set []string
}

func (t *planVerbs) retryCommand(v *console.Verb) {
	var f retryFlags
	t.runVerb(v, func(ctx context.Context, c *client.Conn, id api.RunID, _ []string) error {
		req, err := t.retryRequest(ctx, c.Runtime(), id, f)
		if err != nil {
			return err
		}
		run, err := c.Operator().RetryRun(ctx, id, req)
		if err != nil {
			return retryHint(err, req.RunID, "bailiwick run retry %s --id %s", id, req.RunID)
		}
		_ = c.Operator().SeeRun(ctx, id) // else the settled run waits on for a person
		if run.Existing {
			return t.printExisting(&run, fmt.Sprintf("bailiwick run retry %s, with another --id or without", id))
		}
		return t.printSubmitted(&run)
	})
	v.Flag(&f.id, "id")
	v.Flag(&f.from, "from")
	v.Flag(&f.sources, "source")
	v.Flag(&f.set, "set")
	v.Flag(&f.inputs, "input")
}

// retryRequest makes the request. Changes of an input need the plan of the run.
func (t *planVerbs) retryRequest(ctx context.Context, r client.Runtime, id api.RunID, f retryFlags) (api.RunRetry, error) {
	var a console.Args
	req := api.RunRetry{RunID: t.newRunID(&a, f.id)}
	for _, task := range f.from {
		req.From = append(req.From, console.Parse(&a, task, api.ParseGrownTaskID))
	}
	for _, s := range f.sources {
		name, commit, at := strings.Cut(s, "@")
		source, err := api.ParseName(name)
		if err != nil || at && commit == "" {
			a.Fail(fmt.Errorf("--source %.80q: want NAME@COMMIT with the name of a source, or NAME for HEAD", s))
		}
		req.Sources = append(req.Sources, api.SourceRequest{Name: source, Commit: commit})
	}
	if a.Err != nil || len(f.inputs) == 0 && len(f.set) == 0 {
		return req, a.Err
	}
	raw, err := r.RunPlan(ctx, id)
	if err != nil {
		return req, err
	}
	p, problems := plan.Parse(raw)
	if p == nil {
		return req, plan.Error(problems)
	}
	in := inputs{plan: p, changed: map[api.TaskID]map[string]json.RawMessage{}}
	for _, s := range f.inputs {
		if err := in.replace(s, t); err != nil {
			return req, err
		}
	}
	for _, s := range f.set {
		if err := in.set(s, t); err != nil {
			return req, err
		}
	}
	req.Inputs = map[api.TaskID]json.RawMessage{}
	for task, members := range in.changed {
		if req.Inputs[task], err = canon.Marshal(members); err != nil {
			return req, err
		}
	}
	return req, nil
}

// inputs are the changed inputs of the tasks of a plan.
type inputs struct {
	plan    *plan.Plan
	changed map[api.TaskID]map[string]json.RawMessage
}

// replace carries out --input TASK=FILE.
func (in *inputs) replace(arg string, t *planVerbs) error {
	task, file, ok := strings.Cut(arg, "=")
	if !ok || file == "" {
		return api.Errorf(api.CodeInvalid, "--input %.80q: want TASK=FILE", arg)
	}
	if _, ok := in.plan.Index(api.TaskID(task)); !ok {
		return plan.NoTask(in.plan.ID, api.TaskID(task))
	}
	v, err := console.ParseValue("--input", task+"@"+file, t.Stdin)
	if err != nil {
		return err
	}
	var members map[string]json.RawMessage
	doc, err := canon.Canonicalize([]byte(v.Text))
	if err == nil {
		err = json.Unmarshal(doc, &members)
	}
	if err != nil || members == nil {
		return api.Errorf(api.CodeInvalid, "--input %s: %s: want a JSON object", task, file)
	}
	in.changed[api.TaskID(task)] = members
	return nil
}

// set carries out --set TASK.KEY=VALUE. An id may have dots: the longest one that
// the plan has counts.
func (in *inputs) set(arg string, t *planVerbs) error {
	v, err := console.ParseValue("--set", arg, t.Stdin)
	if err != nil {
		return err
	}
	for at := strings.LastIndexByte(v.Key, '.'); at > 0; at = strings.LastIndexByte(v.Key[:at], '.') {
		task, key := api.TaskID(v.Key[:at]), v.Key[at+1:]
		i, ok := in.plan.Index(task)
		if !ok || key == "" {
			continue
		}
		if in.changed[task] == nil {
			members := map[string]json.RawMessage{}
			if input := in.plan.Tasks[i].Input; len(input) > 0 {
				if err := json.Unmarshal(input, &members); err != nil {
					return err
				}
			}
			in.changed[task] = members
		}
		in.changed[task][key] = v.Raw()
		return nil
	}
	return api.Errorf(api.CodeNotFound, "--set %.80q: want TASK.KEY=VALUE with a task of run %s", arg, in.plan.ID).WithHint("see: bailiwick run show %s", in.plan.ID)
}
