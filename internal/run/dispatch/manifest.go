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

// prepared is a submission that policy allows, with what only an allowed caller gets an
// answer about: everything that its worker is given.
type prepared struct {
	subject
	taken
	caller   Caller
	digest   api.Digest   // of the submission
	forTask  *TaskRequest // nil for a dispatch outside a run
	decision policy.Decision
	pure     *record.Pure // of a pure subagent
	received time.Time
	trace    api.Trace
}

// taken is what a task takes over from other dispatches.
type taken struct {
	needs     []record.Need
	taint     *api.Taint     // that it begins with
	decidedBy api.DispatchID // that the taint is from, where no need and no item has it
}

// manifest returns the complete description of what will run.
func (p *prepared) manifest(now time.Time) (record.Manifest, error) {
	rev := p.snapshot.Revision
	target, _, err := rev.Target(p.target)
	if err != nil {
		return record.Manifest{}, err
	}
	mode, err := target.Mode.Ceiling() // of the pinned revision, which policy does not know
	if err != nil {
		return record.Manifest{}, err
	}
	access, err := rev.Access(p.subagent, target, p.request.Envs)
	if err != nil {
		return record.Manifest{}, err
	}
	own := p.subagent.Capabilities
	extra := slices.DeleteFunc(slices.Clone(p.request.Capabilities), func(n api.Name) bool { return slices.Contains(own, n) })
	m := record.Manifest{
		V: 1, ID: p.request.DispatchID, Attempt: 1, Principal: p.principal, Policies: p.decision.Policies(),
		Revision: rev.Number(), RevisionDigest: rev.Digest(),
		Subagent: p.subagent.Name, Agent: p.subagent.Agent, Model: p.subagent.Model, Role: p.subagent.Role, Tier: p.subagent.Tier,
		Ceiling: min(p.decision.Ceiling(), mode), Target: target.Name, Level: target.Level,
		Capabilities: slices.Concat(own, extra), Envs: p.request.Envs,
		Limits: p.limits(target), VerifyTime: p.subagent.Verify.Time(), Drain: record.DrainOf(access.Endpoint), Egress: access.Egress, Endpoint: access.Endpoint, Secrets: access.Secrets, Tools: rev.ToolServers(p.subagent.Role), Taint: p.taint, Input: api.DigestOf(p.request.Input), Pure: p.pure, Trace: p.trace.Attempt(p.request.DispatchID, 1),
		NotBefore: now, Expires: now.Add(startTime), Nonce: nonce(),
	}
	if p.forTask != nil {
		m.Run, m.Task, m.Fence, m.Needs, m.ItemFrom = p.forTask.Run, p.forTask.Task, p.forTask.Fence, p.needs, p.forTask.ItemFrom
		m.DecidedBy = p.decidedBy
	}
	if p.request.Source != nil {
		m.Source = &api.PinnedSource{Name: p.request.Source.Name, Commit: p.commit}
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

func names(list []api.Name) (out []string) {
	for _, n := range list {
		out = append(out, string(n))
	}
	return out
}
