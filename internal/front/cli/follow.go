package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// statusNeedsInput is the exit status of a verb that followed a dispatch which
// ended with a question.
const statusNeedsInput = 9

// followVerbs are the verbs that start or resume a dispatch and follow it.
type followVerbs struct{ *dispatchVerbs }

// follow shows an attempt until it ends, unless f.detach is set, and returns its
// outcome.
func (t *followVerbs) follow(ctx context.Context, r client.Runtime, d api.Dispatch, f followFlags) error {
	steps := t.newSteps()
	if err := t.printAccepted(steps, d, f.detach); err != nil || f.detach {
		return err
	}
	d, err := t.followToEnd(ctx, r, d, f, steps)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return api.Errorf(api.CodeNotFinished, "dispatch %s has not ended after %s and continues", d.ID, f.wait).WithHint("see: bailiwick dispatch logs -f %s", d.ID)
	}
	if err != nil {
		if ctx.Err() != nil {
			fmt.Fprintf(t.Stderr, "dispatch %s continues; cancel it with: bailiwick dispatch cancel %s\n", d.ID, d.ID)
		}
		return err
	}
	if t.Format != "jsonl" {
		err = t.printEnd(d, f)
	} else if err = steps.print(d); err == nil {
		err = t.JSON(runLine{Record: &d})
	}
	if err != nil {
		return err
	}
	return outcome(d)
}

// followToEnd follows a dispatch to the end of its attempt. The person at a
// terminal is asked its question there and then; with an answer it follows the
// attempt that resumes.
func (t *followVerbs) followToEnd(ctx context.Context, r client.Runtime, d api.Dispatch, f followFlags, steps *steps) (api.Dispatch, error) {
	asker := t.NewAsker(t.Stdin)
	for {
		var err error
		if d, err = t.followAttempt(ctx, r, d, f, steps); err != nil || asker == nil || d.State != api.EventNeedsInput || d.Question == nil {
			return d, err
		}
		answer, ok := asker.Ask(ctx, "dispatch "+string(d.ID), d.Question, fmt.Sprintf("bailiwick dispatch answer %s --attempt %d %s", d.ID, d.Attempt, d.Question.AnswerForm()))
		if !ok {
			return d, ctx.Err()
		}
		answer.Attempt = d.Attempt
		if d, err = r.Answer(ctx, d.ID, answer); err != nil {
			return d, err
		}
	}
}

// printAccepted prints that a dispatch was accepted, and with detach its record.
func (t *followVerbs) printAccepted(steps *steps, d api.Dispatch, detach bool) error {
	switch {
	case t.Format == "jsonl":
		err := steps.print(d)
		if err == nil && detach {
			err = t.JSON(runLine{Record: &d})
		}
		return err
	case !detach && d.State.Ended():
		_, err := fmt.Fprintf(t.Stderr, "dispatch %s already exists (%s); showing its record\n", d.ID, d.State)
		return err
	case !detach:
		_, err := fmt.Fprintf(t.Stderr, "dispatch %s accepted\n", d.ID)
		return err
	case t.Format == "text":
		_, err := fmt.Fprintln(t.Stdout, d.ID)
		fmt.Fprintf(t.Stderr, "next: %s\n", nextCommand(d, ""))
		return err
	}
	return t.printDispatch(d)
}

// followAttempt shows the log of an attempt until it ends, and returns its
// record.
func (t *followVerbs) followAttempt(ctx context.Context, r client.Runtime, d api.Dispatch, f followFlags, steps *steps) (api.Dispatch, error) {
	if f.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.wait)
		defer cancel()
	}
	p := t.NewProgress("dispatch " + string(d.ID) + " is in progress")
	defer p.Close()
	if t.Format == "text" {
		defer t.showReports(ctx, r, d, p, f.quiet)()
	}
	if !f.quiet {
		if err := t.followLog(ctx, r, d, p, steps); err != nil {
			return d, err
		}
	}
	return awaitEnd(ctx, r, d)
}

// reportInterval is how often an attempt is asked what its agent reported, and whether it
// reaches its model.
const reportInterval = time.Second

