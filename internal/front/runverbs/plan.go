package runverbs

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

// planVerbs are the verbs that read a plan.
type planVerbs struct{ *commands }

func (t *planVerbs) validateCommand(v *console.Verb) {
	var params []string
	v.Do(func(_ context.Context, args []string) error {
		text, err := t.readPlanText(args[0])
		if err != nil {
			return err
		}
		var p *plan.Plan
		read, places := plan.ReadText(text)
		if places == nil {
			values, err := t.parameters(read, params)
			if err != nil {
				return err
			}
			p, places = read.Plan(values)
		}
		switch {
		case t.Format == "json" || t.Format == "jsonl":
			return t.printVerdict(p, places)
		case p == nil:
			return t.refusePlan(args[0], places)
		}
		return t.Emit(nil, string(p.Digest()), func() {
			fmt.Fprintf(t.Stdout, "%s: %s\n", console.Line(args[0]), planSize(p))
			t.Row("queue", "%s", p.Queue)
			t.Row("digest", "%s", p.Digest())
		})
	})
	paramFlag(v, &params)
}

// verdict is the JSON answer of validate.
type verdict struct {
	Valid    bool         `json:"valid"`
	Digest   api.Digest   `json:"digest,omitempty"`
	Tasks    int          `json:"tasks,omitempty"`
	Problems []plan.Place `json:"problems,omitempty"`
}

func (t *planVerbs) printVerdict(p *plan.Plan, places []plan.Place) error {
	v := verdict{Valid: p != nil, Problems: places}
	if p != nil {
		v.Digest, v.Tasks = p.Digest(), len(p.Tasks)
	}
	if err := t.JSON(v); err != nil || p != nil {
		return err
	}
	return console.ExitFor(api.CodeInvalid)
}

// refusePlan returns one error for all problems. As text, each is printed here
// with its place in the file.
func (t *planVerbs) refusePlan(file string, places []plan.Place) *api.Error {
	problems := make([]api.Problem, len(places))
	for i, p := range places {
		problems[i] = p.Problem
		if t.Format != "text" {
			continue
		}
		sep := ": "
		if p.Line > 0 {
			sep = ":"
		}
		fmt.Fprintf(t.Stderr, "%s%s%s\n", console.Line(file), sep, console.Line(p.String()))
	}
	e := plan.Error(problems)
	if t.Format == "text" {
		e.Problems = nil // printed above
	}
	return e.WithHint("see: bailiwick run schema")
}

// planSize describes the size of a plan.
func planSize(p *plan.Plan) string {
	edges, locks := 0, map[string]bool{}
	for i, task := range p.Tasks {
		edges += len(p.Deps(i))
		for _, l := range task.Locks {
			locks[l.Key] = true
		}
	}
	return strings.Join([]string{
		counted(len(p.Tasks), "task", "tasks"), counted(edges, "dependency", "dependencies"), counted(len(locks), "lock", "locks"),
		counted(len(plan.Layers(p)), "layer", "layers"),
	}, ", ")
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func (t *planVerbs) renderCommand(v *console.Verb) {
	var params []string
	var run string
	v.Args = func(cmd *cobra.Command, args []string) error {
		if run != "" {
			return cobra.NoArgs(cmd, args)
		}
		return cobra.ExactArgs(1)(cmd, args)
	}
	v.PersistentPreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains([]string{"text", "dot", "mermaid", "json"}, t.Format) {
			return api.Errorf(api.CodeInvalid, "output %q: want text, dot, mermaid or json", t.Format)
		}
		return nil
	}
	v.Do(func(ctx context.Context, args []string) error {
		if run != "" {
			return t.renderRun(ctx, run)
		}
		p, _, err := t.readRequest(args[0], params)
		if err != nil {
			return err
		}
		switch t.Format {
		case "json":
			fmt.Fprintf(t.Stdout, "%s\n", p.Canonical())
		case "text":
			t.drawPlan(p)
		default:
			t.drawGraph(plan.Draw(p))
		}
		return nil
	})
	paramFlag(v, &params)
	v.Flag(&run, "run")
}

func (t *planVerbs) drawGraph(d plan.Drawing) {
	if t.Format == "dot" {
		fmt.Fprint(t.Stdout, console.Plain(d.DOT()))
		return
	}
	fmt.Fprint(t.Stdout, console.Plain(d.Mermaid()))
}

// renderRun draws the tasks of a run.
func (t *planVerbs) renderRun(ctx context.Context, arg string) error {
	id, err := api.ParseRunID(arg)
	if err != nil {
		return api.Errorf(api.CodeInvalid, "%w", err)
	}
	return t.withConn(func(c *client.Conn) error {
		if t.Format == "json" {
			raw, err := c.Runtime().RunPlan(ctx, id)
			if err == nil {
				fmt.Fprintf(t.Stdout, "%s\n", raw)
			}
			return err
		}
		run, err := wholeRun(ctx, c.Runtime(), id)
		if err != nil {
			return err
		}
		if t.Format != "text" {
			t.drawGraph(drawingOf(run.Tasks))
			return nil
		}
		for _, line := range newRunTree(run.Tasks).draw(&run, frame{width: 120, height: len(run.Tasks) + 3, now: t.Now()}) {
			fmt.Fprintln(t.Stdout, console.Line(line))
		}
		return nil
	})
}

