package record

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// DispatchRequest is the detail of KindDispatchAccepted and KindDispatchDenied.
type DispatchRequest struct {
	Budgets      []BudgetClaim `json:"budgets,omitempty"`      // that it reserves of
	Capabilities []string      `json:"capabilities,omitempty"` // beyond the subagent's own
	Commit       string        `json:"commit,omitempty"`
	Envs         []string      `json:"envs,omitempty"`
	Reasons      []string      `json:"reasons,omitempty"` // of a denial
	Revision     int64         `json:"revision"`          // of the catalog
	Source       string        `json:"source,omitempty"`
	Subagent     string        `json:"subagent"`
	Target       string        `json:"target"`
}

func (d DispatchRequest) refused(reasons []string) Detail {
	d.Reasons = slices.Clone(reasons)
	return d
}

func (d DispatchRequest) describe(e *Entry) string {
	s := fmt.Sprintf("%s requested %s", e.caller(), Word(d.Subagent)) + withWord(" on ", d.Target)
	var with []string
	if d.Source != "" {
		with = append(with, "source "+Word(d.Source)+withWord("@", shortCommit(d.Commit)))
	}
	if len(d.Envs) > 0 {
		with = append(with, "env "+words(d.Envs))
	}
	if len(d.Capabilities) > 0 {
		with = append(with, "capabilities "+words(d.Capabilities))
	}
	if len(with) > 0 {
		s += " (" + strings.Join(with, "; ") + ")"
	}
	return s + withWord(" as dispatch ", e.Dispatch) + e.ofTask() + e.verdict(d.Reasons)
}

// shortCommit is enough of a commit for a person to recognise it.
func shortCommit(commit string) string {
	if len(commit) == 40 || len(commit) == 64 {
		return commit[:12]
	}
	return commit
}

// DispatchStart is the detail of KindDispatchStarted; RefManifest names what
// it runs.
type DispatchStart struct {
	Isolation []string `json:"isolation,omitempty"` // layers that are active
	PID       int64    `json:"pid"`                 // of the worker
	WorkerKey string   `json:"workerKey"`           // public half; the result must be signed with the other
}

func (d DispatchStart) describe(e *Entry) string {
	return fmt.Sprintf("%s started: pid %d", e.dispatch(), d.PID) + withWords(", isolation ", d.Isolation)
}

// DispatchEnd is the detail of the kinds that end an attempt.
type DispatchEnd struct {
	Budgets  []BudgetSettlement `json:"budgets,omitempty"` // that it has spent of
	By       string             `json:"by,omitempty"`      // principal that cancelled it
	Changed  int64              `json:"changed,omitempty"` // files of the patch that verify is known to run: as many as the result names
	ExitCode int64              `json:"exitCode"`          // of the agent; 0 if it did not run
	Files    int64              `json:"files"`             // changed by the patch
	Message  string             `json:"message,omitempty"`
	Millis   int64              `json:"millis"`           // since it was accepted
	Partial  bool               `json:"partial"`          // captured before the work was complete
	Reason   string             `json:"reason,omitempty"` // of a failure: an api.Reason
	Verify   string             `json:"verify,omitempty"` // passed, failed or absent
}

// EndOf returns the part of the entry of an end that follows from the result
// alone, and its refs to the patch and the question. A nil result has none.
func EndOf(sum *api.ResultSummary) (DispatchEnd, map[string]api.Digest) {
	d, refs := DispatchEnd{}, map[string]api.Digest{}
	if sum == nil {
		return d, refs
	}
	d.Partial, d.Files, d.Verify = sum.Partial, int64(len(sum.Files)), VerifyWord(sum.Verify)
	if sum.Verify != nil {
		d.Changed = int64(len(sum.Verify.Changed))
	}
	if sum.ExitCode != nil {
		d.ExitCode = int64(*sum.ExitCode)
	}
	if sum.Patch != nil {
		refs[RefPatch] = sum.Patch.Digest
	}
	if sum.Question != nil {
		refs[RefQuestion] = sum.Question.Digest
	}
	return d, refs
}

// VerifyWord is how entries and statements write the outcome of the subagent's
// verify command: passed, failed, or empty if it did not run.
func VerifyWord(v *api.VerifyReport) string {
	switch {
	case v == nil:
		return ""
	case v.Passed:
		return "passed"
	}
	return "failed"
}

