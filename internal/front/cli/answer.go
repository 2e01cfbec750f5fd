package cli

import (
	"context"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

type answerFlags struct {
	followFlags
	option, attempt int
}

func (t *followVerbs) answerCommand(v *console.Verb) {
	var f answerFlags
	t.verb(v, func(ctx context.Context, r client.Runtime, id api.DispatchID, args []string) error {
		return t.answer(ctx, r, id, args[1:], f)
	})
	v.Flag(&f.option, "option")
	v.Flag(&f.attempt, "attempt")
	f.add(v)
}

func (t *followVerbs) answer(ctx context.Context, r client.Runtime, id api.DispatchID, text []string, f answerFlags) error {
	var a console.Args
	if a.Wait("--wait", f.wait); a.Err != nil {
		return a.Err
	}
	req := api.AnswerRequest{Option: f.option, Attempt: f.attempt}
	var err error
	if req.Text, err = console.ReadAnswer(text, f.option, t.Stdin, "bailiwick dispatch show "+string(id)); err != nil {
		return err
	}
	if req.Attempt == 0 {
		// Name the attempt whose question is open now, so that a late answer reaches
		// no other question.
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
	if d.Run != "" { // its state changes only when the task has its locks: nothing to follow yet
		fmt.Fprintf(t.Stderr, "task %s of run %s has its answer and resumes when it has its locks again\nnext: bailiwick run watch %[2]s\n", d.Task, d.Run)
		return t.printAccepted(t.newSteps(), d, true)
	}
	return t.follow(ctx, r, d, f.followFlags)
}

// printQuestion prints earlier questions with their answers, the current
// question, and how to answer it.
func (t *dispatchVerbs) printQuestion(d api.Dispatch) {
	for _, a := range d.Attempts {
		if a.Answer != nil {
			t.Row("attempt", "%d asked: %s", a.Attempt, a.Message)
			t.Row("", "%s answered: %s", a.Answer.By, console.Quoted(a.Answer.Text))
		}
	}
	q := d.Question
	if q == nil {
		return
	}
	t.Row("question", "%s", console.Quoted(q.Question))
	for i, o := range q.Options {
		t.Row("", "%d. %s", i+1, console.Quoted(o))
	}
	if len(q.Context) > 0 {
		t.Row("context", "%s", q.Context)
	}
	if len(q.State) > 0 {
		t.Row("state", "%d bytes that the agent gets back", len(q.State))
	}
	switch {
	case d.Answer != nil:
		t.Row("answer", "%s, by %s", console.Quoted(d.Answer.Text), d.Answer.By)
	case d.State == api.EventNeedsInput && d.AnswerBy != nil:
		t.Row("", "answer by %s: bailiwick dispatch answer %s %s", t.Time(*d.AnswerBy), d.ID, d.Question.AnswerForm())
	}
}
