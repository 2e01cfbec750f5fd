package server

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalogdiff"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
)

// decide decides about an operator call.
func (cfg *Config) decide(ctx context.Context, who caller, action string) (policy.Decision, error) {
	engine, err := cfg.InForce.Engine(ctx)
	if err != nil {
		return policy.Decision{}, err
	}
	return engine.Decide(policy.Request{Principal: who.Principal, Action: policy.Action(action), Resource: "service", Token: who.byToken}), nil
}

// refuseSteering logs and returns the denial of a steering call by token.
func (cfg *Config) refuseSteering(ctx context.Context, who caller, spec api.CallSpec) error {
	engine, err := cfg.InForce.Engine(ctx)
	if err != nil {
		return err
	}
	d := engine.Decide(policy.Request{Principal: who.Principal, Owner: who.Principal, Action: policy.Action(spec.Action), Resource: "run", Token: true})
	return cfg.Ledger.Deny(ctx, d, audit.AccessEntry("", spec.Operation), func(denied *api.Error) *api.Error {
		return denied.WithHint("only people steer runs: bailiwick run --help, from the account of the service or after bailiwick login")
	})
}

// operatorCalls answers the calls about the service, its principals, tokens and
// stops.
type operatorCalls struct {
	cfg  *Config
	gate *gate
}

func (c *operatorCalls) handlers() map[api.Call]handler {
	return map[api.Call]handler{
		api.CallStatus:        show(c.status),
		api.CallStop:          show(c.stop),
		api.CallStay:          show(c.stay),
		api.CallGC:            show(c.collect(false)),
		api.CallGCPlan:        show(c.collect(true)),
		api.CallTrust:         document(c.trust),
		api.CallRecordHead:    show(c.recordHead),
		api.CallRecordAdd:     handle(c.record),
		api.CallOperatorKeys:  show(c.keys),
		api.CallPrincipalList: show(c.principals),
		api.CallPrincipal:     show(c.principal),
		api.CallTokenList:     show(c.tokens),
		api.CallGrantList:     show(c.grants),
		api.CallRevisionList:  show(c.revisions),
		api.CallRevision:      show(c.revision),
		api.CallSecretList:    show(c.secrets(false)),
		api.CallSecretCheck:   show(c.secrets(true)),
		api.CallStopList:      show(c.stops),
		api.CallStopEngage:    handle(c.engage),
	}
}

func (c *operatorCalls) status(ctx context.Context, _ *request) (api.ServiceStatus, error) {
	st, err := c.cfg.Status(ctx)
	if err != nil {
		return st, err
	}
	st.OneShot = c.gate.oneShot(c.cfg.Dispatch.Running() > 0)
	for _, stop := range c.cfg.Registry.Stops() {
		if stop.LiftedAt == nil {
			st.Stops = append(st.Stops, stop.ID)
		}
	}
	return st, nil
}

func (c *operatorCalls) grants(ctx context.Context, _ *request) ([]api.ArtifactInfo, error) {
	return c.cfg.Dispatch.Grants(ctx)
}

// revisionPage is how many revisions a page has unless limit is given.
const revisionPage = 50

// revisions lists the history of the catalog.
func (c *operatorCalls) revisions(ctx context.Context, r *request) ([]api.CatalogRevision, error) {
	q := r.query()
	before, limit := q.number("before", 0, 1, math.MaxInt64), q.limit(revisionPage)
	if q.err != nil {
		return nil, q.err
	}
	return c.cfg.InForce.History(ctx, uint64(before), limit) //nolint:gosec // G115: not negative
}

// revision returns a revision with what it changed in the one before. Its work is
// bounded by two revisions, which are read as the one in force is, one caller at a
// time; its answer by catalogdiff.Bound.
func (c *operatorCalls) revision(ctx context.Context, r *request) (api.RevisionChanges, error) {
	number, err := strconv.ParseUint(r.PathValue("number"), 10, 63)
	if err != nil || number == 0 {
		return api.RevisionChanges{}, malformed(api.CodeInvalid, "revision %.40q: want its number, from 1", r.PathValue("number"))
	}
	var diff api.CatalogDiff
	step, err := c.cfg.InForce.Step(ctx, number, func(s inforce.Step, file func(api.File, int64) ([]byte, error)) {
		before := (*catalog.Set)(nil)
		if s.Before != nil {
			before = s.Before.Set()
		}
		read := func(f api.File) ([]byte, error) { return file(f, catalogdiff.MaxContent) }
		diff = catalogdiff.Compare(before, s.Revision.Set())
		catalogdiff.ShowContents(diff, before, s.Revision.Set(), read, read)
	})
	if err != nil {
		return api.RevisionChanges{}, err
	}
	rev := step.Revision
	changes := api.RevisionChanges{
		CatalogRevision: api.CatalogRevision{Number: number, Digest: rev.Digest(), CreatedAt: rev.CreatedAt(), Author: rev.Author(), Reason: rev.Reason(), Artifacts: len(rev.Set().Refs())},
		Current:         step.Current.Number(),
	}
	for _, k := range rev.Signers() {
		changes.Keys = append(changes.Keys, string(k))
	}
	changes.CatalogDiff, changes.Omitted = catalogdiff.Bound(diff)
	return changes, nil
}

