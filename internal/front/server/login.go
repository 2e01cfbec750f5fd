package server

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/login"
)

// Map says who an identity of the provider is. Its error is unauthenticated for an identity
// that is nobody's.
type Map interface {
	// Person completes an identity with its principal, and reduces its groups to those
	// that mean something.
	Person(ctx context.Context, who login.Identity) (login.Identity, error)
}

// loginCalls answers the calls by which people log in, and those about their sessions. No
// call by which somebody logs in needs a caller: what it is given opens a session of a
// person, or does not.
type loginCalls struct{ *callers }

func (c *loginCalls) handlers() map[api.Call]handler {
	return map[api.Call]handler{
		api.CallLoginMethods:  show(c.methods),
		api.CallLoginOIDC:     opens(c, c.oidc),
		api.CallPasskeyBegin:  handle(c.begin),
		api.CallPasskeyFinish: opens(c, c.finish),
		api.CallSessionList:   show(c.list),
		api.CallSessionEnd:    show(c.end),
	}
}

func (c *loginCalls) methods(context.Context, *request) (api.LoginMethods, error) {
	m := api.LoginMethods{Tokens: true}
	if c.People == nil {
		return m, nil
	}
	if c.Provider != nil {
		m.OIDC = c.Provider.Login()
	}
	m.Passkeys = c.Passkeys != nil && c.Passkeys.Any()
	return m, nil
}

// opens returns the handler of a call that opens a session for the identity that find
// establishes. A refusal is logged, within the quota of refused callers.
func opens[Req any](c *loginCalls, find func(context.Context, Req) (login.Identity, error)) handler {
	return func(w http.ResponseWriter, r *request) error {
		var req Req
		if err := decode(r.Request, &req); err != nil {
			return malformed(api.CodeInvalid, "login: want application/json with the members that docs/api.md lists") // the decoder's message may quote a secret
		}
		if c.People == nil {
			return c.nobody()
		}
		who, err := find(r.Context(), req)
		var opened api.PersonSession
		if err == nil {
			p, _ := r.Context().Value(peerKey{}).(peer) // establish has checked it
			opened, err = c.People.Begin(r.Context(), who, p.channel(), c.from(r))
		}
		if err != nil {
			return c.refuseLogin(r, who, err)
		}
		w.Header().Set("Cache-Control", "no-store")
		return answer(w, r.status, opened)
	}
}

func (c *loginCalls) nobody() error {
	return api.Errorf(api.CodeNotConfigured, "this service has no logins of people").WithHint("the administrator adds the section login to the service's configuration; see docs/configuration.md")
}

// refuseLogin logs a login that was refused. The provider's silence is no refusal.
func (c *loginCalls) refuseLogin(r *request, who login.Identity, err error) error {
	if api.CodeOf(err) != api.CodeUnauthenticated {
		return err
	}
	claimed := string(who.Via)
	if who.Subject != "" {
		claimed += " of " + who.Subject
	}
	if from := c.from(r); from != "" {
		claimed += ", from " + from
	}
	return c.refuse(r.Context(), refusal{via: "login", claimed: claimed, err: asError(err)})
}

func (c *loginCalls) oidc(ctx context.Context, req api.OIDCLogin) (login.Identity, error) {
	if c.Provider == nil {
		return login.Identity{}, c.nobody()
	}
	who, err := c.Provider.Verify(ctx, req.IDToken, req.Nonce)
	if err != nil {
		return login.Identity{Via: api.LoginOIDC}, err
	}
	found, err := c.Map.Person(ctx, who)
	if err != nil {
		return who, err
	}
	return found, nil
}

func (c *loginCalls) begin(_ context.Context, _ *request, req api.PasskeyBegin) (api.PasskeyChallenge, error) {
	if c.People == nil || c.Passkeys == nil {
		return api.PasskeyChallenge{}, c.nobody()
	}
	return c.Passkeys.Begin(req.Origin)
}

func (c *loginCalls) finish(_ context.Context, req api.PasskeyLogin) (login.Identity, error) {
	if c.Passkeys == nil {
		return login.Identity{}, c.nobody()
	}
	who, err := c.Passkeys.Finish(req.ID, req.Assertion)
	who.Via = api.LoginPasskey
	return who, err
}

// all reports whether a caller may see and end everybody's sessions.
func (c *loginCalls) all(ctx context.Context, who caller) (bool, error) {
	d, err := c.decide(ctx, who, string(policy.ActionOperatorRead))
	return err == nil && d.Allowed(), err
}

func (c *loginCalls) list(ctx context.Context, r *request) ([]api.SessionInfo, error) {
	if c.People == nil {
		return []api.SessionInfo{}, nil
	}
	all, err := c.all(ctx, r.caller)
	if err != nil {
		return nil, err
	}
	of := r.caller.Principal
	if all {
		of = ""
	}
	list := c.People.List(of)
	for i := range list {
		list[i].Current = list[i].ID == r.caller.person.ID
	}
	return list, nil
}

// end ends a session. That of another person looks like a missing one.
func (c *loginCalls) end(ctx context.Context, r *request) (none, error) {
	id := r.PathValue("id")
	if c.People == nil {
		return none{}, c.nobody()
	}
	all, err := c.all(ctx, r.caller)
	if err != nil {
		return none{}, err
	}
	if owner := c.People.Owner(id); !all && (owner != r.caller.Principal || r.caller.byToken) {
		return none{}, login.NoSuch(id)
	}
	return none{}, c.People.End(ctx, r.caller.Principal, id)
}

// sweepEvery is how often sessions that are over are logged as ended.
const sweepEvery = time.Minute

// sweepSessions ends sessions that are over until the gate closes.
func (s *Server) sweepSessions() {
	background.Loop{First: sweepEvery, Step: func(ctx context.Context) time.Duration {
		ctx = context.WithoutCancel(ctx)
		if err := s.cfg.People.Sweep(ctx); err != nil {
			s.cfg.Logger.ErrorContext(ctx, "cannot log the end of sessions", slog.Any("err", err))
		}
		return sweepEvery
	}}.Run(s.gate.leaving)
}
