package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// The bounds of growth. What exceeds one is a failure of the task that grows.
const (
	DefaultForEach = 100    // items of a ForEach without Max
	MaxForEach     = 10_000 // and of any
	MaxFixes       = 20     // of a Gate
	MaxVoters      = 20     // of a Quorum, and people of a TaskApproval
	MaxRunTasks    = 50_000
	MaxRunEdges    = 500_000
	MaxRunInput    = 64 << 20 // bytes of all inputs of a run that have placeholders
)

// ForEach makes one task for each item of a list. Exactly one of Outputs, Items and
// Values is set; From is set with the first two. A task is named TASK[NAME].
//
// Its placeholders are {{each.name}}, {{each.path}} and {{each.value}}. In an input, a
// placeholder is a whole JSON string and is replaced by a JSON value; in the outputs of
// needs and in locks it is a part of the text.
type ForEach struct {
	From TaskID `json:"from,omitempty"` // the task whose products are the list
	// Outputs is a path below outputs/ with one *, which stands for the name of an item
	// and matches no slash.
	Outputs string `json:"outputs,omitempty"`
	// Items is the place of a list in the result of From, such as $.files[*].
	Items string `json:"items,omitempty"`
	// Values are the items themselves. An item is a text that is a valid name, or an
	// object with such a "name"; also in the list of Items.
	Values []json.RawMessage `json:"values,omitempty"`
	Max    int               `json:"max,omitempty"` // of items; default DefaultForEach, and of Values MaxForEach
}

// Gate has the patch of a task checked, and fixed while the verdict is red. The result
// of Verify has a "verdict" of "green" or "red". Verify has the patch at inputs/change;
// Fix has the patch, the result of Verify at inputs/verdict, and the needs of the task.
// The last fix replaces the patch of the task.
type Gate struct {
	Verify   GateStep `json:"verify"`             // its tasks are TASK.gate1, TASK.gate2, …
	Fix      GateStep `json:"fix"`                // its tasks are TASK.fix1, TASK.fix2, …
	Attempts int      `json:"attempts,omitempty"` // of Fix; default 1
	// Protected has the gate refuse a patch that changes a file which the verify command of
	// its subagent is known to run, whatever the verdict is: see VerifyReport.Changed.
	Protected bool `json:"protected,omitempty"`
}

// The verdicts of a gate and of a reviewer.
const (
	VerdictGreen, VerdictRed      = "green", "red"
	VerdictApprove, VerdictReject = "approve", "reject"
)

// GateStep is a subagent of a gate with its input. Its JSON is NAME, or the object.
type GateStep struct {
	Subagent Name            `json:"subagent"`
	Input    json.RawMessage `json:"input,omitempty"` // a JSON object
}

// MarshalJSON writes the shorter form.
func (s GateStep) MarshalJSON() ([]byte, error) {
	if len(s.Input) == 0 {
		return json.Marshal(s.Subagent)
	}
	type plain GateStep
	return json.Marshal(plain(s))
}

// UnmarshalJSON reads both forms.
func (s *GateStep) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &s.Subagent); err == nil {
		s.Input = nil
		return nil
	}
	type plain GateStep
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode((*plain)(s)); err != nil || s.Subagent == "" {
		return errors.New(`want "SUBAGENT" or {"subagent": "SUBAGENT", "input": {…}}`)
	}
	return nil
}

// Quorum has reviewers vote about what the task needs. The task is done as soon as
// Approve of them approve, and failed as soon as that cannot happen any more. The
// tasks of the voters are TASK.vote1, TASK.vote2, …; those that are left when it is
// known are cancelled.
type Quorum struct {
	// Of are subagents, whose result has a "verdict" of "approve" or "reject", and
	// people, as human:NAME or local:NAME.
	Of      []string `json:"of"`
	Approve int      `json:"approve"`
}

// TaskApproval waits for people who sign what they were shown.
type TaskApproval struct {
	By      []Principal `json:"by"`                // who may approve; never who submitted the run
	Count   int         `json:"count,omitempty"`   // how many of them; default 1
	Show    []TaskID    `json:"show,omitempty"`    // whose products they are shown; default: all that the task depends on
	Timeout Duration    `json:"timeout,omitempty"` // default DefaultApprovalExpiry
}

// When is a condition on a result. A task whose condition does not hold is skipped.
type When struct {
	Task   TaskID          `json:"task"`
	Result string          `json:"result"` // a place in its result, such as $.risk
	Is     json.RawMessage `json:"is"`     // text, number or boolean
}

// After says which ends of its dependencies a task waits for.
type After string

// The values of After.
const (
	AfterDone After = ""    // all are done
	AfterAny  After = "any" // all are done, or skipped by a condition; what such a task would have given is absent
)

// UnmarshalText refuses other values.
func (a *After) UnmarshalText(b []byte) error {
	if After(b) != AfterAny {
		return fmt.Errorf("after %.40q: want %s", b, AfterAny)
	}
	*a = AfterAny
	return nil
}

// RunAppend adds tasks to an open run. Every task is checked and decided about as if it
// were submitted now, by the catalog revision of the run. All are added, or none.
type RunAppend struct {
	Tasks json.RawMessage `json:"tasks"` // a list of PlanTask; they may depend on those of the run
	// Key is a random text of at most MaxKey bytes that identifies this request: a
	// repetition of it adds nothing.
	Key    string `json:"key,omitempty"`
	DryRun bool   `json:"dryRun,omitempty"` // as of RunRequest: only the problems are returned
}
