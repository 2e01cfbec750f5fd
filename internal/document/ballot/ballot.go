// Package ballot follows the chain of an installation's operator decisions from
// operators.json on, and has the votes that it records. Whatever holds a credential or
// may start a program verifies with it, from the signed records alone, what people
// approved: it believes nothing that the service says about them.
//
// It has the rules of votes that internal/state/operator keeps too, and neither a database
// nor a private key. Whether a voter may vote, and how many votes a call needs, is for
// internal/rule/policy.
//
// Carries R-B9 and R-P1.
package ballot

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// MaxRecord bounds the payload of a record, in bytes: a few hundred, and a set of keys.
const MaxRecord = 8<<10 + api.MaxOperatorSet

// MaxEnvelope bounds the envelope of a record, in bytes.
const MaxEnvelope = 4*MaxRecord + seal.MaxSignatures*2048

// Record is a record whose signatures, form and service are verified.
type Record struct {
	api.OperatorRecord

	Digest api.Digest // of its payload
	Keys   []seal.KeyID
	Counts map[seal.KeyID]uint32 // of the passkeys among Keys
}

// Open verifies the envelope of a record for a service by the operator keys in force. It
// does not check that the record is the next one.
func Open(envelope []byte, operators *seal.Operators, service seal.KeyID) (Record, error) {
	var r Record
	if len(envelope) > MaxEnvelope {
		return r, errors.New("the envelope is too large for a record")
	}
	e, err := seal.Open(envelope, seal.Operator)
	if err != nil {
		return r, err
	}
	payload := e.Payload()
	if len(payload) > MaxRecord {
		return r, fmt.Errorf("%d bytes, more than %d", len(payload), MaxRecord)
	}
	if r.Keys, err = operators.Open(e, canon.DecodeExact, &r.OperatorRecord); err != nil {
		return r, err
	}
	if r.Service != string(service) {
		return r, fmt.Errorf("the record is for service %s, this is service %s", r.Service, service)
	}
	r.Digest, r.Counts = api.DigestOf(payload), e.SignCounts(r.Keys)
	return r, r.CheckSigners(r.Signers())
}

// Signers returns the ids of the keys that signed.
func (r *Record) Signers() []string {
	keys := make([]string, len(r.Keys))
	for i, k := range r.Keys {
		keys[i] = string(k)
	}
	return keys
}

// VoteOf returns the vote of a record that is one, signed with keys.
func VoteOf(r *api.OperatorRecord, keys []seal.KeyID) api.Vote {
	v := api.Vote{Principal: r.Principal, At: r.At, Approve: r.Verb == api.VerbApprove, Reason: r.Reason, Record: r.Number}
	for _, k := range keys {
		v.Keys = append(v.Keys, string(k))
	}
	return v
}

// Votes are votes in the order of the chain, by what they are about.
type Votes map[about][]api.Vote

// about is a request, and the digest of the action that a voter signed.
type about struct {
	approval api.ApprovalID
	action   api.Digest
}

// Clone returns a copy of v that Cast and Withdraw of v do not change.
func (v Votes) Clone() Votes { return maps.Clone(v) }

// Of returns the votes in force about the action with a digest.
func (v Votes) Of(id api.ApprovalID, action api.Digest) []api.Vote {
	return slices.Clone(v[about{id, action}])
}

// Cast adds the vote of a record. Each principal has one about a request.
func (v Votes) Cast(r *api.OperatorRecord, keys []seal.KeyID) error {
	what := about{r.Approval, r.Content}
	for _, o := range v[what] {
		if o.Principal == r.Principal {
			return api.Errorf(api.CodeConflict, "%s voted about approval %s at %s", r.Principal, r.Approval, o.At.Format(time.RFC3339)).WithHint("see: bailiwick approval show %s", r.Approval)
		}
	}
	v[what] = append(slices.Clip(v[what]), VoteOf(r, keys))
	return nil
}

// Withdraw removes the approving votes of some voters: they no longer let anything begin. A
// denial stays.
func (v Votes) Withdraw(of func(voter api.Principal) bool) {
	for what, votes := range v {
		left := slices.DeleteFunc(slices.Clone(votes), func(o api.Vote) bool { return o.Approve && of(o.Principal) })
		if len(left) != len(votes) {
			v[what] = left
		}
	}
}

