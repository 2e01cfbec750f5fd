package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

// statusNeedsInput is the exit status of a verb that followed a dispatch which
// ended with a question.
const statusNeedsInput = 9

type answerFlags struct {
	runFlags
	option, attempt int
}

func (t *tree) answerCommand() *cobra.Command {
	var f answerFlags
	cmd := &cobra.Command{
		Use: "answer ID [TEXT]", Short: "Answer the question of a dispatch, and follow it from there", Args: cobra.RangeArgs(1, 2),
		Long: `Answer the question of a dispatch that needs input. The dispatch goes on with a new
attempt that has the answer, the state that the agent kept and the patch so far. That of
a task of a run goes on when its task has its locks again, and is not waited for.

TEXT is the answer; @FILE reads it from a file and - from standard input.`,
		Example: `  bailiwick dispatch show ID
  bailiwick dispatch answer ID "use the second one"
  bailiwick dispatch answer ID --option 2 --detach`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.withDispatch(args[0], func(r client.Runtime, id api.DispatchID) error {
				return t.answer(cmd.Context(), r, id, args[1:], f)
			})
		},
	}
	fl := cmd.Flags()
	fl.IntVar(&f.option, "option", 0, "answer with this option of the question, counted from 1")
	fl.IntVar(&f.attempt, "attempt", 0, "only if this attempt asked (default: the current one)")
	fl.DurationVar(&f.wait, "wait", 0, "stop waiting after this time with exit status 8; the dispatch goes on")
	fl.BoolVarP(&f.detach, "detach", "d", false, "return at once")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "do not show the log")
	return cmd
}

func (t *tree) answer(ctx context.Context, r client.Runtime, id api.DispatchID, text []string, f answerFlags) error {
	req := api.AnswerRequest{Option: f.option, Attempt: f.attempt}
	if err := checkWait(f.wait); err != nil {
		return err
	}
	if len(text) == 1 {
		b, err := readInput(text[0], t.Stdin)
		if err != nil {
			return err
		}
		req.Text = strings.TrimSuffix(string(b), "\n")
	}
	if (req.Text == "") == (req.Option == 0) {
		return api.Errorf(api.CodeInvalid, "answer: give a text or --option N").WithHint("see the question: bailiwick dispatch show %s", id)
	}
	if req.Attempt == 0 {
		// The answer is to what is asked now, even if it arrives late.
		d, err := r.Describe(ctx, id, 0)
		if err != nil {
			return err
		}
		req.Attempt = d.Attempt
	}
	d, err := r.Answer(ctx, id, req)
	if err != nil {
		return err
	}
	if d.Run != "" { // it asks until its task has its locks again: there is nothing to follow yet
		fmt.Fprintf(t.Stderr, "task %s of run %s has its answer, and goes on when it has its locks again\nnext: bailiwick run watch %[2]s\n", d.Task, d.Run)
		return t.accepted(t.newEvents(), d, true)
	}
	return t.see(ctx, r, d, f.runFlags)
}

// printQuestion prints what a dispatch asks and how to answer, and what was
// asked and answered before.
func (t *tree) printQuestion(d api.Dispatch) {
	for _, a := range d.Attempts {
		if a.Answer != nil {
			t.row("attempt", "%d asked: %s", a.Attempt, a.Message)
			t.row("", "%s answered: %s", a.Answer.By, quoted(a.Answer.Text))
		}
	}
	q := d.Question
	if q == nil {
		return
	}
	t.row("question", "%s", quoted(q.Question))
	for i, o := range q.Options {
		t.row("", "%d. %s", i+1, quoted(o))
	}
	if len(q.Context) > 0 {
		t.row("context", "%s", q.Context)
	}
	if len(q.State) > 0 {
		t.row("state", "%d bytes that the agent gets back", len(q.State))
	}
	switch {
	case d.Answer != nil:
		t.row("answer", "%s, by %s", quoted(d.Answer.Text), d.Answer.By)
	case d.State == api.EventNeedsInput && d.AnswerBy != nil:
		t.row("", "answer by %s: bailiwick dispatch answer %s TEXT", d.AnswerBy.Local().Format(timeFormat), d.ID)
	}
}
