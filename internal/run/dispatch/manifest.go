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

// startTime is how long a signed manifest may wait for its worker to start.
const startTime = 5 * time.Minute

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

func names(list []api.Name) (out []string) {
	for _, n := range list {
		out = append(out, string(n))
	}
	return out
}

// manifest returns the complete description of what will run.
func (sub *submission) manifest(now time.Time, decision policy.Decision) (record.Manifest, error) {
	rev := sub.snapshot.Revision
	target, _, err := rev.Target(sub.target)
	if err != nil {
		return record.Manifest{}, err
	}
	mode, err := target.Mode.Ceiling() // of the pinned revision, which policy does not know
	if err != nil {
		return record.Manifest{}, err
	}
	access, err := rev.Access(sub.subagent, target, sub.request.Envs)
	if err != nil {
		return record.Manifest{}, err
	}
	own := sub.subagent.Capabilities
	extra := slices.DeleteFunc(slices.Clone(sub.request.Capabilities), func(n api.Name) bool { return slices.Contains(own, n) })
	m := record.Manifest{
		V: 1, ID: sub.request.DispatchID, Attempt: 1, Principal: sub.principal, Policies: decision.Policies(),
		Revision: rev.Number(), RevisionDigest: rev.Digest(),
		Subagent: sub.subagent.Name, Agent: sub.subagent.Agent, Model: sub.subagent.Model, Role: sub.subagent.Role, Tier: sub.subagent.Tier,
		Ceiling: min(decision.Ceiling(), mode), Target: target.Name, Level: target.Level,
		Capabilities: slices.Concat(own, extra), Envs: sub.request.Envs,
		Limits: sub.limits(target), VerifyTime: sub.subagent.Verify.Time(), Drain: record.DrainOf(access.Endpoint), Egress: access.Egress, Endpoint: access.Endpoint, Secrets: access.Secrets, Tools: rev.ToolServers(sub.subagent.Role), Taint: sub.taint, Input: api.DigestOf(sub.request.Input), Pure: sub.pure, Trace: sub.trace.Attempt(sub.request.DispatchID, 1),
		NotBefore: now, Expires: now.Add(startTime), Nonce: nonce(),
	}
	if sub.forTask != nil {
		m.Run, m.Task, m.Fence, m.Needs, m.ItemFrom = sub.run, sub.task, sub.forTask.Fence, sub.needs, sub.forTask.ItemFrom
		m.DecidedBy = sub.decidedBy
	}
	if sub.request.Source != nil {
		m.Source = &api.PinnedSource{Name: sub.request.Source.Name, Commit: sub.commit}
	}
	for _, ref := range m.Refs() {
		k, n, err := ref.Split()
		if err != nil {
			return m, err
		}
		e, err := rev.Entry(k, n)
		if err != nil {
			return m, err
		}
		m.Artifacts = append(m.Artifacts, record.Pin{Ref: ref, Digest: e.Digest})
	}
	return m, nil
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
