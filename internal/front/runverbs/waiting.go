package runverbs

import (
	"context"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func (t *commands) waitingCommand(v *console.Verb) {
	var dismiss []string
	v.Do(func(ctx context.Context, _ []string) error {
		var a console.Args
		var ids []api.RunID
		for _, id := range dismiss {
			ids = append(ids, console.Parse(&a, id, api.ParseRunID))
		}
		if a.Err != nil {
			return a.Err
		}
		c := t.Start()
		defer c.Close()
		if len(ids) > 0 {
			return t.dismiss(ctx, c, ids)
		}
		list, err := c.Runtime().Waiting(ctx)
		if err != nil {
			return err
		}
		items := make([]waitingItem, len(list))
		for i, w := range list {
			items[i] = newWaitingItem(ctx, c.Runtime(), w)
		}
		return t.Page(func() error { return t.printWaiting(items) })
	})
	v.Flag(&dismiss, "dismiss")
}

// dismiss takes failed runs off the caller's list.
func (t *commands) dismiss(ctx context.Context, c *client.Conn, ids []api.RunID) error {
	for _, id := range ids {
		run, err := c.Runtime().Run(ctx, id, "", 1)
		switch {
		case err != nil:
			return err
		case !run.NeedsAttention():
			return api.Errorf(api.CodeConflict, "run %s is %s: only a run that failed or reached its time limit can be dismissed", id, run.State).
				WithHint("answer or cancel a question: bailiwick run show %s", id)
		}
		if err := c.Operator().SeeRun(ctx, id); err != nil {
			return err
		}
		fmt.Fprintf(t.Stderr, "run %s no longer waits for a person\n", id)
	}
	return nil
}

// waitingItem is something that waits, with the command for it.
type waitingItem struct {
	api.Waiting
	Options []string `json:"options,omitempty"` // of a question
	Command string   `json:"command"`
	Approve string   `json:"approve,omitempty"` // the command that approves
}

// newWaitingItem adds the command, and the options of a question. A question that
// was answered meanwhile has none.
func newWaitingItem(ctx context.Context, r client.Runtime, w api.Waiting) waitingItem {
	item := waitingItem{Waiting: w}
	var question *api.Question
	if w.Kind == api.WaitingQuestion {
		if d, err := r.Describe(ctx, w.DispatchID, 0); err == nil && d.Question != nil {
			question = d.Question
			item.Options = question.Options
		}
	}
	item.Command, item.Approve = w.Commands(question)
	return item
}

func (t *commands) printWaiting(items []waitingItem) error {
	if t.Format != "text" {
		return console.List(t.Output, items, func(w waitingItem) string {
			if w.RunID != "" {
				return string(w.RunID)
			}
			return string(w.DispatchID)
		}, "", nil)
	}
	for i := range items {
		w := &items[i]
		what := "run " + string(w.RunID)
		switch {
		case w.Task != "":
			what = fmt.Sprintf("task %s of %s", w.Task, what)
		case w.RunID == "":
			what = fmt.Sprintf("dispatch %s (%s)", w.DispatchID, w.Subagent)
		}
		t.Row(string(w.Kind), "%s, of %s, since %s", what, w.Principal, t.Ago(w.Since))
		if w.Until != nil {
			t.Row("", "expires %s", t.Ago(*w.Until))
		}
		switch {
		case w.Kind == api.WaitingFailed:
			t.Row("", "%s", countsText(w.Counts))
		case w.Kind == api.WaitingApproval:
			if w.Tool != "" {
				t.Row("", "to call %s", w.Tool)
			}
			t.Row("", "by %s", electorate(&w.Electorate))
		case w.Text != "":
			t.Row("", "%s", console.AgentMarker+console.Cut(console.Line(w.Text), 200))
			for n, o := range w.Options {
				t.Row("", "%s%d. %s", console.AgentMarker, n+1, console.Cut(console.Line(o), 200))
			}
		}
		t.Row("", "%s", w.Command)
		t.OptionalRow("", "%s", w.Approve)
	}
	if len(items) == 0 {
		fmt.Fprintln(t.Stderr, "nothing waits for a person")
	}
	return nil
}
