package server

import (
	"context"
	"encoding/base64"
	"log/slog"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
)

// Bounds of what a caller can have logged about calls that never became
// requests.
const (
	claimBurst        = 20
	claimRate         = 1 // per second
	maxClaimOperation = 200
	maxClaimMessage   = 2000
)

// catalogCalls answers what a caller may do and who it is, and logs the calls
// that a caller says it has refused.
type catalogCalls struct {
	cfg     *Config
	callers *callers
	claims  *quota[api.Principal] // of refused calls, by caller
}

func newCatalogCalls(cfg *Config, callers *callers) *catalogCalls {
	return &catalogCalls{cfg: cfg, callers: callers, claims: newQuota[api.Principal](cfg.Now, claimRate, claimBurst)}
}

func (c *catalogCalls) handlers() map[api.Call]handler {
	return map[api.Call]handler{
		api.CallCapabilities: show(c.listing(api.KindCapability)),
		api.CallSubagents:    show(c.listing(api.KindSubagent)),
		api.CallEnvs:         show(c.listing(api.KindEnv)),
		api.CallArtifacts:    show(c.artifacts),
		api.CallRoleTools:    show(c.roleTools),
		api.CallCan:          handle(c.can),
		api.CallCanCall:      handle(c.canCall),
		api.CallWho:          show(c.who),
		api.CallRefused:      handle(c.refused),
		api.CallHTTPReady:    show(c.httpReady),
	}
}

// listing returns a page of what an AI is shown of a kind.
func (c *catalogCalls) listing(kind api.Kind) func(context.Context, *request) (api.ListingPage, error) {
	return func(ctx context.Context, r *request) (api.ListingPage, error) {
		page, err := c.page(ctx, r, kind)
		return page.Listings(), err
	}
}

// artifacts returns a page of what a person is shown of a kind.
func (c *catalogCalls) artifacts(ctx context.Context, r *request) (api.ArtifactPage, error) {
	kind := api.Kind(r.PathValue("kind"))
	if !slices.Contains(api.Kinds(), kind) {
		return api.ArtifactPage{}, malformed(api.CodeInvalid, "kind %.40q: want one of %s", kind, api.OneOf(api.Kinds()))
	}
	return c.page(ctx, r, kind)
}

// page returns a page of what the caller may use of a kind.
func (c *catalogCalls) page(ctx context.Context, r *request, kind api.Kind) (page api.ArtifactPage, err error) {
	q := inforce.Query{Kind: kind}
	if text := r.URL.Query().Get("cursor"); text != "" {
		b, err := base64.RawURLEncoding.Strict().DecodeString(text)
		if err == nil {
			q.After, err = api.ParseName(string(b))
		}
		if err != nil {
			return page, malformed(api.CodeInvalid, "cursor: unknown cursor")
		}
	}
	if text := r.URL.Query().Get("name"); text != "" {
		if q.Name, err = api.ParseName(text); err != nil {
			return page, malformed(api.CodeInvalid, "name: %w", err)
		}
	}
	page, err = c.cfg.Dispatch.Artifacts(ctx, r.caller.Caller, q)
	if err == nil && page.Next != "" {
		page.Next = base64.RawURLEncoding.EncodeToString([]byte(page.Next))
	}
	return page, err
}

func (c *catalogCalls) can(ctx context.Context, r *request, req api.CanRequest) (api.CanAnswer, error) {
	return c.cfg.Dispatch.Can(ctx, r.caller.Caller, req)
}

// roleTools returns what a role may call.
func (c *catalogCalls) roleTools(ctx context.Context, r *request) (list api.RoleTools, err error) {
	role, err := api.ParseName(r.PathValue("role"))
	if err != nil {
		return list, malformed(api.CodeInvalid, "role: %w", err)
	}
	q := r.query()
	schemas := q.flag("schemas")
	if q.err != nil {
		return list, q.err
	}
	return c.cfg.Dispatch.RoleTools(ctx, r.caller.Caller, role, schemas)
}