// drawingOf is the graph of the tasks of a run.
func drawingOf(tasks []api.RunTask) plan.Drawing {
	number := make(map[api.TaskID]int, len(tasks))
	for i := range tasks {
		number[tasks[i].Task] = i
	}
	d := make(plan.Drawing, len(tasks))
	for i := range tasks {
		task := &tasks[i]
		d[i] = plan.Node{Name: string(task.Task), Lines: []string{strings.TrimSpace(string(task.Subagent) + " " + string(task.State))}}
		for _, id := range task.After {
			if from, ok := number[id]; ok {
				d[i].Edges = append(d[i].Edges, plan.Edge{From: from})
			}
		}
		if from, ok := number[task.GrewFrom]; ok {
			d[i].Edges = append(d[i].Edges, plan.Edge{From: from, Grew: true})
		}
	}
	for i := range tasks {
		if from, ok := number[tasks[i].GrewFrom]; ok {
			d[from].Grows = true
		}
	}
	return d
}

// drawPlan draws a plan in layers.
func (t *planVerbs) drawPlan(p *plan.Plan) {
	fmt.Fprintln(t.Stdout, planSize(p))
	ids, workers := 0, 0
	for i := range p.Tasks {
		ids, workers = max(ids, len(p.Tasks[i].ID)), max(workers, len(plan.Worker(&p.Tasks[i])))
	}
	for n, layer := range plan.Layers(p) {
		for k, i := range layer {
			mark := "      "
			if k == 0 {
				mark = fmt.Sprintf("%5d ", n+1)
			}
			task := &p.Tasks[i]
			line := fmt.Sprintf("%s%-*s  %-*s  %s", mark, ids, task.ID, min(workers, maxWorker), plan.Worker(task), strings.Join(taskFacts(p, int(i)), "; "))
			fmt.Fprintln(t.Stdout, console.Line(strings.TrimRight(line, " ")))
		}
	}
}

// maxWorker is the width of the column of the workers.
const maxWorker = 32

// maxFacts is how many dependencies and how many locks of a task are shown.
const maxFacts = 8

// taskFacts describes what a task waits for and how often it is tried.
func taskFacts(p *plan.Plan, i int) []string {
	var facts []string
	after := make([]string, 0, len(p.Deps(i)))
	for _, d := range p.Deps(i) {
		id := p.Tasks[d].ID
		after = append(after, strings.Join(append([]string{string(id)}, plan.Products(p, i, id)...), " "))
	}
	locks := make([]string, 0, len(p.Tasks[i].Locks))
	for _, l := range p.Tasks[i].Locks {
		if l.Shared {
			l.Key = "shared " + l.Key
		}
		locks = append(locks, l.Key)
	}
	for _, f := range []struct {
		word string
		all  []string
	}{{"after ", after}, {"holds ", locks}} {
		if more := len(f.all) - maxFacts; more > 0 {
			f.all = append(f.all[:maxFacts:maxFacts], fmt.Sprintf("%d more", more))
		}
		if len(f.all) > 0 {
			facts = append(facts, f.word+strings.Join(f.all, ", "))
		}
	}
	facts = append(facts, plan.GrowthText(&p.Tasks[i])...)
	if n := p.Tasks[i].Retry.Attempts; n > 1 {
		facts = append(facts, fmt.Sprintf("%d attempts", n))
	}
	return facts
}

func (t *planVerbs) schemaCommand(v *console.Verb) {
	v.Do(func(_ context.Context, _ []string) error {
		fmt.Fprintf(t.Stdout, "%s", api.PlanSchema())
		return nil
	})
}

func (t *planVerbs) importCommand(v *console.Verb) {
	var executors, approvers []string
	v.Do(func(_ context.Context, args []string) error {
		options := plan.ImportOptions{Targets: map[string]api.Name{}}
		for _, e := range executors {
			executor, target, _ := strings.Cut(e, "=")
			name, err := api.ParseName(target)
			if err != nil || executor == "" {
				return api.Errorf(api.CodeInvalid, "--executor %.80q: want EXECUTOR=TARGET, such as dispatch-a=local", e)
			}
			options.Targets[executor] = name
		}
		options.Approvers = map[string][]api.Principal{}
		for _, a := range approvers {
			role, person, _ := strings.Cut(a, "=")
			p, err := api.ParsePrincipal(person)
			if err != nil || !p.Person() || role == "" {
				return api.Errorf(api.CodeInvalid, "--approver %.80q: want ROLE=PERSON, such as lead=human:ann", a)
			}
			options.Approvers[role] = append(options.Approvers[role], p)
		}
		text, err := t.readPlanText(args[0])
		if err != nil {
			return err
		}
		return t.importPlan(args[0], text, options)
	})
	v.Flag(&executors, "executor")
	v.Flag(&approvers, "approver")
}

func (t *planVerbs) importPlan(file string, text []byte, options plan.ImportOptions) error {
	read, places := plan.ReadText(text)
	if places != nil {
		return t.refusePlan(file, places)
	}
	p, notes, problems := plan.Import(read.JSON, options)
	if p == nil {
		return t.refusePlan(file, read.Places(problems)).WithHint("see: bailiwick run import --help")
	}
	for _, n := range notes {
		fmt.Fprintf(t.Stderr, "%s: %s\n", console.Line(file), console.Line(n.String()))
	}
	if t.Format != "text" {
		fmt.Fprintf(t.Stdout, "%s\n", p.Canonical())
		return nil
	}
	out, err := plan.YAML(p)
	if err != nil {
		return api.Errorf(api.CodeInvalid, "%s: %w", file, err).WithHint("bailiwick run import %s -o json", file)
	}
	return t.Content(false, func(w io.Writer) error { _, err := w.Write(out); return err })
}
