package runverbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

type submitFlags struct {
	id           string
	fresh        bool // a generated id
	dry          bool
	noReuse      bool
	params       []string
	watch, quiet bool
	wait         time.Duration
}

func (t *planVerbs) submitCommand(v *console.Verb) {
	var f submitFlags
	v.Do(func(ctx context.Context, args []string) error {
		var a console.Args
		a.Wait("--wait", f.wait)
		if f.watch && f.wait > 0 {
			a.Fail(fmt.Errorf("--watch shows the run until its end, --wait %s stops before; want one of the two", f.wait))
		}
		if f.fresh && f.id != "" {
			a.Fail(fmt.Errorf("--new chooses an id, --id %s names one; want one of the two", f.id))
		}
		if a.Err != nil {
			return a.Err
		}
		return t.submit(ctx, args[0], f)
	})
	v.Flag(&f.id, "id")
	v.Flag(&f.fresh, "new")
	paramFlag(v, &f.params)
	v.Flag(&f.noReuse, "no-reuse")
	v.Flag(&f.dry, "dry-run")
	v.Flag(&f.watch, "watch")
	v.Flag(&f.wait, "wait")
	v.Flag(&f.quiet, "quiet")
}

func (t *planVerbs) submit(ctx context.Context, file string, f submitFlags) error {
	p, req, err := t.readRequest(file, f.params)
	if err != nil {
		return err
	}
	req.DryRun, req.NoReuse = f.dry, f.noReuse
	if f.id != "" || f.fresh || req.RunID == "" {
		// Chosen here, so that the request can be repeated if its answer is lost.
		var a console.Args
		if req.RunID = t.newRunID(&a, f.id); a.Err != nil {
			return a.Err
		}
	}
	return t.withConn(func(c *client.Conn) error {
		run, err := c.Runtime().Submit(ctx, req)
		if ctx.Err() != nil {
			fmt.Fprintf(t.Stderr, "run %s may have been submitted; see: bailiwick run show %[1]s\n", req.RunID)
		}
		if err != nil {
			return retryHint(err, req.RunID, "bailiwick run submit %s --id %s", file, req.RunID)
		}
		if run.Existing {
			again := []string{"bailiwick", "run", "submit", file}
			for _, p := range f.params {
				again = append(again, "-p", p)
			}
			return t.printExisting(&run, console.ShellText(again...)+" --new, or --id NEW")
		}
		t.noteSources(ctx, c.Runtime(), p)
		if f.dry {
			return t.printDryRun(&run, p)
		}
		if !f.watch && f.wait == 0 {
			return t.printSubmitted(&run)
		}
		fmt.Fprintf(t.Stderr, "run %s submitted\n", run.RunID)
		if f.watch {
			return t.follow(c, []api.RunID{run.RunID}).watch(ctx, f.quiet)
		}
		return t.follow(c, []api.RunID{run.RunID}).wait(ctx, f.wait)
	})
}

// readRequest reads and checks a plan with the values of its parameters. A plan
// without parameters is sent in its canonical form, another one as it is written: the
// log has the digest of both.
func (t *planVerbs) readRequest(file string, params []string) (*plan.Plan, api.RunRequest, error) {
	var req api.RunRequest
	text, err := t.readPlanText(file)
	if err != nil {
		return nil, req, err
	}
	read, places := plan.ReadText(text)
	if places != nil {
		return nil, req, t.refusePlan(file, places)
	}
	if req.Parameters, err = t.parameters(read, params); err != nil {
		return nil, req, err
	}
	p, places := read.Plan(req.Parameters)
	if p == nil {
		return nil, req, t.refusePlan(file, places)
	}
	req.RunID, req.Plan = p.ID, p.Canonical()
	if plan.Template(read.JSON) != "" {
		req.Plan = read.JSON
	}
	return p, req, nil
}

// parameters reads the values of -p for a plan.
func (t *planVerbs) parameters(read plan.Text, params []string) (map[string]json.RawMessage, error) {
	var all map[string]json.RawMessage
	for _, arg := range params {
		v, err := console.ParseValue("-p", arg, t.Stdin)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = map[string]json.RawMessage{}
		}
		if _, twice := all[v.Key]; twice {
			return nil, api.Errorf(api.CodeInvalid, "-p %s is given twice", v.Key)
		}
		if all[v.Key], err = typed(v, plan.ParameterType(read.JSON, v.Key)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// paramFlag adds the flag -p to a command.
func paramFlag(v *console.Verb, params *[]string) {
	v.Flag(params, "param")
}

// typed returns the JSON of a value for a parameter of a type.
func typed(v console.Value, kind string) (json.RawMessage, error) {
	if v.JSON != nil || kind == "" || kind == "string" {
		return v.Raw(), nil
	}
	doc, err := canon.Canonicalize([]byte(strings.TrimSpace(v.Text)))
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "-p %s=%.60q: the plan requires a value of type %s", v.Key, v.Text, kind).WithHint("as JSON: -p '%s:=…'", v.Key)
	}
	return doc, nil
}

