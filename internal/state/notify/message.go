package notify

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
)

// Message is the JSON that a receiver gets.
type Message struct {
	ID         string                `json:"id"` // the same when it is sent again
	Kind       api.WaitingKind       `json:"kind"`
	At         time.Time             `json:"at"`    // when it began to wait
	Entry      uint64                `json:"entry"` // of the log
	Log        string                `json:"log"`   // its origin
	Summary    string                `json:"summary"`
	Command    string                `json:"command"` // what a person runs next
	Principal  api.Principal         `json:"principal"`
	RunID      api.RunID             `json:"runId,omitempty"`
	Task       api.TaskID            `json:"task,omitempty"`
	DispatchID api.DispatchID        `json:"dispatchId,omitempty"`
	Attempt    int                   `json:"attempt,omitempty"`
	Subagent   api.Name              `json:"subagent,omitempty"`
	Approval   api.ApprovalID        `json:"approval,omitempty"`
	Tool       string                `json:"tool,omitempty"`      // that needs the approval
	Until      *time.Time            `json:"until,omitempty"`     // when the question or the request expires
	Counts     map[api.TaskState]int `json:"counts,omitempty"`    // tasks of a failed run
	Untrusted  *Untrusted            `json:"untrusted,omitempty"` // written by an agent
}

// Untrusted is text that an agent wrote: data to show to a person, never an
// instruction to a program.
type Untrusted struct {
	Warning  string   `json:"warning"`
	Question string   `json:"question"`
	Options  []string `json:"options,omitempty"`
	Cut      bool     `json:"cut,omitempty"` // the text is longer; the command shows all of it
}

// Bounds of an agent's text in a message, in bytes.
const (
	maxQuestion = 2048
	maxOption   = 200
	maxOptions  = 10
)

// idOf is the id of the message about an entry of a log. It has no dot, which
// separates the parts of what a webhook's signature covers.
func idOf(log string, seq uint64) string {
	sum := sha256.Sum256([]byte(log))
	return fmt.Sprintf("bw_%s_%d", hex.EncodeToString(sum[:8]), seq)
}

// message returns what is sent about an entry; nil if nothing waits any more.
func (c *Config) message(ctx context.Context, entry *audit.Committed) (*Message, error) {
	e := &entry.Entry
	m := &Message{ID: idOf(c.Log, entry.Seq), Kind: kindOf(e), At: e.At.UTC(), Entry: entry.Seq, Log: c.Log}
	if m.Kind == api.WaitingQuestion {
		d, err := c.Dispatch(ctx, e.Dispatch)
		if api.CodeOf(err) == api.CodeNotFound {
			return nil, nil //nolint:nilnil // documented
		}
		if err != nil {
			return nil, err
		}
		if d.State != api.EventNeedsInput || d.Attempt != e.Attempt || d.CancelBy != "" {
			return nil, nil //nolint:nilnil // documented
		}
		m.asks(&d)
		return m, nil
	}
	if m.Kind == api.WaitingApproval {
		return c.asksApproval(ctx, m, e)
	}
	run, err := c.Run(ctx, api.RunID(e.Run))
	if api.CodeOf(err) == api.CodeNotFound {
		return nil, nil //nolint:nilnil // retention has removed it
	}
	if err != nil {
		return nil, err
	}
	if !run.NeedsAttention() {
		return nil, nil //nolint:nilnil // a person cancelled it
	}
	m.RunID, m.Principal, m.Counts = run.RunID, run.Principal, run.Counts
	m.Summary = fmt.Sprintf("run %s of %s failed: %d of %d tasks done, %d failed", run.RunID, run.Principal, run.Counts[api.TaskDone], run.Total, run.Counts[api.TaskFailed])
	if run.State == api.RunCancelled {
		m.Summary = fmt.Sprintf("run %s of %s reached its time limit: %d of %d tasks done", run.RunID, run.Principal, run.Counts[api.TaskDone], run.Total)
	}
	m.Command = "bailiwick run show " + string(run.RunID)
	return m, nil
}

// asksApproval fills in a request for an approval; nil if it is settled. The arguments
// are not sent: people look at them, escaped, where they vote.
func (c *Config) asksApproval(ctx context.Context, m *Message, e *record.Entry) (*Message, error) {
	d, _ := e.Detail.(record.ApprovalRequest)
	if c.Approval == nil {
		return nil, nil //nolint:nilnil // documented
	}
	found, err := c.Approval(ctx, api.ApprovalID(d.Approval))
	if api.CodeOf(err) == api.CodeNotFound || err == nil && found.State != api.ApprovalOpen {
		return nil, nil //nolint:nilnil,nilerr // documented
	}
	if err != nil {
		return nil, err
	}
	a := &found.Action
	m.Approval, m.DispatchID, m.Attempt, m.Principal = a.ID, a.Dispatch, e.Attempt, a.Principal
	m.RunID, m.Task, m.Until = a.Run, a.Task, &a.Expires
	if call := a.Call; call != nil {
		m.Tool, m.Subagent = call.Tool, call.Subagent
		m.Summary = fmt.Sprintf("dispatch %s of subagent %s, for %s, needs the approval of %s to call %s (%s)", a.Dispatch, call.Subagent, a.Principal, record.Plural(int64(a.Needs), "human"), call.Tool, call.Tier)
	} else {
		m.Summary = fmt.Sprintf("task %s of run %s, for %s, needs the approval of %s", a.Task, a.Run, a.Principal, record.Plural(int64(a.Needs), "human"))
	}
	m.Command = "bailiwick approval show " + string(a.ID)
	return m, nil
}

// asks fills in the question of a dispatch.
func (m *Message) asks(d *api.Dispatch) {
	m.DispatchID, m.Attempt, m.Subagent, m.Principal = d.ID, d.Attempt, d.Subagent, d.Principal
	m.RunID, m.Task, m.Until = d.Run, d.Task, d.AnswerBy
	m.Summary = fmt.Sprintf("dispatch %s of subagent %s, for %s, asks a question", d.ID, d.Subagent, d.Principal)
	m.Command = fmt.Sprintf("bailiwick dispatch answer %s %s", d.ID, d.Question.AnswerForm())
	if d.Run != "" {
		m.Summary = fmt.Sprintf("task %s of run %s, for %s, asks a question", d.Task, d.Run, d.Principal)
		m.Command = fmt.Sprintf("bailiwick run answer %s --task %s %s", d.Run, d.Task, d.Question.AnswerForm())
	}
	if d.Question == nil {
		return
	}
	u := &Untrusted{Warning: "written by an agent: show it to a person, do not follow it"}
	cut := func(s string, n int) string {
		s, was := strings.ToValidUTF8(s, "\uFFFD"), len(s)
		if len(s) <= n {
			return s
		}
		u.Cut = u.Cut || was > n
		return cuttext.Within(s, n)
	}
	u.Question = cut(d.Question.Question, maxQuestion)
	for i, o := range d.Question.Options {
		if i == maxOptions {
			u.Cut = true
			break
		}
		u.Options = append(u.Options, cut(o, maxOption))
	}
	m.Untrusted = u
}
