// Package statement says what was made of a dispatch in the words that others
// read: an in-toto Statement v1 with SLSA provenance v1 as its predicate.
//
// A statement is derived from the signed manifest, the signed result and the
// record, and says nothing that those do not say; texts that an agent wrote,
// and the input itself, are not in it, only their digests. The package signs
// nothing and reads nothing but what it is given. The bytes that were signed
// are what counts: they are kept, never made again.
//
// Formats: https://github.com/in-toto/attestation/tree/main/spec/v1 and
// https://slsa.dev/spec/v1.0/provenance. Carries R-A8.
package statement

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
)

// What a statement is, in the formats' own words.
const (
	Type          = "https://in-toto.io/Statement/v1"
	PredicateType = "https://slsa.dev/provenance/v1"
	BuildType     = "https://bailiwick.dev/dispatch/v1"
)

// MaxStatement is the largest encoded statement in bytes.
const MaxStatement = 20 << 20 // more than a result can be about

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
	Dispatch        Outcome         `json:"bailiwick_dispatch"`
}

// BuildDefinition is what was to be done, as the manifest of the last attempt
// says it.
type BuildDefinition struct {
	BuildType            string     `json:"buildType"`
	ExternalParameters   External   `json:"externalParameters"`
	InternalParameters   Internal   `json:"internalParameters"`
	ResolvedDependencies []Resource `json:"resolvedDependencies"`
}

// External is what the caller chose.
type External struct {
	Principal    api.Principal     `json:"principal"`
	Subagent     api.Name          `json:"subagent"`
	Target       api.Name          `json:"target"`
	Envs         []api.Name        `json:"env,omitempty"`
	Capabilities []api.Name        `json:"capabilities,omitempty"`
	Source       *api.PinnedSource `json:"source,omitempty"`
	Run          api.RunID         `json:"run,omitempty"`
	Task         api.TaskID        `json:"task,omitempty"`
}

// Internal is what the catalog and the policy made of it.
type Internal struct {
	Revision uint64     `json:"revision"`
	Policies []string   `json:"policies"`
	Agent    string     `json:"agent"`
	Model    string     `json:"model,omitempty"`
	Role     api.Name   `json:"role"`
	Tier     api.Tier   `json:"tier"`
	Ceiling  api.Tier   `json:"ceiling"`
	Level    string     `json:"level"`
	Limits   api.Limits `json:"limits"`
	Egress   []string   `json:"egress"`
	Fence    uint64     `json:"fence,omitempty"`
}

// RunDetails is who did it, and when.
type RunDetails struct {
	Builder    Builder    `json:"builder"`
	Metadata   Metadata   `json:"metadata"`
	Byproducts []Resource `json:"byproducts,omitempty"`
}

// Builder is the service.
type Builder struct {
	ID      string            `json:"id"`
	Version map[string]string `json:"version"`
}

// Metadata is about the last attempt.
type Metadata struct {
	InvocationID string     `json:"invocationId"`
	StartedOn    *time.Time `json:"startedOn,omitempty"` // nil: it never started
	FinishedOn   time.Time  `json:"finishedOn"`
}

// Outcome is how the dispatch ended. A statement is made of every end, so a
// reader who wants work that was done wants Outcome finished.
type Outcome struct {
	ID          api.DispatchID `json:"dispatchId"`
	Attempt     int            `json:"attempt"`
	Outcome     api.Event      `json:"outcome"` // finished, failed or cancelled
	Reason      api.Reason     `json:"reason,omitempty"`
	CancelledBy api.Principal  `json:"cancelledBy,omitempty"`
	Partial     bool           `json:"partial"`          // the work was captured before it was complete
	Verify      string         `json:"verify,omitempty"` // passed or failed; empty: nothing verified it
	Mode        string         `json:"mode"`             // who is protected against whom
	Isolation   string         `json:"isolation,omitempty"`
	Layers      []string       `json:"layers,omitempty"` // of isolation that were active
	Earlier     []Earlier      `json:"earlier,omitempty"`
}

// Earlier is an attempt that ended with a question.
type Earlier struct {
	Attempt  int        `json:"attempt"`
	Manifest api.Digest `json:"manifest"`
	Result   api.Digest `json:"result,omitempty"`
}

// Encode returns the bytes that are to be signed.
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

// Parse reads what Encode returned, and nothing else.
func Parse(b []byte) (Statement, error) {
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
	case s.Type != Type || s.PredicateType != PredicateType || s.Predicate.BuildDefinition.BuildType != BuildType:
		return errors.New("statement: not of a dispatch")
	case len(s.Subject) == 0:
		return errors.New("statement: about nothing")
	case o.ID == "" || o.Attempt < 1:
		return errors.New("statement: names no dispatch")
	case o.Outcome != api.EventFinished && o.Outcome != api.EventFailed && o.Outcome != api.EventCancelled:
		return fmt.Errorf("statement: dispatch %s has not ended: %q", o.ID, o.Outcome)
	case (o.Outcome == api.EventFailed) != (o.Reason != ""), o.CancelledBy != "" && o.Outcome != api.EventCancelled:
		return fmt.Errorf("statement: dispatch %s contradicts itself: outcome %s, reason %q, cancelled by %q", o.ID, o.Outcome, o.Reason, o.CancelledBy)
	}
	seen := map[string]bool{}
	for i := range s.Subject {
		r := &s.Subject[i]
		if r.Name == "" || seen[r.Name] {
			return fmt.Errorf("statement: subject %d: the name %.80q is empty or there twice", i+1, r.Name)
		}
		seen[r.Name] = true
		if _, err := r.SHA256(); err != nil {
			return fmt.Errorf("statement: subject %.80q: %w", r.Name, err)
		}
	}
	return nil
}

// SHA256 returns the digest of what r is, if it has that one and no other.
func (r *Resource) SHA256() (api.Digest, error) {
	hex, ok := r.Digest["sha256"]
	if !ok || len(r.Digest) != 1 {
		return "", errors.New("want one digest, sha256")
	}
	return api.ParseDigest("sha256:" + hex)
}

// same reports whether two parts of statements say the same: what is equal does,
// and what is encoded to equal bytes.
func same[T any](a, b T) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, errX := canon.Marshal(a)
	y, errY := canon.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
