package dispatch

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
)

// subject is what policy decides about: a submission or the next attempt of a dispatch, by
// the names of one snapshot.
type subject struct {
	principal api.Principal
	ceiling   api.Tier // declared by the session
	run       api.RunID
	task      api.TaskID
	attempt   int    // that an answer would start; 0 for a new dispatch
	commit    string // pinned, when there is a source
	request   api.DispatchRequest
	snapshot  inforce.Snapshot
	subagent  api.Subagent // zero when the name does not exist
	target    api.Name

	// What bounds it now; see records.bounded.
	consent api.Tier // of the principal
	stops   []string // emergency stops that cover it
	spent   []string // why budgets have no room for it
}

// newSubject looks up the subagent and the target. A name that does not exist is
// left as it is: no grant lists it, so policy answers as for a name that is not
// granted.
func newSubject(p inforce.Snapshot, principal api.Principal, ceiling api.Tier, req api.DispatchRequest) subject {
	x := subject{principal: principal, ceiling: ceiling, request: req, snapshot: p, target: req.Target}
	x.subagent, _, _ = p.Revision.Subagent(req.Subagent)
	if x.target == "" {
		x.target = x.subagent.Target
	}
	return x
}

// bounded returns x with what operators decided about it by now.
func (s *records) bounded(x subject) subject {
	x.consent = s.cfg.Registry.Consent(x.principal)
	x.stops = s.cfg.Registry.StopsFor(api.StopSubject{Principal: x.principal, Target: x.target, Run: x.run, Dispatch: x.request.DispatchID})
	return x
}

// decide decides about x by the policy of its snapshot.
func (x subject) decide() policy.Decision { return x.snapshot.Engine.Decide(x.policyRequest()) }

func (x subject) policyRequest() policy.Request {
	req := x.request
	req.Target = x.target
	r := policy.DispatchRequest(x.principal, req, x.subagent.Tier)
	r.Consent, r.Session, r.Stops, r.Spent = x.consent, x.ceiling, x.stops, x.spent
	return r
}

// entry is the log entry of a decision about x.
func (x subject) entry() record.Entry {
	d := record.DispatchRequest{
		Subagent: string(x.request.Subagent), Target: string(x.target), Commit: x.commit,
		Envs: names(x.request.Envs), Capabilities: names(x.request.Capabilities),
		Revision: int64(x.snapshot.Revision.Number()), //nolint:gosec // G115: numbers count up from 1
	}
	if x.request.Source != nil {
		d.Source = string(x.request.Source.Name)
	}
	tier := x.subagent.Tier
	return record.Entry{
		Kind: record.KindDispatchAccepted, Run: string(x.run), Task: string(x.task), Dispatch: x.request.DispatchID,
		Role: x.subagent.Role, Tier: &tier, Detail: d,
	}
}

// withHint adds to a denial what its caller can do about it.
func (x subject) withHint(e *api.Error, d policy.Decision) *api.Error {
	if len(x.spent) > 0 {
		return e.WithHint("do not retry before there is room; see: bailiwick budget list")
	}
	if slices.Contains(d.Policies(), "stop") {
		return e.WithHint("do not retry until an operator lifts it: bailiwick stop lift %s", x.stops[0])
	}
	// A ceiling is the only obstacle where without it the request is allowed.
	without := x.policyRequest()
	without.Session = api.Irreversible
	if x.snapshot.Engine.Decide(without).Allowed() {
		return e.WithHint("do not retry: this session declared the ceiling %s, and a session cannot raise its own", x.ceiling)
	}
	without.Consent = api.Irreversible
	if x.snapshot.Engine.Decide(without).Allowed() {
		return e.WithHint("do not retry; an operator can consent to it: bailiwick ceiling set %s %s", x.principal, x.subagent.Tier)
	}
	if near := x.near(); near != "" {
		return e.WithHint("do not retry; %s Otherwise a human can add what is missing to a grant of %s in bailiwick.yaml; see: bailiwick can %s dispatch %s", near, x.principal, x.principal, x.request.Subagent)
	}
	return e.WithHint("do not retry; a human can add it to a grant of %s in bailiwick.yaml; see: bailiwick can %s dispatch %s", x.principal, x.principal, x.request.Subagent)
}

// checkTimeout refuses a timeout that the limit of the subagent would shorten.
func (x subject) checkTimeout() error {
	want, limit := x.request.TimeoutSeconds, time.Duration(x.subagent.Limits.Or(api.DefaultLimits()).Timeout)
	if int64(want) <= int64(limit/time.Second) {
		return nil
	}
	asked := api.Span(int64(want), time.Second).String()
	if int64(want) > int64(math.MaxInt64/time.Second) {
		asked = fmt.Sprintf("%d seconds", want)
	}
	return api.Errorf(api.CodeInvalid, "timeout of %s: subagent %q has the limit %s, which a request may only shorten", asked, x.subagent.Name, limit)
}

// limits are those of the subagent, lowered by the target and by the request.
func (x subject) limits(t api.Target) api.Limits {
	l := x.subagent.Limits.Or(api.DefaultLimits()).Least(t.Limits)
	return l.Least(api.Limits{Timeout: api.Duration(api.Span(int64(x.request.TimeoutSeconds), time.Second))})
}
