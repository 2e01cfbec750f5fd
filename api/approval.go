package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"
)

// ApprovalID identifies a request for an approval: "a-" and 12 characters of a-z and
// 2-7.
type ApprovalID string

var approvalPattern = regexp.MustCompile(`^a-[a-z2-7]{12}$`)

// UnmarshalText accepts only a valid id.
func (id *ApprovalID) UnmarshalText(b []byte) error {
	if !approvalPattern.Match(b) {
		return fmt.Errorf("approval %.40q: want a- and 12 of a-z 2-7", b)
	}
	*id = ApprovalID(b)
	return nil
}

// ToolAction is what people approve: one call with everything that it is decided by.
// The digest of its canonical JSON is what they sign.
type ToolAction struct {
	V          int             `json:"v"` // ToolActionVersion; 1 of older ones
	ID         ApprovalID      `json:"approval"`
	Tool       string          `json:"tool"`
	Arguments  json.RawMessage `json:"arguments"`
	Definition Digest          `json:"definition"` // of the canonical ToolDefinition
	Tier       Tier            `json:"tier"`
	Dispatch   DispatchID      `json:"dispatch"`
	Run        RunID           `json:"run,omitempty"`
	Task       TaskID          `json:"task,omitempty"`
	Subagent   Name            `json:"subagent"`
	Role       Name            `json:"role"`
	Target     Name            `json:"target"`
	Principal  Principal       `json:"principal"` // who submitted the work
	Revision   Digest          `json:"revision"`  // of the catalog, that the dispatch is pinned to
	Policies   []string        `json:"policies"`  // that want the approval
	Taint      *Taint          `json:"taint,omitempty"`
	Needs      int             `json:"needs"` // different people
	Expires    time.Time       `json:"expires"`
}

// ToolActionVersion is the version of a ToolAction. Before 2 a denial denied a call only as
// long as its dispatch had read the same text from outside; from 2 on it denies the call.
const ToolActionVersion = 2

// TaskAction is what people approve: a task of a run, by the products that they are
// shown. The digest of its canonical JSON is what they sign.
type TaskAction struct {
	V         int         `json:"v"` // 1
	ID        ApprovalID  `json:"approval"`
	Run       RunID       `json:"run"`
	Task      TaskID      `json:"task"`
	Principal Principal   `json:"principal"` // who submitted the run
	Plan      Digest      `json:"plan"`      // of the submitted plan
	Shown     []ShownTask `json:"shown"`
	// Write is what the task is to run with, where people approve it before it writes;
	// nil: the task is the approval itself.
	Write   *WriteAction `json:"write,omitempty"`
	By      []Principal  `json:"by"`    // who may approve
	Needs   int          `json:"needs"` // different people
	Expires time.Time    `json:"expires"`
}

// Starts returns the dispatch that starts once people approved it; empty: the task is the
// approval itself.
func (a *TaskAction) Starts() DispatchID {
	if a.Write == nil {
		return ""
	}
	return a.Write.Dispatch
}

// WriteAction is what one attempt of a task is to run with. With the catalog of Revision
// it gives everything that its manifest has but times and keys.
type WriteAction struct {
	Dispatch     DispatchID      `json:"dispatch"` // of the attempt: a retry is another one
	Subagent     Name            `json:"subagent"`
	Tier         Tier            `json:"tier"`
	Target       Name            `json:"target"`
	Revision     Digest          `json:"revision"` // of the catalog, which says what the names mean
	Envs         []Name          `json:"envs,omitempty"`
	Capabilities []Name          `json:"capabilities,omitempty"`
	Source       *PinnedSource   `json:"source,omitempty"`
	Input        json.RawMessage `json:"input"`
	Needs        []WriteNeed     `json:"needs,omitempty"`
	Taint        *Taint          `json:"taint,omitempty"`
}

// WriteNeed is a product of another task that a WriteAction starts from.
type WriteNeed struct {
	Name     Name       `json:"name"`
	Item     string     `json:"item,omitempty"`
	Task     TaskID     `json:"task"`
	Dispatch DispatchID `json:"dispatch"`
	Kind     string     `json:"kind"`
	Path     string     `json:"path,omitempty"`
	Digest   Digest     `json:"digest"`
	Size     int64      `json:"size"`
}

// ShownTask is the products of a task that people are shown.
type ShownTask struct {
	Task     TaskID     `json:"task"`
	Dispatch DispatchID `json:"dispatch"`
	Result   Digest     `json:"result"` // of the signed result document
	Patch    *Artifact  `json:"patch,omitempty"`
	Changed  []string   `json:"changed,omitempty"` // VerifyReport.Changed
	Outputs  []Artifact `json:"outputs,omitempty"`
	Value    Digest     `json:"value,omitempty"` // of the structured result
	Text     Digest     `json:"text,omitempty"`  // of the agent's final text
}

// MaxTaskAction bounds the canonical JSON of a TaskAction, in bytes. A task that shows
// more fails.
const MaxTaskAction = 1 << 20

// Action is what people approve, a call or a task: exactly one of Call and Step is set,
// and the JSON is that document.
type Action struct {
	ActionHead
	Call *ToolAction
	Step *TaskAction
}