// printDryRun prints what the service would run.
func (t *planVerbs) printDryRun(run *api.Run, p *plan.Plan) error {
	return t.Emit(run, string(run.RunID), func() {
		fmt.Fprintf(t.Stdout, "run %s would start %s in queue %s, under catalog revision %d; nothing was started\n", run.RunID, record.Plural(run.Total, "task"), run.Queue, run.Revision)
		t.drawPlan(p)
	})
}

// readPlanText reads a file, or standard input, up to the largest size of a plan.
func (t *planVerbs) readPlanText(file string) ([]byte, error) {
	from := t.Stdin
	if file != "-" {
		f, err := os.Open(file) //nolint:gosec // G304: the user names the file
		if err != nil {
			return nil, api.Errorf(api.CodeInvalid, "plan: %w", err)
		}
		defer f.Close() //nolint:errcheck // only read
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, api.MaxPlan+1))
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", file, err)
	}
	if len(text) > api.MaxPlan {
		return nil, api.Errorf(api.CodeTooLarge, "plan %s: larger than %d MiB", file, api.MaxPlan>>20)
	}
	return text, nil
}

// newRunID parses an id, or makes one if it is empty.
func (t *planVerbs) newRunID(a *console.Args, id string) api.RunID {
	if id == "" {
		return api.NewRunID(t.Now())
	}
	return console.Parse(a, id, api.ParseRunID)
}

// startRuns is the command that starts the service, with an orchestrator in mode same-user: in
// mode system its settings decide.
func startRuns(err error) string {
	if start := client.HowToStart(err); start != api.StartService(api.ModeSameUser) {
		return start
	}
	return api.StartRuns(api.ModeSameUser)
}

// retryHint says how to repeat a request that may or may not have reached the
// service.
func retryHint(err error, id api.RunID, command string, args ...any) error {
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code == api.CodeUnavailable {
		return e.WithHint("start the service: %s; then run this, which never starts %s twice: %s", startRuns(err), id, fmt.Sprintf(command, args...))
	}
	return err
}

// printSubmitted prints a run that this command submitted.
func (t *planVerbs) printSubmitted(run *api.Run) error {
	return t.Emit(run, string(run.RunID), func() {
		fmt.Fprintln(t.Stdout, run.RunID)
		fmt.Fprintf(t.Stderr, "%s in queue %s; watch with: bailiwick run watch %s\n", record.Plural(run.Total, "task"), run.Queue, run.RunID)
	})
}

// statusExisting is the exit status of a command that submits a run which exists.
const statusExisting = 5

// printExisting prints a run that an earlier command submitted, and how to run its
// plan again.
func (t *planVerbs) printExisting(run *api.Run, again string) error {
	since := run.SubmittedAt
	if run.SettledAt != nil {
		since = *run.SettledAt
	}
	state := fmt.Sprintf("%s %s", run.State, console.Ago(t.Now().Sub(since)))
	if run.SettledAt == nil {
		state = fmt.Sprintf("%s, submitted %s", run.State, console.Ago(t.Now().Sub(since)))
	}
	fmt.Fprintf(t.Stderr, "run %s already exists: %s, %d of %d tasks done; nothing was started\n", run.RunID, state, run.Counts[api.TaskDone], run.Total)
	fmt.Fprintf(t.Stderr, "see it:            bailiwick run show %s\n", run.RunID)
	if run.State.Settled() {
		part := "" // what is done runs again only if it is named
		if run.State == api.RunDone {
			part = " --from TASK"
		}
		fmt.Fprintf(t.Stderr, "run a part again:  bailiwick run retry %s%s\n", run.RunID, part)
	}
	fmt.Fprintf(t.Stderr, "run all of it:     %s\n", console.Line(again))
	if err := t.Emit(run, string(run.RunID), func() { fmt.Fprintln(t.Stdout, run.RunID) }); err != nil {
		return err
	}
	return console.Exit{Status: statusExisting}
}
