package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Event is a step in the life of a dispatch. The set is closed (R-D3).
type Event string

// The six lifecycle events.
const (
	EventAccepted   Event = "accepted"
	EventStarted    Event = "started"
	EventFinished   Event = "finished"
	EventNeedsInput Event = "needs_input"
	EventFailed     Event = "failed"
	EventCancelled  Event = "cancelled"
)

// Events lists them all.
func Events() []Event {
	return []Event{EventAccepted, EventStarted, EventFinished, EventNeedsInput, EventFailed, EventCancelled}
}

// Ended reports whether e is the last event of an attempt.
func (e Event) Ended() bool { return e != EventAccepted && e != EventStarted }

// The words for several states of dispatches.
const (
	DispatchesOpen  = "open"  // accepted or started
	DispatchesEnded = "ended" // every other state
)

// ParseEvents returns the states that a word means: an Event, DispatchesOpen or
// DispatchesEnded.
func ParseEvents(word string) ([]Event, error) {
	all := Events()
	switch {
	case word == DispatchesOpen:
		return slices.DeleteFunc(all, Event.Ended), nil
	case word == DispatchesEnded:
		return slices.DeleteFunc(all, func(e Event) bool { return !e.Ended() }), nil
	case slices.Contains(all, Event(word)):
		return []Event{Event(word)}, nil
	}
	return nil, fmt.Errorf("state %.80q: want one of %s", word, OneOf(append(all, DispatchesOpen, DispatchesEnded)))
}

// Reason says why a dispatch failed. The set is closed (R-D3).
type Reason string

// The failure reasons.
const (
	ReasonDenied    Reason = "denied"    // policy refused it
	ReasonIntegrity Reason = "integrity" // a signature, digest, expiry or revision was wrong
	ReasonFetch     Reason = "fetch"     // the source could not be fetched
	ReasonSetup     Reason = "setup"     // a setup script failed, or the jail could not be built
	ReasonContext   Reason = "context"   // a requirement was not met
	ReasonAgent     Reason = "agent"     // the agent failed
	ReasonVerify    Reason = "verify"    // the verify command failed; the patch is kept
	ReasonOutput    Reason = "output"    // the result does not fit the output schema, or could not be captured
	ReasonTimeout   Reason = "timeout"   // the agent exceeded its timeout
	ReasonLimit     Reason = "limit"     // a resource limit stopped it
	ReasonLost      Reason = "lost"      // the worker died without a result, or a fault of the machine, such as a full disk, ended the attempt
)

// Reasons lists them all.
func Reasons() []Reason {
	return []Reason{
		ReasonDenied, ReasonIntegrity, ReasonFetch, ReasonSetup, ReasonContext, ReasonAgent,
		ReasonVerify, ReasonOutput, ReasonTimeout, ReasonLimit, ReasonLost,
	}
}

// DispatchRequest requests one execution of a subagent. It names artifacts and
// carries no authority (R-B7). Unknown fields are refused by name.
type DispatchRequest struct {
	Subagent       Name            `json:"subagent"`
	Input          json.RawMessage `json:"input,omitempty"` // a JSON object; {} when absent
	Target         Name            `json:"target,omitempty"`
	Envs           []Name          `json:"env,omitempty"`
	Capabilities   []Name          `json:"capabilities,omitempty"` // beyond the subagent's own, laid over after them
	Source         *SourceRequest  `json:"source,omitempty"`
	TimeoutSeconds int             `json:"timeoutSeconds,omitempty"` // at most the subagent's limit
	DispatchID     DispatchID      `json:"dispatchId,omitempty"`
}

// SourceRequest names where the workspace starts.
type SourceRequest struct {
	Name   Name   `json:"name"`
	Commit string `json:"commit,omitempty"` // a commit, branch or tag of the source; HEAD when absent
}

