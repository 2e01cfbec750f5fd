package record

import (
	"fmt"
	"slices"
	"strings"
)

// RunAsk is the detail of KindRunSubmitted and KindRunDenied; RefPlan names the
// canonical plan.
type RunAsk struct {
	Queue    string   `json:"queue"`
	Reasons  []string `json:"reasons,omitempty"` // of a denial
	RetryOf  string   `json:"retryOf,omitempty"`
	Revision int64    `json:"revision"` // of the catalog
	Taken    int64    `json:"taken,omitempty"`
	Tasks    int64    `json:"tasks"`
}

func (d RunAsk) bound(b *bounds) Detail {
	d.Queue, d.Reasons, d.RetryOf = b.cut(d.Queue), b.list(d.Reasons), b.cut(d.RetryOf)
	d.Revision, d.Taken, d.Tasks = b.number(d.Revision), b.number(d.Taken), b.number(d.Tasks)
	return d
}

func (d RunAsk) refused(reasons []string) Detail {
	d.Reasons = slices.Clone(reasons)
	return d
}

func (d RunAsk) say(e *Entry) string {
	s := fmt.Sprintf("%s submitted run %s of %d tasks to queue %s", e.who(), word(e.Run), d.Tasks, word(d.Queue))
	if d.RetryOf != "" {
		s += fmt.Sprintf(", again after run %s with %d tasks taken over", word(d.RetryOf), d.Taken)
	}
	return s + ": " + e.verdict(d.Reasons)
}

// RunAct is the detail of what somebody does to a run that is there, or to a
// queue: KindRunCancelled, KindRunPaused, KindRunResumed, KindTaskAnswered,
// KindQueuePaused, KindQueueResumed.
type RunAct struct {
	Option  int64    `json:"option,omitempty"`
	Queue   string   `json:"queue,omitempty"`
	Reasons []string `json:"reasons,omitempty"` // of a denial
	Why     string   `json:"why,omitempty"`     // in the words of who asked
}

func (d RunAct) bound(b *bounds) Detail {
	d.Option, d.Queue, d.Reasons, d.Why = b.number(d.Option), b.cut(d.Queue), b.list(d.Reasons), b.cut(d.Why)
	return d
}

func (d RunAct) refused(reasons []string) Detail {
	return Access{Operation: "run", Reasons: slices.Clone(reasons)}
}

func (d RunAct) say(e *Entry) string {
	what := "run " + word(e.Run)
	switch {
	case d.Queue != "":
		what = "queue " + word(d.Queue)
	case e.Task != "":
		what = e.task()
	}
	verb := map[Kind]string{
		KindRunCancelled: "cancelled", KindRunPaused: "paused", KindRunResumed: "resumed",
		KindQueuePaused: "paused", KindQueueResumed: "resumed", KindTaskAnswered: "answered the question of",
	}[e.Kind]
	s := fmt.Sprintf("%s %s %s", e.who(), verb, what)
	if d.Option > 0 {
		s += fmt.Sprintf(" with option %d", d.Option)
	}
	return s + ": " + e.verdict(d.Reasons) + optional(", because %s", quoteUnlessEmpty(d.Why))
}

// RunEnd is the detail of KindRunSettled: nothing of the run follows it.
type RunEnd struct {
	Cancelled int64  `json:"cancelled"`
	Denied    int64  `json:"denied"`
	Done      int64  `json:"done"`
	Failed    int64  `json:"failed"`
	Millis    int64  `json:"millis"` // since it was submitted
	Skipped   int64  `json:"skipped"`
	State     string `json:"state"` // an api.RunState
}

func (d RunEnd) bound(b *bounds) Detail {
	d.State = b.cut(d.State)
	for _, n := range []*int64{&d.Cancelled, &d.Denied, &d.Done, &d.Failed, &d.Millis, &d.Skipped} {
		*n = b.number(*n)
	}
	return d
}

func (d RunEnd) say(e *Entry) string {
	var also strings.Builder
	for _, c := range []struct {
		n    int64
		what string
	}{{d.Failed, "failed"}, {d.Denied, "denied"}, {d.Cancelled, "cancelled"}, {d.Skipped, "skipped"}} {
		if c.n > 0 {
			fmt.Fprintf(&also, ", %d %s", c.n, c.what)
		}
	}
	return fmt.Sprintf("run %s is %s after %d.%03d s: %d done", word(e.Run), word(d.State), d.Millis/1000, max(d.Millis, -d.Millis)%1000, d.Done) + also.String()
}

// TaskStart is the detail of KindTaskStarted: the attempt's dispatch is asked
// for once this is durable.
type TaskStart struct {
	Fence  int64    `json:"fence"`           // of the lease on its locks; the worker's result carries it
	Locks  []string `json:"locks,omitempty"` // exclusive
	Shared []string `json:"shared,omitempty"`
}

func (d TaskStart) bound(b *bounds) Detail {
	d.Fence, d.Locks, d.Shared = b.number(d.Fence), b.list(d.Locks), b.list(d.Shared)
	return d
}

func (d TaskStart) say(e *Entry) string {
	s := fmt.Sprintf("%s is started as dispatch %s, fencing number %d", e.task(), word(e.Dispatch), d.Fence)
	if len(d.Locks) > 0 {
		s += ", holding " + words(d.Locks)
	}
	if len(d.Shared) > 0 {
		s += ", sharing " + words(d.Shared)
	}
	return s
}

// TaskStep is the detail of the other kinds of a task.
type TaskStep struct {
	By      string `json:"by,omitempty"`    // of a cancellation: who
	Cause   string `json:"cause,omitempty"` // of a task that is skipped: the one that is not done
	Message string `json:"message,omitempty"`
	Reason  string `json:"reason,omitempty"` // an api.Reason
	Until   string `json:"until,omitempty"`  // of a task that is tried again: when
}

func (d TaskStep) bound(b *bounds) Detail {
	d.Cause, d.By, d.Message, d.Reason, d.Until = b.cut(d.Cause), b.cut(d.By), b.cut(d.Message), b.cut(d.Reason), b.cut(d.Until)
	return d
}

func (d TaskStep) say(e *Entry) string {
	s := e.task()
	switch e.Kind {
	case KindTaskWaiting:
		if d.Until == "" {
			s += " waits for an answer"
		} else {
			s += " is tried again at " + word(d.Until)
		}
	case KindTaskDone:
		s += " is done"
	case KindTaskSkipped:
		s += " is skipped" + optional(" because of task %s", wordUnlessEmpty(d.Cause))
	case KindTaskCancelled:
		s += " is cancelled" + optional(" by %s", wordUnlessEmpty(d.By))
	case KindTaskDenied:
		s += " is denied"
	default:
		s += " failed"
	}
	return s + optional(", reason %s", wordUnlessEmpty(d.Reason)) + optional(": %s", quoteUnlessEmpty(d.Message))
}

func (e *Entry) task() string {
	s := "task " + word(e.Task) + " of run " + word(e.Run)
	if e.Attempt > 1 {
		s += fmt.Sprintf(" (attempt %d)", e.Attempt)
	}
	return s
}
