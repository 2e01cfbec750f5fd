package dispatch

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
)

// resolve looks up the subagent and the target. A name that does not exist is
// left as it is: no grant lists it, so policy answers as for a name that is not
// granted.
func (sub *submission) resolve() {
	sub.subagent, _, _ = sub.snapshot.Revision.Subagent(sub.request.Subagent)
	sub.target = sub.request.Target
	if sub.target == "" {
		sub.target = sub.subagent.Target
	}
}

func (sub *submission) policyRequest() policy.Request {
	req := sub.request
	req.Target = sub.target
	r := policy.DispatchRequest(sub.principal, req, sub.subagent.Tier)
	r.Consent, r.Session, r.Stops, r.Spent = sub.consent, sub.ceiling, sub.stops, sub.spent
	return r
}

func (sub *submission) entry() record.Entry {
	d := record.DispatchRequest{
		Subagent: string(sub.request.Subagent), Target: string(sub.target), Commit: sub.commit,
		Envs: names(sub.request.Envs), Capabilities: names(sub.request.Capabilities),
		Revision: int64(sub.snapshot.Revision.Number()), //nolint:gosec // G115: numbers count up from 1
	}
	if sub.request.Source != nil {
		d.Source = string(sub.request.Source.Name)
	}
	tier := sub.subagent.Tier
	return record.Entry{
		Kind: record.KindDispatchAccepted, Run: string(sub.run), Task: string(sub.task), Dispatch: sub.request.DispatchID,
		Role: sub.subagent.Role, Tier: &tier, Detail: d,
	}
}

// withHint adds to a denial what its caller can do about it.
func (sub *submission) withHint(e *api.Error, d policy.Decision) *api.Error {
	if len(sub.spent) > 0 {
		return e.WithHint("do not retry before there is room; see: bailiwick budget list")
	}
	if slices.Contains(d.Policies(), "stop") {
		return e.WithHint("do not retry until an operator lifts it: bailiwick stop lift %s", sub.stops[0])
	}
	// A ceiling is the only obstacle where without it the request is allowed.
	without := sub.policyRequest()
	without.Session = api.Irreversible
	if sub.snapshot.Engine.Decide(without).Allowed() {
		return e.WithHint("do not retry: this session declared the ceiling %s, and a session cannot raise its own", sub.ceiling)
	}
	without.Consent = api.Irreversible
	if sub.snapshot.Engine.Decide(without).Allowed() {
		return e.WithHint("do not retry; an operator can consent to it: bailiwick ceiling set %s %s", sub.principal, sub.subagent.Tier)
	}
	if near := sub.near(); near != "" {
		return e.WithHint("do not retry; %s Otherwise a human can add what is missing to a grant of %s in bailiwick.yaml; see: bailiwick can %s dispatch %s", near, sub.principal, sub.principal, sub.request.Subagent)
	}
	return e.WithHint("do not retry; a human can add it to a grant of %s in bailiwick.yaml; see: bailiwick can %s dispatch %s", sub.principal, sub.principal, sub.request.Subagent)
}

// checkTimeout refuses a timeout that the limit of the subagent would shorten.
func (sub *submission) checkTimeout() error {
	want, limit := sub.request.TimeoutSeconds, time.Duration(sub.subagent.Limits.Or(api.DefaultLimits()).Timeout)
	if int64(want) <= int64(limit/time.Second) {
		return nil
	}
	asked := api.Span(int64(want), time.Second).String()
	if int64(want) > int64(math.MaxInt64/time.Second) {
		asked = fmt.Sprintf("%d seconds", want)
	}
	return api.Errorf(api.CodeInvalid, "timeout of %s: subagent %q has the limit %s, which a request may only shorten", asked, sub.subagent.Name, limit)
}

// limits are those of the subagent, lowered by the target and by the request.
func (sub *submission) limits(t api.Target) api.Limits {
	l := sub.subagent.Limits.Or(api.DefaultLimits()).Least(t.Limits)
	return l.Least(api.Limits{Timeout: api.Duration(api.Span(int64(sub.request.TimeoutSeconds), time.Second))})
}