// Dispatch is the record of one dispatch, as callers see it.
type Dispatch struct {
	ID           DispatchID     `json:"dispatchId"`
	State        Event          `json:"state"`
	Reason       Reason         `json:"reason,omitempty"`
	Message      string         `json:"message,omitempty"` // the reason in words
	Attempt      int            `json:"attempt"`
	Principal    Principal      `json:"principal"`
	Run          RunID          `json:"run,omitempty"`  // set if it belongs to a task of a run
	Task         TaskID         `json:"task,omitempty"` //
	Subagent     Name           `json:"subagent"`
	Role         Name           `json:"role"`
	Tier         Tier           `json:"tier"`
	Target       Name           `json:"target"`
	Source       *PinnedSource  `json:"source,omitempty"`
	Revision     uint64         `json:"revision"` // of the catalog
	Manifest     Digest         `json:"manifest"`
	Input        Digest         `json:"input,omitempty"`     // of the canonical input
	Result       Digest         `json:"result,omitempty"`    // of the signed result document; set once it exists
	Statement    Digest         `json:"statement,omitempty"` // of the signed statement about it; set soon after the end
	AcceptedAt   time.Time      `json:"acceptedAt"`
	StartedAt    *time.Time     `json:"startedAt,omitempty"`
	EndedAt      *time.Time     `json:"endedAt,omitempty"`
	CancelBy     Actor          `json:"cancelledBy,omitempty"`
	CancelReason string         `json:"cancelReason,omitempty"` // as CancelBy wrote it
	Outcome      *ResultSummary `json:"outcome,omitempty"`
	Mode         string         `json:"mode"`            // same-user or system
	Trace        Trace          `json:"trace,omitempty"` // the span of its request

	// Question is the question of an attempt that ended with needs_input. Lists omit
	// it.
	Question  *Question  `json:"question,omitempty"`
	ResumedAt *time.Time `json:"resumedAt,omitempty"` // when the current attempt was admitted; absent for the first
	AnswerBy  *time.Time `json:"answerBy,omitempty"`  // when an open question expires and the dispatch fails, or its run is cancelled
	Answer    *Answer    `json:"answer,omitempty"`    // to the question of this attempt
	Attempts  []Attempt  `json:"attempts,omitempty"`  // earlier attempts, oldest first; not in lists
	Pinned    *Pin       `json:"pinned,omitempty"`    // not in lists
	Removed   []Removal  `json:"removed,omitempty"`   // what retention has removed; not in lists

	// ReuseKey identifies all that the result of a pure subagent depends on, and Reused is
	// set where the result is that of an earlier dispatch with the same key.
	ReuseKey Digest `json:"reuseKey,omitempty"`
	Reused   *Reuse `json:"reused,omitempty"`

	Taint    *Taint     `json:"taint,omitempty"`     // it has text from outside
	Progress *Progress  `json:"progress,omitempty"`  // the agent's last report
	Calls    *ToolCalls `json:"toolCalls,omitempty"` // of tools, in the current attempt

	// Unreachable is set while the current attempt runs and cannot connect to its model.
	// Lists omit it.
	Unreachable *Unreachable `json:"unreachable,omitempty"`
}

// Unreachable says that a worker cannot connect to the model of its agent, which may
// retry.
type Unreachable struct {
	Model Name      `json:"model"`
	Host  string    `json:"host"`  // HOST:PORT of its endpoint
	Error string    `json:"error"` // of the last try
	Tries int64     `json:"tries"` // requests since the last connection
	Since time.Time `json:"since"` // when the first of them began
}

// DispatchFilter selects dispatches of a list. Zero fields select all.
type DispatchFilter struct {
	States    []Event
	Subagent  Name
	Principal Principal
	Run       RunID
	Since     time.Time  // accepted then or later
	After     DispatchID // only those behind this one, the last of the previous page
	Limit     int        // from 1 to 1,000; 0 means 50
}

// Question is a question of an agent, which resumes with the answer (R-D6). The
// agent writes it to .bailiwick/question.json, at most MaxQuestion bytes.
type Question struct {
	Question string          `json:"question"`
	Options  []string        `json:"options,omitempty"` // suggested answers; another one is allowed too
	Context  json.RawMessage `json:"context,omitempty"` // for the person who answers
	State    json.RawMessage `json:"state,omitempty"`   // returned to the agent with the answer
}

// AnswerForm is the form of an answer on a command line: a number of an option
// where there are some, else text.
func (q *Question) AnswerForm() string {
	if q != nil && len(q.Options) > 0 {
		return "--option N"
	}
	return "TEXT"
}