func (c *catalogCalls) canCall(ctx context.Context, r *request, req api.CanCallRequest) (api.CanCallAnswer, error) {
	if err := api.CheckTool(req.Tool); err != nil {
		return api.CanCallAnswer{}, malformed(api.CodeInvalid, "%w", err)
	}
	return c.cfg.Dispatch.CanCall(ctx, r.caller.Caller, req)
}

// who returns the principal that the service established for the caller, and what
// bounds all that it requests.
func (c *catalogCalls) who(ctx context.Context, r *request) (api.Who, error) {
	p := r.caller.Principal
	consent := c.cfg.Registry.Consent(p)
	w := api.Who{Principal: p, Ceiling: min(consent, r.caller.Ceiling), Consent: consent, Auth: api.AuthAccount}
	switch {
	case r.caller.byToken:
		w.Auth = api.AuthToken
	case r.caller.person.ID != "":
		w.Auth = api.AuthSession
	}
	engine, err := c.cfg.InForce.Engine(ctx)
	if err != nil {
		return w, err
	}
	for _, target := range append(engine.Usable(p, api.KindTarget), "") {
		w.Stops = append(w.Stops, c.cfg.Registry.StopsFor(api.StopSubject{Principal: p, Target: target})...)
	}
	slices.Sort(w.Stops)
	w.Stops = slices.Compact(w.Stops)
	w.Operator = engine.Decide(policy.Request{Principal: p, Action: policy.ActionOperatorRead, Resource: "service", Token: r.caller.byToken}).Allowed()
	rules, err := c.cfg.InForce.Current(ctx)
	if w.Revision = rules.Number(); err != nil {
		w.CatalogError = err.Error()
	}
	return w, nil
}

// refused logs a call that was refused before it became a request. The entry is
// the caller's claim, under the caller's name.
func (c *catalogCalls) refused(ctx context.Context, r *request, req api.Refused) (api.RefusedReceipt, error) {
	if req.Operation == "" || len(req.Operation) > maxClaimOperation || len(req.Message) > maxClaimMessage {
		return api.RefusedReceipt{}, malformed(api.CodeInvalid, "refused: want an operation of at most %d bytes and a message of at most %d", maxClaimOperation, maxClaimMessage)
	}
	if !c.claims.take(r.caller.Principal) {
		return api.RefusedReceipt{}, api.Errorf(api.CodeThrottled, "too many refused calls to log each").WithHint("wait a second")
	}
	err := dispatch.LogInvalid(ctx, c.cfg.Ledger, r.caller.Principal, req.Operation, api.Errorf(api.CodeInvalid, "%s", req.Message))
	e, ok := err.(*api.Error) //nolint:errorlint // as LogInvalid makes it
	if !ok || e.AuditEntry == nil {
		return api.RefusedReceipt{}, err
	}
	return api.RefusedReceipt{AuditEntry: *e.AuditEntry}, nil
}

// httpReady reports whether the tools may be served over HTTP (R-T2). It finds
// out whether the log is writable by writing this question into it. Any account
// may ask; the answer holds two booleans.
func (c *catalogCalls) httpReady(ctx context.Context, r *request) (api.HTTPReady, error) {
	ready := api.HTTPReady{Token: slices.ContainsFunc(c.cfg.Registry.Tokens(), func(t api.TokenInfo) bool { return t.State == api.TokenActive })}
	_, err := c.cfg.Ledger.Record(ctx, record.Entry{
		Kind: record.KindHTTPRequested, Principal: r.caller.Principal, Detail: record.HTTPRequest{Token: ready.Token},
	}, nil)
	if ready.Audit = err == nil; err != nil {
		c.cfg.Logger.ErrorContext(ctx, "cannot write the audit log", slog.Any("err", err))
	}
	return ready, nil
}
