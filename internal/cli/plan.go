package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/plan"
)

// planCommands are the verbs of run about plans as texts. They need no
// service.
func (t *tree) planCommands() []*cobra.Command {
	return []*cobra.Command{t.runValidateCommand(), t.runRenderCommand(), t.runSchemaCommand(), t.runImportCommand()}
}

func (t *tree) runValidateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "validate FILE|-", Short: "Check a plan, YAML or JSON, and say all that is wrong with it", Args: cobra.ExactArgs(1),
		Long: `Check a plan without a service. All that is wrong is said at once, each with its line,
column and JSONPath, and exit status 1. Whether its subagents and sources are in the
catalog, and whether you may use them, the service says when it is submitted.`,
		Example: `  bailiwick run validate plan.yaml
  bailiwick run validate - -o json < plan.json`,
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := t.planText(args[0])
			if err != nil {
				return err
			}
			p, places := plan.Read(text)
			if t.output == "json" || t.output == "jsonl" {
				return t.printVerdict(p, places)
			}
			if p == nil {
				return t.refusePlan(args[0], places)
			}
			if t.output == "name" {
				fmt.Fprintln(t.Stdout, p.Digest())
				return nil
			}
			fmt.Fprintf(t.Stdout, "%s: %s\n", lineOf(args[0]), planSize(p))
			t.row("queue", "%s", p.Queue)
			t.row("digest", "%s", p.Digest())
			return nil
		},
	}
}

// verdict is what a program is told of a plan.
type verdict struct {
	Valid    bool         `json:"valid"`
	Digest   api.Digest   `json:"digest,omitempty"`
	Tasks    int          `json:"tasks,omitempty"`
	Problems []plan.Place `json:"problems,omitempty"`
}

func (t *tree) printVerdict(p *plan.Plan, places []plan.Place) error {
	v := verdict{Valid: p != nil, Problems: places}
	if p != nil {
		v.Digest, v.Tasks = p.Digest(), len(p.Tasks)
	}
	if err := t.printJSON(v); err != nil || p != nil {
		return err
	}
	return errSilent{api.Table()[api.CodeInvalid].Exit}
}

// refusePlan shows where in a file each problem is, and returns the error of
// all of them.
func (t *tree) refusePlan(file string, places []plan.Place) *api.Error {
	problems := make([]api.Problem, len(places))
	for i, p := range places {
		problems[i] = p.Problem
		sep := ": "
		if p.Line > 0 {
			sep = ":"
		}
		fmt.Fprintf(t.Stderr, "%s%s%s\n", lineOf(file), sep, lineOf(p.String()))
	}
	e := plan.Error(problems)
	e.Problems = nil // they are shown already
	return e.WithHint("see: bailiwick run schema")
}

// planSize is how large a plan is, in words.
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
		counted(len(p.Layers()), "layer", "layers"),
	}, ", ")
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func (t *tree) runRenderCommand() *cobra.Command {
	outputs := []string{"text", "dot", "mermaid", "json"}
	return &cobra.Command{
		Use: "render FILE|-", Short: "Draw a plan: what can run at once, and what comes after what", Args: cobra.ExactArgs(1),
		Long: `Draw a plan in layers: the tasks of a layer can run at once, if their locks let them, when
those of the layers above are done. Here -o is text, dot (Graphviz), mermaid, or json: the
plan in its canonical form.`,
		Example: `  bailiwick run render plan.yaml
  bailiwick run render plan.yaml -o dot | dot -Tsvg > plan.svg`,
		// In the place of the root's, which does not know dot and mermaid.
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if !slices.Contains(outputs, t.output) {
				return api.Errorf(api.CodeInvalid, "output %q: want text, dot, mermaid or json", t.output)
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := t.planToSubmit(args[0])
			if err != nil {
				return err
			}
			switch t.output {
			case "dot":
				fmt.Fprint(t.Stdout, plain(p.DOT()))
			case "mermaid":
				fmt.Fprint(t.Stdout, plain(p.Mermaid()))
			case "json":
				fmt.Fprintf(t.Stdout, "%s\n", p.Canonical())
			default:
				t.drawPlan(p)
			}
			return nil
		},
	}
}

// drawPlan draws a plan in layers.
func (t *tree) drawPlan(p *plan.Plan) {
	fmt.Fprintln(t.Stdout, planSize(p))
	ids, subagents := 0, 0
	for _, task := range p.Tasks {
		ids, subagents = max(ids, len(task.ID)), max(subagents, len(task.Subagent))
	}
	for n, layer := range p.Layers() {
		for k, i := range layer {
			mark := "      "
			if k == 0 {
				mark = fmt.Sprintf("%5d ", n+1)
			}
			task := p.Tasks[i]
			line := fmt.Sprintf("%s%-*s  %-*s  %s", mark, ids, task.ID, subagents, task.Subagent, strings.Join(taskFacts(p, int(i)), "; "))
			fmt.Fprintln(t.Stdout, lineOf(strings.TrimRight(line, " ")))
		}
	}
}

// maxFacts is how many of a kind are shown of one task.
const maxFacts = 8

// taskFacts is what holds a task up, in words.
func taskFacts(p *plan.Plan, i int) []string {
	var facts []string
	after := make([]string, 0, len(p.Deps(i)))
	for _, d := range p.Deps(i) {
		id := p.Tasks[d].ID
		after = append(after, strings.Join(append([]string{string(id)}, p.Products(i, id)...), " "))
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
	if n := p.Tasks[i].Retry.Attempts; n > 1 {
		facts = append(facts, fmt.Sprintf("%d attempts", n))
	}
	return facts
}

func (t *tree) runSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of a plan", Args: cobra.NoArgs,
		Long: `Print the JSON Schema (draft 2020-12) of a plan. An editor that knows it completes and
checks plans as they are written.`,
		Example: `  bailiwick run schema > plan.schema.json`,
		RunE: func(*cobra.Command, []string) error {
			fmt.Fprintf(t.Stdout, "%s", api.PlanSchema())
			return nil
		},
	}
}

func (t *tree) runImportCommand() *cobra.Command {
	return &cobra.Command{
		Use: "import FILE|-", Short: "Translate a Pangolin plan.json into a plan", Args: cobra.ExactArgs(1),
		Long: `Translate a Pangolin plan whose items have the executor dispatch, and print it as YAML, or
as JSON with -o json. What became of each item is said on standard error. What has no
translation is refused; only titles and the like are left out, and that is said too.`,
		Example: `  bailiwick run import plan.json > plan.yaml`,
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := t.planText(args[0])
			if err != nil {
				return err
			}
			return t.importPlan(args[0], text)
		},
	}
}

func (t *tree) importPlan(file string, text []byte) error {
	read, places := plan.ReadText(text)
	if places != nil {
		return t.refusePlan(file, places)
	}
	p, notes, problems := plan.Import(read.JSON)
	for _, n := range notes {
		fmt.Fprintf(t.Stderr, "%s: %s\n", lineOf(file), lineOf(n.String()))
	}
	if p == nil {
		return t.refusePlan(file, read.Places(problems)).WithHint("see: bailiwick run import --help")
	}
	if t.output != "text" {
		fmt.Fprintf(t.Stdout, "%s\n", p.Canonical())
		return nil
	}
	out, err := p.YAML()
	if err != nil {
		return api.Errorf(api.CodeInvalid, "%s: %w", file, err).WithHint("bailiwick run import %s -o json", file)
	}
	fmt.Fprintf(t.Stdout, "%s", out)
	return nil
}
