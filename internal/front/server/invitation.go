package server

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
)

// invitationCalls answers the calls about people who enrol passkeys on their own devices.
type invitationCalls struct {
	cfg     *Config
	callers *callers
}

func (c *invitationCalls) handlers() map[api.Call]handler {
	return map[api.Call]handler{
		api.CallInvitationAdd:  handle(c.add),
		api.CallInvitationList: show(c.list),
		api.CallEnrol:          handle(c.enrol),
	}
}

func (c *invitationCalls) add(ctx context.Context, r *request, req api.InvitationRequest) (api.Invitation, error) {
	return c.cfg.Registry.Invited.Add(ctx, r.caller.Principal, req)
}

func (c *invitationCalls) list(ctx context.Context, _ *request) ([]api.Invitation, error) {
	return c.cfg.Registry.Invited.List(ctx)
}

// enrol answers a page before its person is signed in. A wrong code is an entry of the log,
// as a wrong token is, and guessing is throttled; a valid code is accepted at any time.
func (c *invitationCalls) enrol(ctx context.Context, r *request, req api.EnrolRequest) (api.EnrolAnswer, error) {
	answer, err := c.cfg.Registry.Invited.Enrol(ctx, req)
	switch api.CodeOf(err) { //nolint:exhaustive // the others are faults, not refusals
	case api.CodeUnauthenticated:
		claimed := "no invitation of ours"
		if from := c.callers.from(r); from != "" {
			claimed += ", from " + from
		}
		err = c.callers.refuseClaim(ctx, "enrolment", claimed, err)
	case api.CodeInvalid:
		err = dispatch.LogInvalid(ctx, c.cfg.Ledger, r.caller.Principal, "operator.enrol", err)
	}
	return answer, err
}
