package dispatch

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
	"github.com/bailiwick-dev/bailiwick/internal/snapshot"
)

// maxCommits bounds how many commits are looked for at once: each is a process
// or two.
const maxCommits = 100

// Validation is what would become of requests.
type Validation struct {
	Revision api.Digest // of the catalog that they were held against
	Number   uint64     // of Revision

	// Of each request that is allowed, in order:
	Commits   []string // what its source means now; "" where it has none
	HasResult []bool   // its subagent has an output schema

	Problems []RequestProblem // all that is wrong, denials included, in the order of the requests
	Denied   policy.Decision  // the first denial; the zero value: none
}

// RequestProblem is one thing that is wrong with a request.
type RequestProblem struct {
	Index   int    // of the request
	Member  string // of it: "input", "source", "env[1]"; "": all of it
	Message string
}

// Vet says what Submit would say to each of several requests, and does nothing:
// nothing is logged, stored or started. Requests that are equal as far as
// policy goes are decided once. Its error is of what is nobody's fault, such
// as a catalog that is refused; of requests that are wrong it speaks in
// Problems.
func (s *Service) Validate(ctx context.Context, caller Caller, reqs []api.DispatchRequest) (Validation, error) {
	p, err := s.snapshotFor(ctx, &ask{})
	if err != nil {
		return Validation{}, err
	}
	v := vetting{
		s: s, caller: caller, snapshot: p, decided: map[string]policy.Decision{},
		schemas: map[api.Name]schema{}, commits: map[api.SourceRequest]pin{},
		Validation: Validation{Revision: p.Revision.Digest(), Number: p.Revision.Number(), Commits: make([]string, len(reqs)), HasResult: make([]bool, len(reqs))},
	}
	for i := range reqs {
		if err := ctx.Err(); err != nil {
			return Validation{}, err
		}
		if err := v.one(ctx, i, reqs[i]); err != nil {
			return Validation{}, err
		}
	}
	return v.Validation, ctx.Err()
}

// vetting is what a Vet remembers from one request to the next.
type vetting struct {
	Validation
	s        *Service
	caller   Caller
	snapshot snapshot.Snapshot
	decided  map[string]policy.Decision
	schemas  map[api.Name]schema
	commits  map[api.SourceRequest]pin
}

type schema struct {
	resolved *jsonschema.Resolved
	err      error
}

type pin struct {
	commit string
	err    error
}

func (v *vetting) one(ctx context.Context, i int, req api.DispatchRequest) error {
	req.DispatchID = ""
	a := &ask{principal: v.caller.Principal, by: v.caller, ceiling: v.caller.Ceiling, request: req, snapshot: v.snapshot}
	if err := a.normalise(); err != nil {
		return v.problem(i, "", err)
	}
	d, err := v.decide(a)
	if err != nil {
		return err
	}
	if !d.Allowed() {
		if !v.Denied.Valid() {
			v.Denied = d
		}
		return v.problem(i, "", api.Errorf(api.CodeDenied, "%s", deniedWords(d)))
	}
	v.HasResult[i] = len(a.subagent.Output) > 0
	in, ok := v.schemas[a.subagent.Name]
	if !ok {
		in.resolved, in.err = inputSchema(&a.subagent)
		v.schemas[a.subagent.Name] = in
	}
	if in.err == nil {
		in.err = checkInput(in.resolved, &a.subagent, a.request.Input)
	}
	if err := v.problem(i, "input", in.err); err != nil {
		return err
	}
	n, err := a.checkEnvs()
	if err := v.problem(i, fmt.Sprintf("env[%d]", n), err); err != nil {
		return err
	}
	if req.Source == nil {
		return nil
	}
	at := v.pin(ctx, *req.Source)
	v.Commits[i] = at.commit
	return v.problem(i, "source", at.err)
}

// pin pins a source, each once.
func (v *vetting) pin(ctx context.Context, from api.SourceRequest) pin {
	at, ok := v.commits[from]
	switch {
	case ok:
	case len(v.commits) == maxCommits:
		at.err = api.Errorf(api.CodeTooLarge, "source %q: more than %d different commits are named, and each has to be looked for", from.Name, maxCommits)
	default:
		at.commit, at.err = v.s.pinSource(ctx, v.snapshot, from)
		v.commits[from] = at
	}
	return at
}

// decide decides a, or says again what was said to one that policy cannot tell
// from it.
func (v *vetting) decide(a *ask) (policy.Decision, error) {
	r := a.request
	r.Input, r.TimeoutSeconds = nil, 0
	if r.Source != nil {
		r.Source = &api.SourceRequest{Name: r.Source.Name}
	}
	doc, err := canon.Marshal(r)
	if err != nil {
		return policy.Decision{}, err
	}
	key := string(doc)
	if d, ok := v.decided[key]; ok {
		a.resolve()
		return d, nil
	}
	d := v.s.decide(a)
	v.decided[key] = d
	return d, nil
}

// problem notes what is wrong with a request. An error that is not about the
// request is returned.
func (v *vetting) problem(i int, member string, err error) error {
	if err == nil {
		return nil
	}
	switch api.CodeOf(err) { //nolint:exhaustive // the others are not about the request
	case api.CodeInvalid, api.CodeNotFound, api.CodeDenied, api.CodeConflict, api.CodeTooLarge:
		v.Problems = append(v.Problems, RequestProblem{i, member, messageOf(err)})
		return nil
	}
	return err
}

// deniedWords says a denial as the log does.
func deniedWords(d policy.Decision) string {
	if reasons := d.Reasons(); len(reasons) > 0 {
		return strings.Join(reasons, "; ")
	}
	return fmt.Sprintf("%s may not %s %s", d.Principal(), d.Action(), d.Resource())
}

// messageOf is an error without its hint.
func messageOf(err error) string {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.Message
	}
	return err.Error()
}