// MaxQuestion bounds a question with its context and state, and MaxAnswer an
// answer, in bytes.
const (
	MaxQuestion = 1 << 20
	MaxAnswer   = 64 << 10
)

// Check refuses a question without text or with invalid options.
func (q *Question) Check() error {
	if strings.TrimSpace(q.Question) == "" {
		return errors.New("question: the member \"question\" is missing or empty")
	}
	if len(q.Options) > 100 {
		return fmt.Errorf("question: %d options, more than 100", len(q.Options))
	}
	for i, o := range q.Options {
		if strings.TrimSpace(o) == "" || slices.Contains(q.Options[:i], o) {
			return fmt.Errorf("question: option %d is empty or a duplicate", i+1)
		}
	}
	return nil
}

// AnswerRequest answers the question of a dispatch: with a text, or with one
// of its options.
type AnswerRequest struct {
	Text   string `json:"text,omitempty"`
	Option int    `json:"option,omitempty"` // number of the option, from 1; 0 for none
	// Attempt is the attempt whose question is answered: a late answer never goes to
	// another question, and a repeated one has no effect. 0: the current attempt.
	Attempt int `json:"attempt,omitempty"`
}

// Answer is an answer to a question.
type Answer struct {
	Text   string    `json:"text"`
	Option int       `json:"option,omitempty"` // its number, from 1, if it is one of the options
	By     Principal `json:"by"`
	At     time.Time `json:"at"`
	Digest Digest    `json:"digest,omitempty"` // of the document for the next attempt
}

// Since returns when the current attempt was admitted.
func (d *Dispatch) Since() time.Time {
	if d.ResumedAt != nil {
		return *d.ResumedAt
	}
	return d.AcceptedAt
}

// Attempt is a summary of an earlier attempt.
type Attempt struct {
	Attempt  int        `json:"attempt"`
	State    Event      `json:"state"`
	Message  string     `json:"message,omitempty"` // of a question: its text
	Manifest Digest     `json:"manifest"`
	Result   Digest     `json:"result,omitempty"`
	EndedAt  *time.Time `json:"endedAt,omitempty"`
	Answer   *Answer    `json:"answer,omitempty"`
}

// PinnedSource is a source at one commit.
type PinnedSource struct {
	Name   Name   `json:"name"`
	Commit string `json:"commit"` // full object name
}

// ResultSummary is the result of a worker.
type ResultSummary struct {
	Captured  bool            `json:"captured,omitempty"` // the workspace was compared with its baseline
	Partial   bool            `json:"partial,omitempty"`  // captured before the work was complete
	Patch     *Artifact       `json:"patch,omitempty"`
	Files     []FileChange    `json:"files,omitempty"` // what the patch changes, at most MaxFiles of them
	Outputs   []Artifact      `json:"outputs,omitempty"`
	LeftOut   []LeftOut       `json:"leftOut,omitempty"` // files of the workspace that are in neither patch nor outputs
	Verify    *VerifyReport   `json:"verify,omitempty"`
	Value     json.RawMessage `json:"value,omitempty"` // outputs/result.json, if the subagent has an output schema
	Isolation Isolation       `json:"isolation"`
	Steps     []Step          `json:"steps,omitempty"`
	ExitCode  *int            `json:"exitCode,omitempty"` // of the agent
	Question  *Artifact       `json:"question,omitempty"` // of an attempt that ended with a question
	LogBytes  int64           `json:"logBytes"`           // bytes written by the jail; LogKept of them are stored
	LogKept   int64           `json:"logKept"`
	Log       []LogPart       `json:"log,omitempty"` // the stored parts in order: beginning and end
	Usage     Usage           `json:"usage"`
	Agent     *AgentReport    `json:"agent,omitempty"`    // of an agent program with an adapter
	Text      string          `json:"text,omitempty"`     // the agent's final text, redacted, at most 16 KiB
	Redacted  []string        `json:"redacted,omitempty"` // what secrets were removed from: log, patch, question, transcript, outputs/PATH
	// Content of the dispatch: the agent's event stream, redacted; one api.NetworkLine for
	// each request that it made; and the state of its own session, for a resume.
	Transcript *Artifact `json:"transcript,omitempty"`
	Network    *Artifact `json:"network,omitempty"`
	Session    *Artifact `json:"session,omitempty"`
	Refusals   *Refusals `json:"refusals,omitempty"` // of requests; nil: none was refused
}

