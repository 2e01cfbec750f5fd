package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Manifest is the dispatch manifest: everything that determines what one attempt
// runs, without secrets. The service signs it before it starts a worker; the worker
// runs exactly what it says (R-D2).
type Manifest struct {
	V         int            `json:"v"` // 1
	ID        api.DispatchID `json:"dispatchId"`
	Attempt   int            `json:"attempt"`
	Principal api.Principal  `json:"principal"`
	Policies  []string       `json:"policies"` // that allowed it

	Revision       uint64     `json:"revision"` // of the catalog
	RevisionDigest api.Digest `json:"revisionDigest"`
	// Artifacts are the pinned digests of the artifacts named below, in the order of
	// Refs.
	Artifacts []Pin `json:"artifacts"`

	Subagent     api.Name          `json:"subagent"`
	Agent        string            `json:"agent"` // adapter
	Model        string            `json:"model,omitempty"`
	Role         api.Name          `json:"role"`
	Tier         api.Tier          `json:"tier"`
	Ceiling      api.Tier          `json:"ceiling"` // the lowest of those of grant, consent, session and target
	Target       api.Name          `json:"target"`
	Level        string            `json:"level"` // of isolation that must be active
	Capabilities []api.Name        `json:"capabilities,omitempty"`
	Envs         []api.Name        `json:"envs,omitempty"`
	Source       *api.PinnedSource `json:"source,omitempty"`
	Limits       api.Limits        `json:"limits"` // all positive
	// VerifyTime is how long its verify command may take; 0 without one, and in manifests
	// older than plan.Rules 5.
	VerifyTime api.Duration `json:"verifyTime,omitempty"`
	// Drain is how long outstanding answers of its model are read after its agent has
	// ended; 0 without a model, and in manifests older than plan.Rules 5.
	Drain    api.Duration    `json:"drain,omitempty"`
	Egress   []string        `json:"egress"`             // allowed hosts, HOST:PORT or *.HOST:PORT; empty: none beside the model
	Endpoint *api.ModelUse   `json:"endpoint,omitempty"` // the model that the agent may use; nil: none
	Secrets  []api.SecretRef `json:"secrets,omitempty"`
	Tools    []api.Name      `json:"tools,omitempty"` // servers with a tool for the role, sorted
	Taint    *api.Taint      `json:"taint,omitempty"` // that the attempt begins with; nil: none
	Input    api.Digest      `json:"input"`           // of the canonical input, a blob
	Pure     *Pure           `json:"pure,omitempty"`  // of a pure subagent: see ReuseKey
	Resume   *Resume         `json:"resume,omitempty"`
	// Run, Task, Fence and Needs are set in a task's dispatch: its run and task, the
	// fencing token of this attempt's lease, and its needs.
	Run   api.RunID  `json:"run,omitempty"`
	Task  api.TaskID `json:"task,omitempty"`
	Fence uint64     `json:"fence,omitempty"`
	Needs []Need     `json:"needs,omitempty"`
	// ItemFrom is the dispatch whose products are the list of a for_each, of a task for one
	// of its items: what it wrote is in the input.
	ItemFrom api.DispatchID `json:"itemFrom,omitempty"`
	// DecidedBy is the dispatch that Taint comes from where no need and no item has it: its
	// content decided that this task runs. See plan.Influences.
	DecidedBy api.DispatchID `json:"decidedBy,omitempty"`
	Trace     api.Trace      `json:"trace,omitempty"` // the span of this attempt, parent of the agent's

	NotBefore time.Time `json:"notBefore"`
	Expires   time.Time `json:"expires"` // a worker must start before
	Nonce     string    `json:"nonce"`   // 128 random bits, hexadecimal
}

// Resume is what an attempt resumes from: the end of the previous one.
type Resume struct {
	Attempt int        `json:"attempt"`         // the previous one
	Answer  api.Digest `json:"answer"`          // of the canonical ResumeInput, a blob
	Patch   api.Digest `json:"patch,omitempty"` // of the previous attempt's patch, a blob; absent without one
	// Session is of the state of the agent's own session, a blob; absent where the
	// previous attempt has none.
	Session api.Digest `json:"session,omitempty"`
}