func (d DispatchEnd) describe(e *Entry) string {
	s := e.dispatch()
	switch e.Kind {
	case KindDispatchFinished:
		s += " finished"
	case KindDispatchNeedsInput:
		s += " needs input"
	case KindDispatchCancelled:
		s += " cancelled" + withWord(" by ", d.By)
	default:
		s += " failed"
	}
	s += after(d.Millis)
	if _, ok := e.Refs[RefPatch]; ok {
		s += " with a patch of " + Plural(d.Files, "file")
	}
	s += withWord(", verify ", d.Verify)
	if d.Changed > 0 {
		s += fmt.Sprintf(" (the patch changes %s that it runs)", Plural(d.Changed, "file"))
	}
	if e.Kind != KindDispatchCancelled {
		s += withWord(": ", d.Reason)
	}
	if d.Partial {
		s += " (partial result)"
	}
	// Some messages repeat who cancelled the dispatch.
	message := d.Message
	if by := "cancelled: by " + d.By; e.Kind == KindDispatchCancelled && strings.HasPrefix(message, by) {
		message = strings.TrimPrefix(strings.TrimPrefix(message, by), ": ")
	}
	return s + withText(": ", message)
}

// EgressRefusal is the detail of KindEgressRefused: a request of an agent that its
// broker refused.
type EgressRefusal struct {
	Form   string `json:"form"` // as in api.NetworkLine
	Host   string `json:"host,omitempty"`
	Number int64  `json:"number"` // of the request in the dispatch's network record
	Reason string `json:"reason"`
}

func (d EgressRefusal) describe(e *Entry) string {
	return fmt.Sprintf("refused request %d of %s", d.Number, e.dispatch()) + withWord(" to ", d.Host) + withText(": ", d.Reason)
}

// DispatchRecovery is the detail of KindDispatchRecovered.
type DispatchRecovery struct {
	Message string `json:"message,omitempty"`
	State   string `json:"state"`  // as stored: accepted, started
	Worker  string `json:"worker"` // running, ended, dead, absent
}

func (d DispatchRecovery) describe(e *Entry) string {
	still := ""
	if d.Worker == "running" {
		still = "still "
	}
	return fmt.Sprintf("recovered %s after restart: was %s, worker %s%s", e.dispatch(), Word(d.State), still, Word(d.Worker)) + withText(": ", d.Message)
}

// DispatchAttested is the detail of KindDispatchAttested; RefStatement names
// what was signed.
type DispatchAttested struct {
	Key      string `json:"key"`      // id of the key that signed
	Subjects int64  `json:"subjects"` // of the statement
}

func (d DispatchAttested) describe(e *Entry) string {
	return fmt.Sprintf("%s attested: %s, signed by %s", e.dispatch(), Plural(d.Subjects, "subject"), Word(d.Key))
}

// CancelRequest is the detail of KindCancelRequested, KindCancelDenied and
// KindDispatchAborted.
type CancelRequest struct {
	Reasons []string `json:"reasons,omitempty"` // of a denial
	State   string   `json:"state"`             // of the dispatch at that moment
	Why     string   `json:"why,omitempty"`     // in the caller's words
}

func (d CancelRequest) refused(reasons []string) Detail {
	d.Reasons = slices.Clone(reasons)
	return d
}

func (d CancelRequest) describe(e *Entry) string {
	if e.Kind == KindDispatchAborted {
		return fmt.Sprintf("the service cancels %s, state %s", e.dispatch(), Word(d.State)) + withText("; reason: ", d.Why)
	}
	return fmt.Sprintf("%s requested to cancel %s, state %s", e.caller(), e.dispatch(), Word(d.State)) + e.verdict(d.Reasons) + withText("; reason: ", d.Why)
}

// AnswerRequest is the detail of KindDispatchAnswered and KindAnswerDenied;
// RefQuestion and RefAnswer name the question and the answer.
type AnswerRequest struct {
	Attempt int64         `json:"attempt"`           // that needs the input
	Budgets []BudgetClaim `json:"budgets,omitempty"` // that the next attempt reserves of
	Option  int64         `json:"option,omitempty"`  // number of the chosen option, from 1
	Reasons []string      `json:"reasons,omitempty"` // of a denial
}

func (d AnswerRequest) refused(reasons []string) Detail {
	d.Reasons = slices.Clone(reasons)
	return d
}

func (d AnswerRequest) describe(e *Entry) string {
	s := fmt.Sprintf("%s answered dispatch %s (attempt %d)", e.caller(), Word(e.Dispatch), d.Attempt) + e.ofTask()
	if d.Option > 0 {
		s += fmt.Sprintf(" with option %d", d.Option)
	}
	return s + e.verdict(d.Reasons)
}
