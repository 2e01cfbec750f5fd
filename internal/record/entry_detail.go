package record

import (
	"fmt"
	"slices"
)

// Detail is what only entries of one kind say. Every field is a text, a list
// of texts, a whole number or a boolean; fields stand in the order of their
// JSON names (see wire).
type Detail interface {
	// bound returns a copy whose texts, lists and numbers are within b.
	bound(b *bounds) Detail
	// say returns the entry in plain words, between its time and its number.
	say(e *Entry) string
}

// asked is the detail of something that policy decides.
type asked interface {
	Detail
	refused(reasons []string) Detail
}

// ServiceStart is the detail of KindServiceStarted.
type ServiceStart struct {
	Isolation []string `json:"isolation,omitempty"` // what this machine gives
	Mode      string   `json:"mode"`                // same-user or system
	PID       int64    `json:"pid"`
	Version   string   `json:"version"`
}

func (d ServiceStart) bound(b *bounds) Detail {
	d.Isolation, d.Mode, d.PID, d.Version = b.list(d.Isolation), b.cut(d.Mode), b.number(d.PID), b.cut(d.Version)
	return d
}

// ServiceStop is the detail of KindServiceStopped.
type ServiceStop struct {
	Reason  string `json:"reason"`
	Running int64  `json:"running"` // dispatches that go on without it
}

func (d ServiceStop) bound(b *bounds) Detail {
	d.Reason, d.Running = b.cut(d.Reason), b.number(d.Running)
	return d
}

// RevisionSeen is the detail of KindCatalogRevision; RefRevision names it.
type RevisionSeen struct {
	Author    string   `json:"author"` // as the deploy program saw it
	Keys      []string `json:"keys"`   // whose signatures were verified
	Number    int64    `json:"number"`
	Reason    string   `json:"reason"`
	Threshold int64    `json:"threshold"` // signatures needed
}

func (d RevisionSeen) bound(b *bounds) Detail {
	d.Author, d.Keys, d.Reason = b.cut(d.Author), b.list(d.Keys), b.cut(d.Reason)
	d.Number, d.Threshold = b.number(d.Number), b.number(d.Threshold)
	return d
}

// RevisionRefused is the detail of KindCatalogRefused.
type RevisionRefused struct {
	Cause   string `json:"cause"`   // one word: unsigned, foreign, replayed, mixed, corrupt
	Current int64  `json:"current"` // number of the revision that stays in force; 0 for none
	Message string `json:"message"`
	Number  int64  `json:"number"` // that the refused one claims; 0 where it could not be read
}

func (d RevisionRefused) bound(b *bounds) Detail {
	d.Cause, d.Message = b.cut(d.Cause), b.cut(d.Message)
	d.Current, d.Number = b.number(d.Current), b.number(d.Number)
	return d
}

// AuthRefused is the detail of KindAuthRefused.
type AuthRefused struct {
	Claimed string `json:"claimed"` // what the caller said or the system told of it; never a secret
	Message string `json:"message"`
	Via     string `json:"via"` // unix or http
}

func (d AuthRefused) bound(b *bounds) Detail {
	d.Claimed, d.Message, d.Via = b.cut(d.Claimed), b.cut(d.Message), b.cut(d.Via)
	return d
}

// InvalidRequest is the detail of KindRequestInvalid.
type InvalidRequest struct {
	Code      string `json:"code"` // an api.Code
	Message   string `json:"message"`
	Operation string `json:"operation"` // what was called
}

func (d InvalidRequest) bound(b *bounds) Detail {
	d.Code, d.Message, d.Operation = b.cut(d.Code), b.cut(d.Message), b.cut(d.Operation)
	return d
}

// DispatchAsk is the detail of KindDispatchAccepted and KindDispatchDenied.
type DispatchAsk struct {
	Capabilities []string `json:"capabilities,omitempty"` // beyond the subagent's own
	Commit       string   `json:"commit,omitempty"`
	Envs         []string `json:"envs,omitempty"`
	Reasons      []string `json:"reasons,omitempty"` // of a denial
	Revision     int64    `json:"revision"`          // of the catalog
	Source       string   `json:"source,omitempty"`
	Subagent     string   `json:"subagent"`
	Target       string   `json:"target"`
}

func (d DispatchAsk) bound(b *bounds) Detail {
	d.Capabilities, d.Envs, d.Reasons = b.list(d.Capabilities), b.list(d.Envs), b.list(d.Reasons)
	d.Commit, d.Source, d.Subagent, d.Target = b.cut(d.Commit), b.cut(d.Source), b.cut(d.Subagent), b.cut(d.Target)
	d.Revision = b.number(d.Revision)
	return d
}

func (d DispatchAsk) refused(reasons []string) Detail {
	d.Reasons = slices.Clone(reasons)
	return d
}

