package dispatch

import (
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
)

// startTime is how long a signed manifest may wait for its worker to start.
const startTime = 5 * time.Minute

// taken is what a task takes over from other dispatches.
type taken struct {
	needs     []record.Need
	taint     *api.Taint     // that it begins with
	decidedBy api.DispatchID // that the taint is from, where no need and no item has it
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