// showReports prints each report of the agent of an attempt, unless quiet, and when its
// model cannot be reached, and can again, until the returned function is called.
func (t *followVerbs) showReports(ctx context.Context, r client.Runtime, d api.Dispatch, p *console.Progress, quiet bool) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var shown time.Time
	if d.Progress != nil {
		shown = d.Progress.At
	}
	var reach reachNotes
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(reportInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now, err := r.Describe(ctx, d.ID, 0)
			if err != nil || now.Attempt != d.Attempt {
				continue
			}
			if line := t.reachNote(&reach, &now); line != "" && p.Note(line) != nil {
				return
			}
			if quiet || now.Progress == nil || !now.Progress.At.After(shown) {
				continue
			}
			shown = now.Progress.At
			if p.Note("agent reports "+console.AgentMarker+console.Line(now.Progress.Text)) != nil {
				return
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// reachNotes is what a person was told about the connection to the model.
type reachNotes struct {
	told   *api.Unreachable // nil: that it is reached, or nothing
	absent bool             // the last answer no longer had told
}

// reachNote says that the model of a dispatch cannot be reached, or can again; it is empty
// if the person knows. One answer alone does not prove that it can: a service that has just
// started waits for the message of the worker.
func (t *followVerbs) reachNote(n *reachNotes, d *api.Dispatch) string {
	before, now, absent := n.told, d.Unreachable, n.absent
	n.absent = now == nil && before != nil
	switch {
	case now != nil && (before == nil || !before.Since.Equal(now.Since)):
		n.told = now
		return "model " + t.Unreachable(now)
	case n.absent && absent && !d.State.Ended():
		n.told = nil
		return fmt.Sprintf("model %s at %s is reached again", console.Line(string(before.Model)), console.Line(before.Host))
	}
	return ""
}

// awaitEnd waits until the attempt of d has ended. Its question may be answered
// by then; the next attempt does not matter to a caller that follows this one.
func awaitEnd(ctx context.Context, r client.Runtime, d api.Dispatch) (api.Dispatch, error) {
	for {
		now, err := r.Describe(ctx, d.ID, 30*time.Second)
		switch {
		case err != nil:
			return d, err
		case now.Attempt != d.Attempt:
			return r.Attempt(ctx, d.ID, d.Attempt)
		case now.State.Ended():
			return now, nil
		}
	}
}

// followLog shows the log of an attempt until it has ended: every line behind a
// marker, or as runLines.
func (t *followVerbs) followLog(ctx context.Context, r client.Runtime, d api.Dispatch, p *console.Progress, steps *steps) error {
	from := client.LogFrom{Attempt: d.Attempt}
	if t.Format != "jsonl" {
		width := t.Width
		if !t.Terminal {
			width = nil
		}
		l := console.NewAgentLog(p, p, console.AgentMarker, width, 0)
		return errors.Join(r.Follow(ctx, d.ID, from, l.Chunk), l.Close())
	}
	return r.Follow(ctx, d.ID, from, func(c api.Chunk) error {
		if !steps.printed[api.EventStarted] {
			// An attempt that writes has started; print that first.
			now, err := r.Describe(ctx, d.ID, 0)
			if err == nil && !now.State.Ended() && now.Attempt == d.Attempt {
				err = steps.print(now)
			}
			if err != nil {
				return err
			}
		}
		return t.JSON(runLine{Log: &c})
	})
}

// outcome is the exit status of a verb that followed a dispatch to its end.
func outcome(d api.Dispatch) error {
	switch {
	case d.State == api.EventFinished:
		return nil
	case d.Reason == api.ReasonDenied:
		return console.ExitFor(api.CodeDenied)
	case d.State == api.EventNeedsInput:
		return console.Exit{Status: statusNeedsInput}
	}
	return console.Exit{Status: 1}
}

// runLine is a line of dispatch run -o jsonl. It has exactly one member, which
// names its author: what an agent wrote is always in log, in base64.
type runLine struct {
	Event  *runEvent     `json:"event,omitempty"`
	Log    *api.Chunk    `json:"log,omitempty"`
	Record *api.Dispatch `json:"record,omitempty"` // the last line, unless the dispatch continues
}

// runEvent is a step in the life of a dispatch.
type runEvent struct {
	Dispatch api.DispatchID `json:"dispatchId"`
	Attempt  int            `json:"attempt"`
	Event    api.Event      `json:"event"`
	At       *time.Time     `json:"at,omitempty"`
	Reason   api.Reason     `json:"reason,omitempty"`
	Message  string         `json:"message,omitempty"`
}

// steps prints each step of a dispatch once.
type steps struct {
	t       *tree
	printed map[api.Event]bool
}

func (t *followVerbs) newSteps() *steps { return &steps{t.tree, map[api.Event]bool{}} }

// print prints the steps of a record that were not printed before.
func (s *steps) print(d api.Dispatch) error {
	since := d.Since()
	events := []runEvent{{Event: api.EventAccepted, At: &since}}
	if d.StartedAt != nil {
		events = append(events, runEvent{Event: api.EventStarted, At: d.StartedAt})
	}
	if d.State.Ended() {
		events = append(events, runEvent{Event: d.State, At: d.EndedAt, Reason: d.Reason, Message: d.Message})
	}
	for _, e := range events {
		if s.printed[e.Event] {
			continue
		}
		s.printed[e.Event] = true
		e.Dispatch, e.Attempt = d.ID, d.Attempt
		if err := s.t.JSON(runLine{Event: &e}); err != nil {
			return err
		}
	}
	return nil
}