func (c *operatorCalls) stop(context.Context, *request) (none, error) {
	c.cfg.Stop()
	return none{}, nil
}

// stay turns off the idle shutdown.
func (c *operatorCalls) stay(context.Context, *request) (none, error) {
	if !c.gate.stay() {
		return none{}, errShuttingDown()
	}
	return none{}, nil
}

// collect removes what the retention rules have expired; with dryRun it only
// reports it.
func (c *operatorCalls) collect(dryRun bool) func(context.Context, *request) (api.GCReport, error) {
	return func(ctx context.Context, r *request) (api.GCReport, error) {
		return c.cfg.Retain.Collect(ctx, r.caller.Principal, dryRun)
	}
}

// trust returns the trust file for an auditor of this installation.
func (c *operatorCalls) trust(ctx context.Context, _ *request) ([]byte, error) {
	return c.cfg.Trust(ctx)
}

func (c *operatorCalls) recordHead(context.Context, *request) (api.OperatorHead, error) {
	return c.cfg.Registry.Head(), nil
}

// keys returns the operator keys, in force and retired.
func (c *operatorCalls) keys(ctx context.Context, _ *request) (api.OperatorKeys, error) {
	return c.cfg.Registry.Keys(ctx)
}

// record adds a record that an operator signed. The signature authorizes it, not
// the account that submits it.
func (c *operatorCalls) record(ctx context.Context, r *request, req api.OperatorRequest) (api.OperatorReceipt, error) {
	receipt, err := c.cfg.Registry.Add(ctx, r.caller.Principal, req.Envelope, req.Content)
	if err != nil {
		switch api.CodeOf(err) { //nolint:exhaustive // the others are faults, not refusals
		case api.CodeInvalid, api.CodeConflict, api.CodeIntegrity:
			err = dispatch.LogInvalid(ctx, c.cfg.Ledger, r.caller.Principal, "operator.record", err)
		}
	}
	return receipt, err
}

// principals lists the principals that operators decided about or that the
// catalog grants something.
func (c *operatorCalls) principals(ctx context.Context, _ *request) ([]api.PrincipalInfo, error) {
	engine, err := c.cfg.InForce.Engine(ctx)
	if err != nil {
		return nil, err
	}
	list := c.cfg.Registry.Principals()
	for _, p := range engine.Principals() {
		if !slices.ContainsFunc(list, func(i api.PrincipalInfo) bool { return i.Principal == p }) {
			list = append(list, c.cfg.Registry.Principal(p))
		}
	}
	for i := range list {
		list[i].Grants = engine.Grants(list[i].Principal)
	}
	slices.SortFunc(list, func(a, b api.PrincipalInfo) int { return strings.Compare(string(a.Principal), string(b.Principal)) })
	return list, nil
}

func (c *operatorCalls) principal(ctx context.Context, r *request) (api.PrincipalInfo, error) {
	p, err := api.ParsePrincipal(r.PathValue("principal"))
	if err != nil {
		return api.PrincipalInfo{}, malformed(api.CodeInvalid, "%w", err)
	}
	engine, err := c.cfg.InForce.Engine(ctx)
	if err != nil {
		return api.PrincipalInfo{}, err
	}
	info := c.cfg.Registry.Principal(p)
	info.Grants = engine.Grants(p)
	return info, nil
}

func (c *operatorCalls) tokens(context.Context, *request) ([]api.TokenInfo, error) {
	return c.cfg.Registry.Tokens(), nil
}

func (c *operatorCalls) secrets(check bool) func(context.Context, *request) (api.SecretList, error) {
	return func(ctx context.Context, _ *request) (api.SecretList, error) { return c.cfg.Secrets(ctx, check) }
}

// engage engages an emergency stop. It needs no operator key, because the
// service's account can end everything anyway. Lifting a stop does; see record.
func (c *operatorCalls) engage(ctx context.Context, r *request, req api.StopRequest) (api.Stop, error) {
	ids, err := scopes{c.cfg}, error(nil)
	switch req.Scope {
	case api.StopRun:
		err = ids.resolve(r, (*api.RunID)(&req.Name), nil)
	case api.StopDispatch:
		err = ids.resolve(r, nil, (*api.DispatchID)(&req.Name))
	case api.StopAll, api.StopPrincipal, api.StopTarget, api.StopSchedule:
	}
	if err != nil {
		return api.Stop{}, err
	}
	return c.cfg.Dispatch.Stop(ctx, r.caller.Principal, req)
}

func (c *operatorCalls) stops(context.Context, *request) ([]api.Stop, error) {
	return c.cfg.Registry.Stops(), nil
}