// Chain is the decisions of a service's operators that it was given, in their order. It is
// not safe for concurrent use.
type Chain struct {
	service   seal.KeyID
	operators *seal.Operators
	number    uint64
	digest    api.Digest // of the newest record's payload
	counter   seal.SignCounter
	known     map[api.Principal]bool // added and not removed
	votes     Votes
}

// New returns the chain without records, whose first set of keys is operators.json.
func New(service seal.KeyID, first seal.TrustRoot) (*Chain, error) {
	operators, err := seal.NewOperators(first)
	if err != nil {
		return nil, err
	}
	return &Chain{service: service, operators: operators, counter: seal.SignCounter{}, known: map[api.Principal]bool{}, votes: Votes{}}, nil
}

// Number returns the number of the newest record; 0 without one.
func (c *Chain) Number() uint64 { return c.number }

// Digest returns the digest of the newest record.
func (c *Chain) Digest() api.Digest { return c.digest }

// Mark returns number and digest of the newest record; nothing of a nil chain.
func (c *Chain) Mark() (m record.ToolMark) {
	if c != nil {
		m = record.ToolMark{Number: c.number, Digest: c.digest}
	}
	return m
}

// Operators returns the set of keys in force, which the caller does not change.
func (c *Chain) Operators() *seal.Operators { return c.operators }

// Votes returns the votes in force about the action with a digest.
func (c *Chain) Votes(id api.ApprovalID, action api.Digest) []api.Vote { return c.votes.Of(id, action) }

// Add verifies the next record and puts it in force. After an error the chain is as it
// was.
func (c *Chain) Add(envelope []byte) (Record, error) {
	r, err := Open(envelope, c.operators, c.service)
	if err == nil && (r.Number != c.number+1 || r.Previous != c.digest) {
		err = fmt.Errorf("record %d does not follow record %d", r.Number, c.number)
	}
	if err == nil {
		err = c.counter.Check(r.Counts)
	}
	if err == nil {
		err = c.apply(&r)
	}
	if err != nil {
		return Record{}, fmt.Errorf("operator record %d: %w", c.number+1, err)
	}
	c.counter.Add(r.Counts)
	c.number, c.digest = r.Number, r.Digest
	return r, nil
}

// apply applies what a record says about keys, people and votes. Other decisions are the
// caller's.
func (c *Chain) apply(r *Record) error {
	switch r.Verb { //nolint:exhaustive // the others are about something else
	case api.VerbOperatorSet:
		next := c.operators.Clone()
		if err := next.Follow(r.Set); err != nil {
			return err
		}
		if !c.operators.Assigned() && next.Assigned() {
			c.votes.Withdraw(func(api.Principal) bool { return true }) // nobody knows whose keys they are signed with
		}
		c.operators = next
	case api.VerbPrincipalAdd:
		c.known[r.Principal] = true
	case api.VerbPrincipalRemove:
		delete(c.known, r.Principal)
		c.votes.Withdraw(func(voter api.Principal) bool { return c.operators.Withdraws(r.Principal, voter) })
	case api.VerbApprove, api.VerbDeny:
		if !c.known[r.Principal] && !strings.HasPrefix(string(r.Principal), "local:") {
			return fmt.Errorf("%s votes, but no operator added this principal", r.Principal)
		}
		if !c.operators.Assigned() && r.Verb == api.VerbApprove {
			return nil // nobody knows whose keys they are signed with: it counts for nothing
		}
		return c.votes.Cast(&r.OperatorRecord, r.Keys)
	}
	return nil
}

// MayVote reports whether a vote of p about what a task writes, or about a task that people
// approve, counts: of a person whom the action lists, and who did not submit the work.
func MayVote(a *api.TaskAction, p api.Principal) bool {
	return p.Person() && !p.SamePerson(a.Principal) && slices.Contains(a.By, p)
}

// Approvers counts the people who approve in votes, in their order: of several votes of
// one person, or with a key that a counted vote has, the first counts. 0 once anybody
// denies.
func Approvers(votes []api.Vote) int {
	var who []api.Principal
	var keys []string
	for _, v := range votes {
		switch {
		case !v.Approve:
			return 0
		case len(v.Keys) == 0 || slices.ContainsFunc(who, v.Principal.SamePerson):
		case slices.ContainsFunc(v.Keys, func(k string) bool { return slices.Contains(keys, k) }):
		default:
			who, keys = append(who, v.Principal), append(keys, v.Keys...)
		}
	}
	return len(who)
}
