package client

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Login makes the calls of people who are not signed in yet. What they present authorizes
// them, not the account that makes the call. It makes no other calls.
type Login struct{ c *Conn }

// Login returns the login face of c.
func (c *Conn) Login() Login { return Login{c} }

// Enrol returns what an invitation is for, or, with an enrolment, enrols a passkey. It is
// never repeated when its effect is unknown: the service would refuse the code.
func (l Login) Enrol(ctx context.Context, req api.EnrolRequest) (api.EnrolAnswer, error) {
	return fetch[api.EnrolAnswer](ctx, l.c, on(api.CallEnrol).with(req, false))
}
