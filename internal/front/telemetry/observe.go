package telemetry

import (
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// Accepted measures the admission of an attempt.
func (t *Telemetry) Accepted(_ api.Dispatch, took time.Duration) {
	t.metrics.accept.Observe(took.Seconds())
}

// Started measures the start of an attempt's worker.
func (t *Telemetry) Started(d api.Dispatch) {
	if d.StartedAt != nil {
		t.metrics.start.Observe(d.StartedAt.Sub(d.Since()).Seconds())
	}
}

// Ended counts an ended attempt and exports its spans.
func (t *Telemetry) Ended(d api.Dispatch) {
	outcome, reason := outcomeOf(d)
	t.metrics.outcomes.WithLabelValues(outcome, reason).Inc()
	if d.EndedAt == nil {
		return
	}
	t.metrics.whole.WithLabelValues(outcome).Observe(d.EndedAt.Sub(d.Since()).Seconds())
	if o := d.Outcome; o != nil {
		for _, s := range o.Steps {
			t.metrics.step.WithLabelValues(stepName(s.Name)).Observe(s.Seconds)
		}
		t.metrics.logDropped.Add(float64(max(0, o.LogBytes-o.LogKept)))
		if o.Question == nil || d.State == api.EventNeedsInput { // else it was counted when it asked
			t.metrics.models.used(d.Subagent, o)
		}
	}
	if t.spans != nil {
		t.spans.dispatch(d)
	}
}

// outcomeOf returns the labels of an outcome, within the sets of R-D3.
func outcomeOf(d api.Dispatch) (outcome, reason string) {
	if !slices.Contains(api.Events(), d.State) {
		return other, other
	}
	switch {
	case d.State != api.EventFailed:
		return string(d.State), none
	case slices.Contains(api.Reasons(), d.Reason):
		return string(d.State), string(d.Reason)
	}
	return string(d.State), other
}

// Recovered counts a dispatch recovered after a restart.
func (t *Telemetry) Recovered(worker string) {
	t.metrics.recovered.WithLabelValues(oneOf(worker, workerStates())).Inc()
}

// TaskSettled counts a settled task.
func (t *Telemetry) TaskSettled(state api.TaskState, reason api.Reason) {
	label, why := other, other
	if slices.Contains(api.TaskStates(), state) {
		label = string(state)
	}
	switch {
	case state != api.TaskFailed:
		why = none
	case slices.Contains(api.Reasons(), reason):
		why = string(reason)
	}
	t.metrics.tasks.WithLabelValues(label, why).Inc()
}

// RunSettled counts a settled run.
func (t *Telemetry) RunSettled(state api.RunState) {
	label := other
	if slices.Contains(api.RunStates(), state) {
		label = string(state)
	}
	t.metrics.runs.WithLabelValues(label).Inc()
}

// Slot counts what became of a slot of a schedule.
func (t *Telemetry) Slot(state api.SlotState, reason string) {
	if reason == "" {
		reason = none
	}
	if !slices.Contains(slotReasons(), reason) {
		reason = other
	}
	t.metrics.slots.WithLabelValues(string(state), reason).Inc()
}

func slotReasons() []string {
	return []string{none, api.SkipPaused, api.SkipStopped, api.SkipMissed, api.SkipOverlap, api.SkipChanged, api.SkipRefused}
}

// Committed measures how many transitions of runs shared a commit.
func (t *Telemetry) Committed(transitions int) { t.metrics.runCommit.Observe(float64(transitions)) }

// Swept counts ended dispatches that the orchestrator was not notified of.
func (t *Telemetry) Swept(found int) { t.metrics.swept.Add(float64(max(0, found))) }

// Entry counts an entry of the audit log.
func (t *Telemetry) Entry(kind record.Kind) {
	label := other
	if slices.Contains(record.Kinds(), kind) {
		label = string(kind)
	}
	t.metrics.entries.WithLabelValues(label).Inc()
}

// Commit measures a transaction of functions callers. The caller calls ended after
// the commit.
func (t *Telemetry) Commit(functions int) (ended func()) {
	from := t.cfg.Now()
	return func() {
		t.metrics.commit.Observe(t.cfg.Now().Sub(from).Seconds())
		t.metrics.group.Observe(float64(functions))
	}
}

// Request counts an answered request to the API and exports its span. Status 0
// means that the connection was broken off.
func (t *Telemetry) Request(r Request) {
	class := "aborted"
	switch r.Status / 100 {
	case 2:
		class = "2xx"
	case 4:
		class = "4xx"
	case 5:
		class = "5xx"
	}
	t.metrics.requests.WithLabelValues(oneOf(r.Route, t.metrics.routes), class).Inc()
	if t.spans != nil && r.Trace != "" {
		t.spans.request(r)
	}
}

// Request is a request that the API has answered.
type Request struct {
	Route      string // the call's pattern
	Status     int
	Start, End time.Time
	Trace      api.Trace // its span; may be empty
	Parent     api.Trace // the caller's span; empty: the trace starts here
}