// Refusals are the requests of an agent that its broker refused, as the log has
// them.
type Refusals struct {
	Count  int    `json:"count"`
	Digest string `json:"digest"` // of their canonical list, sorted by number; not of stored content
}

// AgentReport says which agent program ran.
type AgentReport struct {
	Adapter   string `json:"adapter"`
	Version   string `json:"version"`
	Integrity string `json:"integrity,omitempty"` // of an installed program: the digest of its package
}

// NetworkLine is the record of one request of an agent, allowed or refused.
type NetworkLine struct {
	Number   int64     `json:"number"` // from 1
	At       time.Time `json:"at"`
	Form     string    `json:"form"`             // model, connect, http, tls: by which way it came
	Host     string    `json:"host,omitempty"`   // HOST:PORT, or the name of the model
	Method   string    `json:"method,omitempty"` // absent in a blind tunnel
	Path     string    `json:"path,omitempty"`   // without the query, redacted; absent in a blind tunnel
	Status   int       `json:"status,omitempty"`
	Sent     int64     `json:"sent"`     // bytes of the agent's body or tunnel
	Received int64     `json:"received"` // bytes of the answer
	Millis   int64     `json:"millis"`
	Refused  string    `json:"refused,omitempty"` // why it was refused; empty if it was allowed
	Error    string    `json:"error,omitempty"`   // of an allowed request that failed
	Usage    *Tokens   `json:"usage,omitempty"`   // of an answer of the model
	// The model may have used more than Usage for its answer, which was not read to its end.
	Uncounted bool `json:"uncounted,omitempty"`
}

// Tokens is what answers of a model used, as the broker counted it.
type Tokens struct {
	Input      int64 `json:"inputTokens"`
	Output     int64 `json:"outputTokens"`
	CacheRead  int64 `json:"cacheReadTokens,omitempty"`
	CacheWrite int64 `json:"cacheWriteTokens,omitempty"`
}

// Total is the sum that the limit of tokens bounds.
func (t Tokens) Total() int64 { return t.Input + t.Output + t.CacheRead + t.CacheWrite }

// Artifact is captured content.
type Artifact struct {
	Path   string `json:"path,omitempty"` // below outputs/; empty for the patch
	Size   int64  `json:"size"`
	Digest Digest `json:"digest"`
	// Redacted says that secrets were removed from the content.
	Redacted bool `json:"redacted,omitempty"`
}

// LogPart is a stored part of a log.
type LogPart struct {
	Offset int64  `json:"offset"` // of its first byte in the whole log
	Size   int64  `json:"size"`
	Digest Digest `json:"digest"`
	Verify bool   `json:"verify,omitempty"` // written by the verify command, after the agent had ended
}

// FileChange is one path that a patch touches.
type FileChange struct {
	Path   string `json:"path"`
	Change string `json:"change"` // added, modified, deleted, type
}

// LeftOut is a file that capture refused.
type LeftOut struct {
	Path string `json:"path"` // with Go escapes unless plain text
	Why  string `json:"why"`
}

// VerifyReport is the result of the verify command.
type VerifyReport struct {
	Passed     bool    `json:"passed"`
	ExitCode   int     `json:"exitCode"`
	Seconds    float64 `json:"seconds"`
	ReportOnly bool    `json:"reportOnly,omitempty"`
	Message    string  `json:"message,omitempty"` // why it could not run or did not exit normally
	// Changed are the files of the patch that the command is known to run, and so files that
	// the agent wrote itself: at most MaxChanged, sorted, with Go escapes unless plain text.
	Changed []string `json:"changed,omitempty"`
}

// ChangedText names the files that v.Changed has, each written by show; empty without one.
func (v *VerifyReport) ChangedText(show func(string) string) string {
	if v == nil {
		return ""
	}
	return ChangedText(v.Changed, show)
}

