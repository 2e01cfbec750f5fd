package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/plan"
)

type submitFlags struct {
	id           string
	watch, quiet bool
	wait         time.Duration
}

func (t *tree) runSubmitCommand() *cobra.Command {
	var f submitFlags
	cmd := &cobra.Command{
		Use: "submit FILE|-", Short: "Submit a plan, YAML or JSON, and print the id of its run", Args: cobra.ExactArgs(1),
		Long: `Submit a plan. It is checked here first, and everything that is wrong with it is said at
once, with line and column. The run goes on whatever becomes of this command; submitting
the same plan under the same id again gives the same run.`,
		Example: `  bailiwick run submit plan.yaml --watch
  bailiwick run submit - --id nightly-7 < plan.json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkWait(f.wait); err != nil {
				return err
			}
			if f.watch && f.wait > 0 {
				return api.Errorf(api.CodeInvalid, "--watch shows the run until its end, --wait %s stops before; want one of the two", f.wait)
			}
			return t.submit(cmd.Context(), args[0], f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.id, "id", "", "id of the run (default: the plan's own, else a new one)")
	fl.BoolVar(&f.watch, "watch", false, "watch it to its end")
	fl.DurationVar(&f.wait, "wait", 0, "wait for its end so long, else exit status 8; the run goes on")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "with --watch show nothing but how it ended")
	return cmd
}

func (t *tree) submit(ctx context.Context, file string, f submitFlags) error {
	p, err := t.planToSubmit(file)
	if err != nil {
		return err
	}
	var ids parser
	req := api.RunRequest{Plan: p.Canonical(), RunID: p.ID}
	if f.id != "" || req.RunID == "" {
		// Chosen here, so that it can be submitted again when nobody knows whether
		// it arrived.
		req.RunID = t.newRunID(&ids, f.id)
	}
	if ids.err != nil {
		return ids.err
	}
	return t.runConn(func(c *client.Conn) error {
		run, err := c.Runtime().Submit(ctx, req)
		if ctx.Err() != nil {
			fmt.Fprintf(t.Stderr, "run %s may be there and go on; see: bailiwick run show %[1]s\n", req.RunID)
		}
		if err != nil {
			return unsure(err, req.RunID, "bailiwick run submit %s --id %s", file, req.RunID)
		}
		if !f.watch && f.wait == 0 {
			return t.printSubmitted(&run)
		}
		fmt.Fprintf(t.Stderr, "run %s submitted\n", run.RunID)
		if f.watch {
			return t.watchRun(ctx, c.Runtime(), run.RunID, f.quiet)
		}
		return t.waitRun(ctx, c.Runtime(), run.RunID, f.wait)
	})
}

// planToSubmit reads and checks a plan. All that is wrong with it is in the
// error, each with where it stands in the file.
func (t *tree) planToSubmit(file string) (*plan.Plan, error) {
	text, err := t.planText(file)
	if err != nil {
		return nil, err
	}
	p, places := plan.Read(text)
	if p != nil {
		return p, nil
	}
	return nil, t.refusePlan(file, places)
}

// planText reads a file, or standard input, up to what a plan may have.
func (t *tree) planText(file string) ([]byte, error) {
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

// newRunID reads an id, or makes one where none is given.
func (t *tree) newRunID(p *parser, given string) api.RunID {
	if given == "" {
		return api.NewRunID(t.Now())
	}
	return p.run(given)
}

// unsure adds to an error after which nobody knows whether a run was taken how
// to find out.
func unsure(err error, id api.RunID, again string, args ...any) error {
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code == api.CodeUnavailable {
		return e.WithHint("if nothing runs: bailiwick up --orchestrator; then again, which does nothing twice should run %s be there: %s", id, fmt.Sprintf(again, args...))
	}
	return err
}

// printSubmitted answers a verb that makes a run.
func (t *tree) printSubmitted(run *api.Run) error {
	switch t.output {
	case "json", "jsonl":
		return t.printJSON(run)
	}
	fmt.Fprintln(t.Stdout, run.RunID)
	if t.output == "text" {
		fmt.Fprintf(t.Stderr, "%d tasks in queue %s; watch them with: bailiwick run watch %s\n", run.Total, run.Queue, run.RunID)
	}
	return nil
}
