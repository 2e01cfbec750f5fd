package dispatch

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
)

// rights answers what a caller may use, and what policy would decide about a dispatch or a
// call. It does nothing else.
type rights struct{ *records }

// Artifacts returns the artifacts of a kind that the caller may use: metadata of
// the revision in force (R-B6). It sets the principal, ceiling and repositories of
// q.
func (s *rights) Artifacts(ctx context.Context, caller Caller, q inforce.Query) (api.ArtifactPage, error) {
	p, err := s.cfg.InForce.Current(ctx)
	if err != nil {
		return api.ArtifactPage{}, err
	}
	d := p.Engine.Decide(policy.Request{Principal: caller.Principal, Action: policy.ActionCatalogRead, Resource: string(caller.Principal)})
	if !d.Allowed() {
		return api.ArtifactPage{}, s.cfg.Ledger.Deny(ctx, d, audit.AccessEntry("", string(policy.ActionCatalogRead)), nil)
	}
	if p.Revision == nil {
		return api.ArtifactPage{Items: []api.ArtifactInfo{}}, nil
	}
	origins, err := s.cfg.InForce.Origins(ctx, p.Revision)
	if err != nil {
		return api.ArtifactPage{}, err
	}
	q.Principal, q.Repos = caller.Principal, caller.TokenValid == nil
	q.Ceiling = min(s.cfg.Registry.Consent(caller.Principal), caller.Ceiling)
	q.All = q.Kind == api.KindRole && operates(p.Engine, caller)
	return p.List(q, origins)
}

// Grants returns the grants of all principals. It checks no permissions.
func (s *rights) Grants(ctx context.Context) ([]api.ArtifactInfo, error) {
	p, err := s.cfg.InForce.Current(ctx)
	if err != nil || p.Revision == nil {
		return []api.ArtifactInfo{}, err
	}
	origins, err := s.cfg.InForce.Origins(ctx, p.Revision)
	if err != nil {
		return nil, err
	}
	return p.Grants(origins)
}

// Can returns what policy would decide about a dispatch, and does nothing.
func (s *rights) Can(ctx context.Context, caller Caller, req api.CanRequest) (api.CanAnswer, error) {
	p, err := s.cfg.InForce.Current(ctx)
	if err != nil {
		return api.CanAnswer{}, err
	}
	may := p.Engine.Decide(policy.Request{Principal: caller.Principal, Action: policy.ActionCan, Resource: string(req.Principal)})
	if !may.Allowed() {
		return api.CanAnswer{}, s.cfg.Ledger.Deny(ctx, may, audit.AccessEntry("", "can"), nil)
	}
	if p.Revision == nil {
		return api.CanAnswer{Reasons: []string{"no catalog has been applied yet"}}, nil
	}
	if req.Append {
		d := p.Engine.Decide(policy.AppendRequest(req.Principal, req.Principal, "", false, false))
		return api.CanAnswer{Allowed: d.Allowed(), Policies: d.Policies(), Reasons: d.Reasons(), Revision: p.Revision.Number()}, nil
	}
	about := api.DispatchRequest{Subagent: req.Subagent, Target: req.Target, Envs: req.Envs, Capabilities: req.Capabilities}
	if req.Source != "" {
		about.Source = &api.SourceRequest{Name: req.Source}
	}
	ceiling := api.Irreversible
	if req.Principal == caller.Principal {
		ceiling = caller.Ceiling
	}
	x := s.bounded(newSubject(p, req.Principal, ceiling, about))
	d := x.decide()
	answer := api.CanAnswer{Allowed: d.Allowed(), Policies: d.Policies(), Reasons: d.Reasons(), Revision: p.Revision.Number()}
	if answer.Allowed {
		err = x.reach(&answer)
	} else if near := x.near(); near != "" {
		answer.Reasons = append(answer.Reasons, near)
	}
	return answer, err
}

// reach fills in what an allowed dispatch reaches outside its jail.
func (x subject) reach(answer *api.CanAnswer) error {
	target, _, err := x.snapshot.Revision.Target(x.target)
	if err != nil {
		return err
	}
	a, err := x.snapshot.Revision.Access(x.subagent, target, x.request.Envs)
	if err != nil {
		return err
	}
	answer.Endpoint, answer.Egress, answer.Secrets = a.Endpoint, a.Egress, a.Secrets
	for i := range answer.Secrets {
		answer.Secrets[i].Ref = ""
	}
	return nil
}