// ResumeInput is inputs/resume.json of a resumed attempt.
type ResumeInput struct {
	Attempt  int             `json:"attempt"` // that needed input
	Question string          `json:"question"`
	Options  []string        `json:"options,omitempty"`
	Context  json.RawMessage `json:"context,omitempty"`
	State    json.RawMessage `json:"state,omitempty"`
	Answer   string          `json:"answer"`
	Option   int             `json:"option,omitempty"` // number of the chosen option, from 1
}

// Pin fixes an artifact by digest.
type Pin struct {
	Ref    api.Ref    `json:"ref"`
	Digest api.Digest `json:"digest"`
}

// Pinned returns the digest that m pins for ref.
func (m *Manifest) Pinned(ref api.Ref) (api.Digest, error) {
	for _, p := range m.Artifacts {
		if p.Ref == ref {
			return p.Digest, nil
		}
	}
	return "", fmt.Errorf("manifest of dispatch %s: %s is not pinned", m.ID, ref)
}

// Refs returns the artifacts that m names, in the order in which Artifacts pins
// them.
func (m *Manifest) Refs() []api.Ref {
	refs := []api.Ref{api.RefTo(api.KindSubagent, m.Subagent), api.RefTo(api.KindRole, m.Role), api.RefTo(api.KindTarget, m.Target)}
	for _, n := range m.Capabilities {
		refs = append(refs, api.RefTo(api.KindCapability, n))
	}
	for _, n := range m.Envs {
		refs = append(refs, api.RefTo(api.KindEnv, n))
	}
	if m.Source != nil {
		refs = append(refs, api.RefTo(api.KindSource, m.Source.Name))
	}
	if m.Endpoint != nil {
		refs = append(refs, api.RefTo(api.KindModel, m.Endpoint.Name))
	}
	for _, s := range m.Secrets {
		if ref := api.RefTo(api.KindSecret, s.Name); !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	for _, n := range m.Tools {
		refs = append(refs, api.RefTo(api.KindTool, n))
	}
	return refs
}

// Request returns the part of the request behind m that policy decides on. Its
// capabilities are those beyond the subagent's own.
func (m *Manifest) Request(own []api.Name) api.DispatchRequest {
	has := make(map[api.Name]bool, len(own))
	for _, n := range own {
		has[n] = true
	}
	r := api.DispatchRequest{
		DispatchID: m.ID, Subagent: m.Subagent, Target: m.Target, Envs: m.Envs,
		Capabilities: slices.DeleteFunc(slices.Clone(m.Capabilities), func(n api.Name) bool { return has[n] }),
	}
	if m.Source != nil {
		r.Source = &api.SourceRequest{Name: m.Source.Name}
	}
	return r
}

// StopSubject returns what emergency stops are matched against.
func (m *Manifest) StopSubject() api.StopSubject {
	return api.StopSubject{Principal: m.Principal, Target: m.Target, Run: m.Run, Dispatch: m.ID}
}

// Check refuses a manifest that is incomplete, inconsistent or not valid at now. One that has
// expired is of CodeConflict: that is no sign that anybody changed it.
func (m *Manifest) Check(now time.Time) error {
	l := m.Limits
	switch {
	case m.V != 1:
		return fmt.Errorf("unknown manifest format %d", m.V)
	case m.Attempt < 1, m.Principal == "", m.Subagent == "", m.Target == "", m.Input == "", m.RevisionDigest == "", len(m.Nonce) != 32:
		return fmt.Errorf("manifest of dispatch %q is incomplete", m.ID)
	case (m.Attempt == 1) != (m.Resume == nil) || m.Resume != nil && (m.Resume.Attempt != m.Attempt-1 || m.Resume.Answer == ""):
		return fmt.Errorf("manifest of dispatch %s attempt %d does not resume the previous attempt", m.ID, m.Attempt)
	case now.Before(m.NotBefore):
		return fmt.Errorf("manifest of dispatch %s is not valid before %s", m.ID, m.NotBefore.Format(time.RFC3339))
	case !now.Before(m.Expires):
		return api.Errorf(api.CodeConflict, "manifest of dispatch %s expired at %s", m.ID, m.Expires.Format(time.RFC3339)).WithHint("submit the work again")
	case l.Timeout <= 0 || l.Memory <= 0 || l.Processes <= 0 || l.Disk <= 0 || l.FileSize <= 0 || l.Files <= 0 || l.CPU <= 0 || l.Log <= 0 || l.Answer <= 0 || l.Tokens < 0 || l.Cost < 0 || l.Turns < 0:
		return fmt.Errorf("manifest of dispatch %s: limits must be positive", m.ID)
	case m.Trace.Check() != nil:
		return fmt.Errorf("manifest of dispatch %s: %w", m.ID, m.Trace.Check())
	case m.Tier > m.Ceiling:
		return fmt.Errorf("manifest of dispatch %s: tier %s is above its ceiling %s", m.ID, m.Tier, m.Ceiling)
	}
	if err := errors.Join(m.checkTaint(), m.checkPure()); err != nil {
		return fmt.Errorf("manifest of dispatch %s attempt %d: %w", m.ID, m.Attempt, err)
	}
	return m.checkTask()
}

// Uses are the dispatches whose products the attempt uses, with their taint: those of its
// needs, then the one that its item is from, and then the tainted one that decided that it
// runs.
func (m *Manifest) Uses() (ids []api.DispatchID) {
	for i := range m.Needs {
		ids = append(ids, m.Needs[i].Dispatch)
	}
	if m.ItemFrom != "" {
		ids = append(ids, m.ItemFrom)
	}
	if m.DecidedBy != "" {
		ids = append(ids, m.DecidedBy)
	}
	return ids
}

// checkTaint refuses a taint that the attempt cannot begin with: it comes with what it
// uses, from what decided that it runs, or from an earlier attempt.
func (m *Manifest) checkTaint() error {
	t := m.Taint
	switch {
	case t == nil && m.DecidedBy != "":
		return fmt.Errorf("dispatch %s decided that it runs, without a taint", m.DecidedBy)
	case t == nil:
		return nil
	case t.Dispatch == "" || t.Attempt < 1 || t.Call < 1 || t.Tool == "":
		return errors.New("its taint is incomplete")
	case t.Dispatch == m.ID && t.Attempt >= m.Attempt, t.Dispatch != m.ID && len(m.Needs) == 0 && m.ItemFrom == "" && m.DecidedBy == "":
		return fmt.Errorf("it cannot have its taint from dispatch %s attempt %d", t.Dispatch, t.Attempt)
	}
	return nil
}

// Result is a worker's report about its attempt, signed with the key that the
// worker made at its start.
type Result struct {
	V         int               `json:"v"` // 1
	ID        api.DispatchID    `json:"dispatchId"`
	Attempt   int               `json:"attempt"`
	Fence     uint64            `json:"fence,omitempty"` // the manifest's
	Manifest  api.Digest        `json:"manifest"`        // of the signed manifest's stored bytes
	Outcome   api.Event         `json:"outcome"`         // finished, needs_input, failed or cancelled
	Reason    api.Reason        `json:"reason,omitempty"`
	Message   string            `json:"message,omitempty"`
	StartedAt time.Time         `json:"startedAt"`
	EndedAt   time.Time         `json:"endedAt"`
	Summary   api.ResultSummary `json:"summary"`
}

// Check refuses a result that is inconsistent, of another attempt, or made under
// another lease than the manifest's fencing token.
func (r *Result) Check(id api.DispatchID, attempt int, manifest api.Digest, fence uint64) error {
	switch {
	case r.V != 1:
		return fmt.Errorf("unknown result format %d", r.V)
	case r.ID != id || r.Attempt != attempt || r.Manifest != manifest:
		return fmt.Errorf("result is of dispatch %s attempt %d, want dispatch %s attempt %d", r.ID, r.Attempt, id, attempt)
	case r.Fence != fence:
		return fmt.Errorf("result of dispatch %s attempt %d has fencing token %d, its lease has %d", id, attempt, r.Fence, fence)
	case !r.Outcome.Ended():
		return fmt.Errorf("result of dispatch %s has invalid outcome %q", id, r.Outcome)
	case r.Outcome == api.EventNeedsInput && r.Summary.Question == nil:
		return fmt.Errorf("result of dispatch %s is %s without a question", id, r.Outcome)
	case (r.Outcome == api.EventFailed) != (r.Reason != ""):
		return fmt.Errorf("result of dispatch %s is %s with reason %q", id, r.Outcome, r.Reason)
	}
	return nil
}
