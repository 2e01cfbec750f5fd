package record

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// RunRequest is the detail of KindRunSubmitted and KindRunDenied; RefPlan names
// the canonical plan.
type RunRequest struct {
	Changed []string `json:"changed,omitempty"` // of a retry: how the plan differs from RetryOf's plan
	From    []string `json:"from,omitempty"`    // of a retry: tasks to run again, though they may be done
	NoReuse bool     `json:"noReuse,omitempty"` // no task may have the result of an earlier dispatch
	// Parameters are the values that the caller gave, as NAME=JSON.
	Parameters []string `json:"parameters,omitempty"`
	Queue      string   `json:"queue"`
	Reasons    []string `json:"reasons,omitempty"` // of a denial
	RetryOf    string   `json:"retryOf,omitempty"`
	Revision   int64    `json:"revision"`           // of the catalog
	Rules      int64    `json:"rules,omitempty"`    // see plan.Rules; 0 in older logs
	Schedule   string   `json:"schedule,omitempty"` // that submitted it; RefSchedule names its artifact
	Slot       string   `json:"slot,omitempty"`     // of Schedule, RFC 3339 in UTC
	Taken      int64    `json:"taken,omitempty"`    // tasks done in the run that it retries
	Tasks      int64    `json:"tasks"`
	Template   string   `json:"template,omitempty"` // digest of the plan before its parameters were resolved
}

func (d RunRequest) refused(reasons []string) Detail {
	d.Reasons = slices.Clone(reasons)
	return d
}

func (d RunRequest) describe(e *Entry) string {
	s := fmt.Sprintf("%s submitted run %s with %s to queue %s", e.caller(), Word(e.Run), Plural(d.Tasks, "task"), Word(d.Queue))
	if d.Schedule != "" {
		s += fmt.Sprintf(" for slot %s of schedule %s", Word(d.Slot), Word(d.Schedule))
	}
	s += withWords(", parameters ", d.Parameters)
	if d.NoReuse {
		s += ", without reuse"
	}
	if d.RetryOf != "" {
		s += fmt.Sprintf(", retrying run %s with %s taken over", Word(d.RetryOf), Plural(d.Taken, "task")) +
			withWords(", changed: ", d.Changed) + withWords(", again from task ", d.From)
	}
	return s + e.verdict(d.Reasons)
}

// RunAction is the detail of what a caller does to a run or a queue:
// KindRunCancelled, KindRunPaused, KindRunResumed, KindTaskAnswered,
// KindQueuePaused, KindQueueResumed.
type RunAction struct {
	Option  int64    `json:"option,omitempty"`
	Queue   string   `json:"queue,omitempty"`
	Reasons []string `json:"reasons,omitempty"` // of a denial
	Why     string   `json:"why,omitempty"`     // in the caller's words
}

func (d RunAction) refused(reasons []string) Detail {
	return Access{Operation: "run", Reasons: slices.Clone(reasons)}
}

func (d RunAction) describe(e *Entry) string {
	what := "run " + Word(e.Run)
	switch {
	case d.Queue != "":
		what = "queue " + Word(d.Queue)
	case e.Task != "":
		what = e.task()
	}
	verb := map[Kind]string{
		KindRunCancelled: "cancelled", KindRunPaused: "paused", KindRunResumed: "resumed",
		KindQueuePaused: "paused", KindQueueResumed: "resumed", KindTaskAnswered: "answered",
	}[e.Kind]
	s := fmt.Sprintf("%s %s %s", e.caller(), verb, what)
	if d.Option > 0 {
		s += fmt.Sprintf(" with option %d", d.Option)
	}
	return s + e.verdict(d.Reasons) + withText("; reason: ", d.Why)
}

// RunExpiry is the detail of KindRunExpired.
type RunExpiry struct {
	Limit  string `json:"limit"`  // of the plan: LimitWall
	Millis int64  `json:"millis"` // its value
}

// LimitWall is the limit of a run's time.
const LimitWall = "limits.wall"

func (d RunExpiry) describe(e *Entry) string {
	return fmt.Sprintf("run %s reached its %s of %s: the service cancels what is open", Word(e.Run), Word(d.Limit), api.Span(d.Millis, time.Millisecond))
}

// RunEnd is the detail of KindRunSettled, the last entry of a run: its state and
// how many tasks are in each.
type RunEnd struct {
	Cancelled int64  `json:"cancelled"`
	Denied    int64  `json:"denied"`
	Done      int64  `json:"done"`
	Failed    int64  `json:"failed"`
	Millis    int64  `json:"millis"` // since it was submitted
	Skipped   int64  `json:"skipped"`
	State     string `json:"state"` // an api.RunState
}