// DispatchStart is the detail of KindDispatchStarted; RefManifest names what
// it runs.
type DispatchStart struct {
	Isolation []string `json:"isolation,omitempty"` // layers that are active
	PID       int64    `json:"pid"`                 // of the worker
	WorkerKey string   `json:"workerKey"`           // public half; the result must be signed with the other
}

func (d DispatchStart) bound(b *bounds) Detail {
	d.Isolation, d.PID, d.WorkerKey = b.list(d.Isolation), b.number(d.PID), b.cut(d.WorkerKey)
	return d
}

// DispatchEnd is the detail of the kinds that end an attempt.
type DispatchEnd struct {
	By       string `json:"by,omitempty"` // of a cancellation: who
	ExitCode int64  `json:"exitCode"`     // of the agent; 0 where it did not run
	Files    int64  `json:"files"`        // changed by the patch
	Message  string `json:"message,omitempty"`
	Millis   int64  `json:"millis"`           // since it was accepted
	Partial  bool   `json:"partial"`          // captured before the work was complete
	Reason   string `json:"reason,omitempty"` // of a failure: an api.Reason
	Verify   string `json:"verify,omitempty"` // passed, failed or absent
}

func (d DispatchEnd) bound(b *bounds) Detail {
	d.By, d.Message, d.Reason, d.Verify = b.cut(d.By), b.cut(d.Message), b.cut(d.Reason), b.cut(d.Verify)
	d.ExitCode, d.Files, d.Millis = b.number(d.ExitCode), b.number(d.Files), b.number(d.Millis)
	return d
}

// DispatchFound is the detail of KindDispatchFound.
type DispatchFound struct {
	Message string `json:"message,omitempty"`
	State   string `json:"state"`  // that the service had stored: accepted, started
	Worker  string `json:"worker"` // running, ended, dead, absent
}

func (d DispatchFound) bound(b *bounds) Detail {
	d.Message, d.State, d.Worker = b.cut(d.Message), b.cut(d.State), b.cut(d.Worker)
	return d
}

// CancelAsk is the detail of KindCancelRequested and KindCancelDenied.
type CancelAsk struct {
	Reasons []string `json:"reasons,omitempty"` // of a denial
	State   string   `json:"state"`             // of the dispatch at that moment
	Why     string   `json:"why,omitempty"`     // in the words of who asked
}

func (d CancelAsk) bound(b *bounds) Detail {
	d.Reasons, d.State, d.Why = b.list(d.Reasons), b.cut(d.State), b.cut(d.Why)
	return d
}

func (d CancelAsk) refused(reasons []string) Detail {
	d.Reasons = slices.Clone(reasons)
	return d
}

// Access is the detail of the verbs that start nothing, allowed or denied.
type Access struct {
	Operation string   `json:"operation"`         // what was called, with what it was called for
	Reasons   []string `json:"reasons,omitempty"` // of a denial
}

func (d Access) bound(b *bounds) Detail {
	d.Operation, d.Reasons = b.cut(d.Operation), b.list(d.Reasons)
	return d
}

func (d Access) refused(reasons []string) Detail {
	d.Reasons = slices.Clone(reasons)
	return d
}

// Removal is the detail of KindRetentionRemoved. The entry is of whoever asked,
// or of nobody where the service did it by itself.
type Removal struct {
	Bytes      int64    `json:"bytes"`                // that are free afterwards
	Class      string   `json:"class"`                // content, evidence, unreferenced
	Dispatches []string `json:"dispatches,omitempty"` // whose
	Items      int64    `json:"items"`                // dispatches, or unreferenced blobs
	Rule       string   `json:"rule"`                 // that lets it go
}

func (d Removal) bound(b *bounds) Detail {
	d.Bytes, d.Class, d.Dispatches = b.number(d.Bytes), b.cut(d.Class), b.list(d.Dispatches)
	d.Items, d.Rule = b.number(d.Items), b.cut(d.Rule)
	return d
}

// AnswerAsk is the detail of KindDispatchAnswered and KindAnswerDenied;
// RefQuestion and RefAnswer name what was asked and what is answered.
type AnswerAsk struct {
	Attempt int64    `json:"attempt"`           // that asked
	Option  int64    `json:"option,omitempty"`  // number of the option that was chosen, from 1
	Reasons []string `json:"reasons,omitempty"` // of a denial
}

func (d AnswerAsk) bound(b *bounds) Detail {
	d.Attempt, d.Option, d.Reasons = b.number(d.Attempt), b.number(d.Option), b.list(d.Reasons)
	return d
}

func (d AnswerAsk) refused(reasons []string) Detail {
	d.Reasons = slices.Clone(reasons)
	return d
}

// NewDetail returns an empty detail of the type that belongs to kind k.
func NewDetail(k Kind) (Detail, error) {
	s, ok := k.shape()
	if !ok {
		return nil, fmt.Errorf("entry kind %q: not one of the log's", k)
	}
	return s.detail, nil
}