// ActionHead is what both kinds of an Action have.
type ActionHead struct {
	ID        ApprovalID
	Run       RunID
	Task      TaskID
	Dispatch  DispatchID // of a call
	Principal Principal  // who submitted the work
	Needs     int        // different people
	Expires   time.Time
}

// Action returns a as what people approve.
func (a ToolAction) Action() Action {
	return Action{ActionHead{a.ID, a.Run, a.Task, a.Dispatch, a.Principal, a.Needs, a.Expires}, &a, nil}
}

// Action returns a as what people approve.
func (a TaskAction) Action() Action {
	return Action{ActionHead{a.ID, a.Run, a.Task, "", a.Principal, a.Needs, a.Expires}, nil, &a}
}

// What names in one line what is approved.
func (a *Action) What() string {
	if a.Step != nil && a.Step.Write != nil {
		return fmt.Sprintf("what task %s of run %s writes", a.Task, a.Run)
	}
	if a.Step != nil {
		return fmt.Sprintf("task %s of run %s", a.Task, a.Run)
	}
	return fmt.Sprintf("a call of %.200s", a.Call.Tool)
}

// MarshalJSON writes the document.
func (a Action) MarshalJSON() ([]byte, error) {
	switch {
	case a.Step != nil:
		return json.Marshal(a.Step)
	case a.Call != nil:
		return json.Marshal(a.Call)
	}
	return nil, errors.New("an action is a call or a task")
}

// UnmarshalJSON reads either document: only that of a call has a tool.
func (a *Action) UnmarshalJSON(b []byte) error {
	var kind struct {
		Tool *string `json:"tool"`
	}
	if err := json.Unmarshal(b, &kind); err != nil {
		return err
	}
	if kind.Tool != nil {
		var call ToolAction
		err := json.Unmarshal(b, &call)
		*a = call.Action()
		return err
	}
	var step TaskAction
	err := json.Unmarshal(b, &step)
	*a = step.Action()
	return err
}

// OpenApproval is an open request for an approval, as a run shows it: about one of its
// tasks, or about a call of a tool by the task's dispatch.
type OpenApproval struct {
	ID         ApprovalID `json:"approval"`
	Task       TaskID     `json:"task"`
	DispatchID DispatchID `json:"dispatchId,omitempty"` // whose call it is about
	Tool       string     `json:"tool,omitempty"`       // that the call is of
	Electorate
	Expires time.Time `json:"expires"`
}

// Electorate is whose approval something waits for.
type Electorate struct {
	By       []Principal `json:"by,omitempty"` // who may approve; of a call, programs are not told
	Needs    int         `json:"needs,omitempty"`
	Approved int         `json:"approved,omitempty"` // how many of them have
}

// MaxOpenApprovals bounds the requests that a run shows.
const MaxOpenApprovals = 100

// ApprovalState is how a request for an approval stands. The set is closed.
type ApprovalState string

// The states.
const (
	ApprovalOpen     ApprovalState = "open"
	ApprovalApproved ApprovalState = "approved" // by as many as it needs, and not used yet
	ApprovalUsed     ApprovalState = "used"     // the call was made, the task is done, or its dispatch was admitted
	ApprovalDenied   ApprovalState = "denied"
	ApprovalExpired  ApprovalState = "expired"
	ApprovalEnded    ApprovalState = "ended" // the dispatch or the task ended before
)

// Approval is a request for an approval, as people see it.
type Approval struct {
	Action      Action        `json:"action"`
	Digest      Digest        `json:"digest"` // of the canonical Action
	State       ApprovalState `json:"state"`
	RequestedAt time.Time     `json:"requestedAt"`
	Votes       []Vote        `json:"votes,omitempty"`
	// Words are what the agent reported last: its own words.
	Words string `json:"words,omitempty"`
}

// Vote is the signed decision of one person about an approval.
type Vote struct {
	Principal Principal `json:"principal"`
	Keys      []string  `json:"keys"` // ids of the operator keys that signed
	At        time.Time `json:"at"`
	Approve   bool      `json:"approve"`
	Reason    string    `json:"reason,omitempty"`
	Record    uint64    `json:"record"` // number of the operator record
}

// ApprovalView is a request with what its reader may do about it.
type ApprovalView struct {
	Approval
	// Head is what the reader's vote has to name; nil: the reader may not vote, and
	// WhyNot says why. A list has none.
	Head   *OperatorHead `json:"head,omitempty"`
	WhyNot string        `json:"whyNot,omitempty"`
	// Products are the readable ones of the shown tasks, in their order. A list has none.
	Products []ShownProduct `json:"products,omitempty"`
}

// ShownProduct is what of a shown task's result people read where they vote. The service
// shows it only if its digests are those of the action.
type ShownProduct struct {
	Task  TaskID       `json:"task"`
	Files []FileChange `json:"files,omitempty"` // of the patch
	// Changed is VerifyReport.Changed.
	Changed []string        `json:"changed,omitempty"`
	Value   json.RawMessage `json:"value,omitempty"` // the structured result
	Text    string          `json:"text,omitempty"`  // the agent's own words
	Gone    bool            `json:"gone,omitempty"`  // retention has removed it
}

// VoteRequest submits a signed vote.
type VoteRequest struct {
	Envelope []byte `json:"envelope"` // DSSE, canonical JSON, of an OperatorRecord
}