func (d RunEnd) describe(e *Entry) string {
	var s strings.Builder
	fmt.Fprintf(&s, "run %s settled as %s%s: %d done", Word(e.Run), Word(d.State), after(d.Millis), d.Done)
	for _, c := range []struct {
		n    int64
		what string
	}{{d.Failed, "failed"}, {d.Denied, "denied"}, {d.Cancelled, "cancelled"}, {d.Skipped, "skipped"}} {
		if c.n > 0 {
			fmt.Fprintf(&s, ", %d %s", c.n, c.what)
		}
	}
	return s.String()
}

// RunGrowth is the detail of KindRunGrown and KindRunAppended; RefGrowth names the
// canonical plan.Growth, which with the plan gives the tasks. The task of the entry is
// the one that grows; the plan says whose products decided.
type RunGrowth struct {
	Cause   string   `json:"cause"`             // a plan.Cause
	Reasons []string `json:"reasons,omitempty"` // of a denial
	Round   int64    `json:"round,omitempty"`   // of a gate, from 1
	Tasks   int64    `json:"tasks"`             // how many it adds
	Total   int64    `json:"total"`             // of the run after it
}

func (d RunGrowth) refused(reasons []string) Detail {
	return Access{Operation: "run.append", Reasons: slices.Clone(reasons)}
}

func (d RunGrowth) describe(e *Entry) string {
	if e.Kind == KindRunAppended {
		return fmt.Sprintf("%s added %s to run %s, which has %d now", e.caller(), Plural(d.Tasks, "task"), Word(e.Run), d.Total) + e.verdict(d.Reasons)
	}
	return fmt.Sprintf("%s grew %s by its %s; run %s has %d now", e.task(), Plural(d.Tasks, "task"), Word(d.Cause), Word(e.Run), d.Total)
}

// TaskReuse is the detail of KindTaskReused; RefManifest names the manifest that the
// dispatch would have run, and RefInput its input.
type TaskReuse struct {
	Key string `json:"key"` // ReuseKey of the manifests of both dispatches
	Of  string `json:"of"`  // the earlier dispatch
}

func (d TaskReuse) refused(reasons []string) Detail {
	return DispatchRequest{Reasons: slices.Clone(reasons)}
}

func (d TaskReuse) describe(e *Entry) string {
	return fmt.Sprintf("%s reuses the result of dispatch %s, whose inputs are the same", e.task(), Word(d.Of)) + e.verdict(nil)
}

// TaskStart is the detail of KindTaskStarted: the attempt's dispatch is
// requested once this is durable.
type TaskStart struct {
	Fence  int64    `json:"fence"`           // fencing token of the lease on its locks; the worker's result carries it
	Locks  []string `json:"locks,omitempty"` // exclusive
	Shared []string `json:"shared,omitempty"`
}

func (d TaskStart) describe(e *Entry) string {
	return fmt.Sprintf("%s started as dispatch %s, fencing token %d", e.task(), Word(e.Dispatch), d.Fence) +
		withWords(", locks ", d.Locks) + withWords(", shared locks ", d.Shared)
}

// TaskStep is the detail of the other kinds of a task.
type TaskStep struct {
	// Approval: it waits for people to approve what it is to write.
	Approval bool `json:"approval,omitempty"`

	By      string `json:"by,omitempty"`    // principal that cancelled it
	Cause   string `json:"cause,omitempty"` // of a skipped task: the dependency that is not done
	Message string `json:"message,omitempty"`
	Reason  string `json:"reason,omitempty"` // an api.Reason
	Until   string `json:"until,omitempty"`  // when the next attempt is due
}

func (d TaskStep) describe(e *Entry) string {
	s, why := e.task(), ": "
	switch e.Kind {
	case KindTaskWaiting:
		switch {
		case d.Approval:
			s += " waits for people to approve what it is to write"
		case d.Until == "":
			s += " waits for an answer"
		default:
			s, why = s+" will be retried at "+Word(d.Until), " after "
		}
	case KindTaskDone:
		s += " done"
	case KindTaskSkipped:
		s += " skipped" + withWord(" because of task ", d.Cause)
	case KindTaskCancelled:
		s += " cancelled" + withWord(" by ", d.By)
	case KindTaskDenied:
		s += " denied"
	default:
		s += " failed"
	}
	return s + withWord(why, d.Reason) + withText(": ", d.Message)
}
