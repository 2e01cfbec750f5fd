package dispatch

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
)

// maxCommits bounds how many commits one Validate resolves: each takes a process
// or two.
const maxCommits = 100

// Validation is what Submit would decide about several requests.
type Validation struct {
	Revision api.Digest // of the catalog that they were validated against
	Number   uint64     // of Revision

	// Of each request that is allowed, in order:
	Commits   []string // what its source refers to now; "" without a source
	HasResult []bool   // its subagent has an output schema
	HasPatch  []bool   // its subagent is of a tier that returns a patch
	HasVerify []bool   // its subagent has a verify command
	Allowed   []bool   // by policy; of the others the rest is unknown

	Problems []RequestProblem // every problem, denials included, in the order of the requests
	Denied   policy.Decision  // the first denial; the zero value: none
}

// RequestProblem is one problem of a request.
type RequestProblem struct {
	Index   int    // of the request
	Member  string // of the request: "input", "source", "env[1]"; "": all of it
	Message string
}

// Validate returns what Submit would decide about several requests, and does
// nothing: it logs, stores and starts nothing, but fetches sources by URL. Requests that are equal to policy
// are decided once. Its error is one that is not about a request, such as a
// refused catalog; what is wrong with the requests is in Problems.
func (s *Service) Validate(ctx context.Context, caller Caller, reqs []api.DispatchRequest) (Validation, error) {
	p, err := s.snapshotAt(ctx, caller.Pinned)
	if err != nil {
		return Validation{}, err
	}
	v := validator{
		s: s, caller: caller, snapshot: p, decided: map[string]judged{},
		schemas: map[api.Name]schema{}, commits: map[api.SourceRequest]pin{},
		Validation: Validation{Revision: p.Revision.Digest(), Number: p.Revision.Number(), Commits: make([]string, len(reqs)), HasResult: make([]bool, len(reqs)), HasPatch: make([]bool, len(reqs)), HasVerify: make([]bool, len(reqs)), Allowed: make([]bool, len(reqs))},
	}
	for i := range reqs {
		if err := ctx.Err(); err != nil {
			return Validation{}, err
		}
		if err := v.validate(ctx, i, reqs[i]); err != nil {
			return Validation{}, err
		}
	}
	return v.Validation, ctx.Err()
}

// validator validates requests one by one and reuses what they share.
type validator struct {
	Validation
	s        *Service
	caller   Caller
	snapshot inforce.Snapshot
	decided  map[string]judged
	schemas  map[api.Name]schema
	commits  map[api.SourceRequest]pin
}

// judged is a decision about a request, and of a denied one what the caller probably
// meant.
type judged struct {
	policy.Decision
	near string
}

type schema struct {
	resolved *jsonschema.Resolved
	err      error
}

type pin struct {
	commit string
	err    error
}

func (v *validator) validate(ctx context.Context, i int, req api.DispatchRequest) error {
	req.DispatchID = ""
	if err := checkInputSize(req.Input); err != nil {
		return v.addProblem(i, "input", err)
	}
	sub, err := newSubmission(v.caller, req, nil)
	if err != nil {
		return v.addProblem(i, "", err)
	}
	x := newSubject(v.snapshot, v.caller.Principal, v.caller.Ceiling, sub.request)
	x.run = v.caller.Retries
	d, err := v.decide(x)
	if err != nil {
		return err
	}
	if !d.Allowed() {
		if !v.Denied.Valid() {
			v.Denied = d.Decision
		}
		message := denialMessage(d.Decision)
		if d.near != "" {
			message += "; " + d.near
		}
		return v.addProblem(i, "", api.Errorf(api.CodeDenied, "%s", message))
	}
	v.Allowed[i], v.HasResult[i], v.HasPatch[i], v.HasVerify[i] = true, len(x.subagent.Output) > 0, x.subagent.Tier > api.Observe, x.subagent.Verify != nil
	if err := v.addProblem(i, "timeout", x.checkTimeout()); err != nil {
		return err
	}
	in, ok := v.schemas[x.subagent.Name]
	if !ok {
		in.resolved, in.err = inputSchema(&x.subagent)
		v.schemas[x.subagent.Name] = in
	}
	if in.err == nil {
		in.err = checkInput(in.resolved, &x.subagent, x.request.Input)
	}
	if err := v.addProblem(i, "input", in.err); err != nil {
		return err
	}
	n, err := x.checkEnvs()
	if err := v.addProblem(i, fmt.Sprintf("env[%d]", n), err); err != nil {
		return err
	}
	if req.Source == nil {
		return nil
	}
	at := v.pin(ctx, *req.Source)
	v.Commits[i] = at.commit
	return v.addProblem(i, "source", at.err)
}

// pin pins a source, each once.
func (v *validator) pin(ctx context.Context, from api.SourceRequest) pin {
	at, ok := v.commits[from]
	switch {
	case ok:
	case len(v.commits) == maxCommits:
		at.err = api.Errorf(api.CodeTooLarge, "source %q: the plan names more than %d different commits", from.Name, maxCommits)
	default:
		at.commit, at.err = v.s.preparer.sources.pin(ctx, v.snapshot, from)
		v.commits[from] = at
	}
	return at
}

// decide decides about x, once for all requests that are equal to policy.
func (v *validator) decide(x subject) (judged, error) {
	r := x.request
	r.Input, r.TimeoutSeconds = nil, 0
	if r.Source != nil {
		r.Source = &api.SourceRequest{Name: r.Source.Name}
	}
	doc, err := canon.Marshal(r)
	if err != nil {
		return judged{}, err
	}
	key := string(doc)
	if d, ok := v.decided[key]; ok {
		return d, nil
	}
	x = v.s.bounded(x)
	d := judged{Decision: x.decide()}
	if !d.Allowed() {
		d.near = x.near()
	}
	v.decided[key] = d
	return d, nil
}

// addProblem adds an error about a request. Any other error is returned.
func (v *validator) addProblem(i int, member string, err error) error {
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

// denialMessage words a denial as the log does.
func denialMessage(d policy.Decision) string {
	if reasons := d.Reasons(); len(reasons) > 0 {
		return strings.Join(reasons, "; ")
	}
	return fmt.Sprintf("%s may not %s %s", d.Principal(), d.Action(), d.Resource())
}

// messageOf returns the message of an error without its hint.
func messageOf(err error) string {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.Message
	}
	return err.Error()
}