// ChangedText is how people read VerifyReport.Changed.
func ChangedText(changed []string, show func(string) string) string {
	names := make([]string, len(changed))
	for i, name := range changed {
		names[i] = show(name)
	}
	text := strings.Join(names, ", ")
	switch n := len(names); {
	case n == 0:
		return ""
	case n >= MaxChanged:
		text += " and possibly more"
	}
	return "the patch changes " + text + ", which verify runs"
}

// Isolation lists the active isolation layers.
type Isolation struct {
	Level  string   `json:"level"`
	Layers []string `json:"layers"`
	Limits []string `json:"limits"` // how each limit was enforced: "memory: cgroup v1", "memory: watchdog", "kernel memory: not held"
}

// Step is one step of a worker.
type Step struct {
	Name    string    `json:"name"`
	At      time.Time `json:"at,omitzero"` // when it began
	Seconds float64   `json:"seconds"`
}

// Usage is what the agent consumed.
type Usage struct {
	WallSeconds float64 `json:"wallSeconds"`
	CPUSeconds  float64 `json:"cpuSeconds"`
	MaxMemory   Bytes   `json:"maxMemory,omitempty"`
	// Limits that a command reached: memory, processes, disk, files. The kernel ends one
	// process for memory, and the command may continue and finish.
	Reached []string `json:"reached,omitempty"`
	// Of a dispatch with a model, as the broker counted it; nil without one.
	Model *ModelUsage `json:"model,omitempty"`
}

// ModelUsage is what a dispatch used of its model. The broker counts it from the
// answers that pass; nothing of it is the agent's word.
type ModelUsage struct {
	Tokens

	Requests int64 `json:"requests"` // also those that were refused or failed
	Turns    int64 `json:"turns"`    // answers with status 200
	// Requests that the model may have answered and that were not counted to their end. An
	// attempt with one settles its whole reservation of a budget, or what was counted with
	// UncountedTokens and UncountedCost, whichever is more.
	Uncounted int64 `json:"uncounted,omitempty"`
	// The most that these requests may have used beyond what was counted. Requests of
	// UncountedUnbound add nothing.
	UncountedTokens int64 `json:"uncountedTokens,omitempty"`
	UncountedCost   Cost  `json:"uncountedCost,omitempty"`
	// How many of them have no bound.
	UncountedUnbound int64  `json:"uncountedUnbound,omitempty"`
	Cost             Cost   `json:"cost"` // by the model's prices; 0 without prices
	Currency         string `json:"currency,omitempty"`
}

// add adds what another attempt used, in the same currency.
func (u *ModelUsage) add(v *ModelUsage) {
	u.Input, u.Output, u.CacheRead, u.CacheWrite = u.Input+v.Input, u.Output+v.Output, u.CacheRead+v.CacheRead, u.CacheWrite+v.CacheWrite
	u.UncountedTokens, u.UncountedCost, u.UncountedUnbound = u.UncountedTokens+v.UncountedTokens, u.UncountedCost+v.UncountedCost, u.UncountedUnbound+v.UncountedUnbound
	u.Requests, u.Turns, u.Uncounted, u.Cost = u.Requests+v.Requests, u.Turns+v.Turns, u.Uncounted+v.Uncounted, u.Cost+v.Cost
}

// AddUsage adds u to the sum in its currency, and returns the sums.
func AddUsage(sums []ModelUsage, u ModelUsage) []ModelUsage {
	for i := range sums {
		if sums[i].Currency == u.Currency {
			sums[i].add(&u)
			return sums
		}
	}
	return append(sums, u)
}

// The files that the worker itself puts below inputs/ of a workspace.
const (
	InputFile  = "input.json"  // the input of the dispatch
	SystemFile = "system.md"   // the system prompt of its subagent
	PromptFile = "prompt.md"   // the rendered prompt
	ResumeFile = "resume.json" // the answer that an attempt resumes with
)

// ReservedInputs lists the names below inputs/ that a task's needs may not use.
func ReservedInputs() []Name {
	return []Name{InputFile, SystemFile, PromptFile, ResumeFile}
}
