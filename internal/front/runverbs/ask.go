package runverbs

import (
	"context"
	"fmt"
	"io"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// questions asks the questions of runs at the terminal, each once.
type questions struct {
	out   *console.Output
	conn  *client.Conn
	asker *console.Asker // nil: there is nobody to ask
	asked map[questionID]bool
}

// questionID is the attempt of a dispatch that asks.
type questionID struct {
	dispatch api.DispatchID
	attempt  int
}

func newQuestions(out *console.Output, stdin io.Reader, c *client.Conn) *questions {
	return &questions{out: out, conn: c, asker: out.NewAsker(stdin), asked: map[questionID]bool{}}
}

// ask asks the open questions of a run that were not asked before, and reports
// whether there was one.
func (q *questions) ask(ctx context.Context, run *api.Run) (asked bool) {
	if q.asker == nil || run.State.Settled() {
		return false
	}
	for i := range run.Tasks {
		task := &run.Tasks[i]
		if !task.Asks || ctx.Err() != nil {
			continue
		}
		d, err := q.conn.Runtime().Describe(ctx, task.DispatchID, 0)
		id := questionID{task.DispatchID, d.Attempt}
		if err != nil || d.Question == nil || d.State != api.EventNeedsInput || q.asked[id] {
			continue
		}
		q.asked[id], asked = true, true
		about := fmt.Sprintf("task %s of run %s", task.Task, run.RunID)
		answer, ok := q.asker.Ask(ctx, about, d.Question, answerCommand(run, task, &d))
		if !ok {
			continue
		}
		// A question that was answered or expired meanwhile is refused here.
		req := api.RunAnswer{Task: task.Task, DispatchID: d.ID, Attempt: d.Attempt, Text: answer.Text, Option: answer.Option}
		if _, err := q.conn.Operator().AnswerRun(ctx, run.RunID, req); err != nil {
			fmt.Fprintf(q.out.Stderr, "%s\n", console.Plain(err.Error()))
		}
	}
	return asked
}

// answerCommand is the command that answers the open question of a task. It
// names the attempt, because it may be typed tomorrow.
func answerCommand(run *api.Run, task *api.RunTask, d *api.Dispatch) string {
	return fmt.Sprintf("bailiwick run answer %s --task %s --attempt %d %s", run.RunID, task.Task, d.Attempt, d.Question.AnswerForm())
}
