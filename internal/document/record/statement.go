package record

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// The types of a statement, as the formats name them.
const (
	StatementType = "https://in-toto.io/Statement/v1"
	PredicateType = "https://slsa.dev/provenance/v1"
	BuildType     = "https://bailiwick.dev/dispatch/v1"
)

// MaxStatement is the largest encoded statement in bytes.
const MaxStatement = 20 << 20 // more than a result can name

// Statement is the in-toto Statement.
type Statement struct {
	Type          string     `json:"_type"`
	Subject       []Resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     Provenance `json:"predicate"`
}

// Resource is an in-toto ResourceDescriptor.
type Resource struct {
	Name        string            `json:"name,omitempty"`
	URI         string            `json:"uri,omitempty"`
	Digest      map[string]string `json:"digest"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Provenance is the SLSA predicate, with one member of our own, named as the
// format wants it.
type Provenance struct {
	BuildDefinition BuildDefinition `json:"buildDefinition"`
	RunDetails      RunDetails      `json:"runDetails"`
	Dispatch        DispatchOutcome `json:"bailiwick_dispatch"`
}

// BuildDefinition is what was requested, from the manifest of the last attempt.
type BuildDefinition struct {
	BuildType            string             `json:"buildType"`
	ExternalParameters   ExternalParameters `json:"externalParameters"`
	InternalParameters   InternalParameters `json:"internalParameters"`
	ResolvedDependencies []Resource         `json:"resolvedDependencies"`
}

// ExternalParameters are what the caller chose.
type ExternalParameters struct {
	Principal    api.Principal     `json:"principal"`
	Subagent     api.Name          `json:"subagent"`
	Target       api.Name          `json:"target"`
	Envs         []api.Name        `json:"env,omitempty"`
	Capabilities []api.Name        `json:"capabilities,omitempty"`
	Source       *api.PinnedSource `json:"source,omitempty"`
	Run          api.RunID         `json:"run,omitempty"`
	Task         api.TaskID        `json:"task,omitempty"`
}

// InternalParameters are what catalog and policy added.
type InternalParameters struct {
	Revision uint64        `json:"revision"`
	Policies []string      `json:"policies"`
	Agent    string        `json:"agent"`
	Model    string        `json:"model,omitempty"`
	Endpoint *api.ModelUse `json:"endpoint,omitempty"`
	Role     api.Name      `json:"role"`
	Tier     api.Tier      `json:"tier"`
	Ceiling  api.Tier      `json:"ceiling"`
	Level    string        `json:"level"`
	Limits   api.Limits    `json:"limits"`
	Egress   []string      `json:"egress"`
	Fence    uint64        `json:"fence,omitempty"`
}

// RunDetails is which service ran it, and when.
type RunDetails struct {
	Builder    Builder     `json:"builder"`
	Metadata   RunMetadata `json:"metadata"`
	Byproducts []Resource  `json:"byproducts,omitempty"`
}

// Builder is the service.
type Builder struct {
	ID      string            `json:"id"`
	Version map[string]string `json:"version"`
}

// RunMetadata is about the last attempt.
type RunMetadata struct {
	InvocationID string     `json:"invocationId"`
	StartedOn    *time.Time `json:"startedOn,omitempty"` // nil: it never started
	FinishedOn   time.Time  `json:"finishedOn"`
}

// DispatchOutcome is how the dispatch ended. Failed and cancelled dispatches have
// statements, too: a reader who wants completed work checks Outcome.
type DispatchOutcome struct {
	ID          api.DispatchID   `json:"dispatchId"`
	Attempt     int              `json:"attempt"`
	Outcome     api.Event        `json:"outcome"` // finished, failed or cancelled
	Reason      api.Reason       `json:"reason,omitempty"`
	CancelledBy api.Actor        `json:"cancelledBy,omitempty"`
	Partial     bool             `json:"partial"` // the work was captured before it was complete
	Mode        string           `json:"mode"`    // same-user or system
	Earlier     []EarlierAttempt `json:"earlier,omitempty"`

	Reported
}

// Reported is what the worker signed in its result; zero without one.
type Reported struct {
	Verify    string           `json:"verify,omitempty"`  // passed or failed; empty: no verify command ran
	Changed   []string         `json:"changed,omitempty"` // files of the patch that the verify command is known to run
	Isolation string           `json:"isolation,omitempty"`
	Layers    []string         `json:"layers,omitempty"`  // of isolation that were active
	Program   *api.AgentReport `json:"program,omitempty"` // the agent program
	Usage     *api.ModelUsage  `json:"usage,omitempty"`   // of its model, as the broker counted it
	Refused   *api.Refusals    `json:"refused,omitempty"` // requests, as in the log
}

// EarlierAttempt is one attempt that ended with a question.
type EarlierAttempt struct {
	Attempt  int        `json:"attempt"`
	Manifest api.Digest `json:"manifest"`
	Result   api.Digest `json:"result,omitempty"`
}

// Encode returns the bytes to sign.
func (s *Statement) Encode() ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	b, err := canon.Marshal(s)
	if err == nil && len(b) > MaxStatement {
		err = fmt.Errorf("statement: %d bytes, more than %d", len(b), MaxStatement)
	}
	return b, err
}

// ParseStatement reads exactly what Encode returns.
func ParseStatement(b []byte) (Statement, error) {
	var s Statement
	if len(b) > MaxStatement {
		return s, fmt.Errorf("statement: larger than %d bytes", MaxStatement)
	}
	if err := canon.DecodeExact(b, &s); err != nil {
		return Statement{}, fmt.Errorf("statement: %w", err)
	}
	if err := s.check(); err != nil {
		return Statement{}, err
	}
	return s, nil
}

func (s *Statement) check() error {
	o := s.Predicate.Dispatch
	switch {
	case s.Type != StatementType || s.PredicateType != PredicateType || s.Predicate.BuildDefinition.BuildType != BuildType:
		return errors.New("statement: not one about a dispatch")
	case len(s.Subject) == 0:
		return errors.New("statement: no subject")
	case o.ID == "" || o.Attempt < 1:
		return errors.New("statement: no dispatch id")
	case o.Outcome != api.EventFinished && o.Outcome != api.EventFailed && o.Outcome != api.EventCancelled:
		return fmt.Errorf("statement: dispatch %s has not ended: %q", o.ID, o.Outcome)
	case (o.Outcome == api.EventFailed) != (o.Reason != ""), o.CancelledBy != "" && o.Outcome != api.EventCancelled:
		return fmt.Errorf("statement: dispatch %s contradicts itself: outcome %s, reason %q, cancelled by %q", o.ID, o.Outcome, o.Reason, o.CancelledBy)
	}
	seen := map[string]bool{}
	for i := range s.Subject {
		r := &s.Subject[i]
		if r.Name == "" || seen[r.Name] {
			return fmt.Errorf("statement: subject %d: the name %.80q is empty or a duplicate", i+1, r.Name)
		}
		seen[r.Name] = true
		if _, err := r.SHA256(); err != nil {
			return fmt.Errorf("statement: subject %.80q: %w", r.Name, err)
		}
	}
	return nil
}

// SHA256 returns the digest of r, which must be its only one.
func (r *Resource) SHA256() (api.Digest, error) {
	hex, ok := r.Digest["sha256"]
	if !ok || len(r.Digest) != 1 {
		return "", errors.New("want one digest, sha256")
	}
	return api.ParseDigest("sha256:" + hex)
}

// sameEncoding reports whether a and b are equal or have equal encodings.
func sameEncoding[T any](a, b T) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, errX := canon.Marshal(a)
	y, errY := canon.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
