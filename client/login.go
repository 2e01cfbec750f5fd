package client

import (
	"context"
	"net/http"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Login makes the calls of people who are not signed in yet. What they present authorizes
// them, not the account that makes the call. It makes no other calls.
type Login struct{ c *Conn }

// Login returns the login face of c.
func (c *Conn) Login() Login { return Login{c} }

// From returns l for a browser at an address, for the log.
func (l Login) From(address string) Login {
	h := l.c.header.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Set(api.FromHeader, address)
	return Login{&Conn{link: l.c.link, header: h}}
}

// Enrol returns what an invitation is for, or, with an enrolment, enrols a passkey. It is
// never repeated when its effect is unknown: the service would refuse the code.
func (l Login) Enrol(ctx context.Context, req api.EnrolRequest) (api.EnrolAnswer, error) {
	return fetch[api.EnrolAnswer](ctx, l.c, on(api.CallEnrol).with(req, false))
}

// Methods says how people log in at the service.
func (l Login) Methods(ctx context.Context) (api.LoginMethods, error) {
	return fetch[api.LoginMethods](ctx, l.c, on(api.CallLoginMethods))
}

// OIDC opens a session by an ID token. It is never repeated: the token opens one session.
func (l Login) OIDC(ctx context.Context, req api.OIDCLogin) (api.PersonSession, error) {
	return fetch[api.PersonSession](ctx, l.c, on(api.CallLoginOIDC).with(req, false))
}

// PasskeyBegin returns a challenge for the passkeys of a page.
func (l Login) PasskeyBegin(ctx context.Context, origin string) (api.PasskeyChallenge, error) {
	return fetch[api.PasskeyChallenge](ctx, l.c, on(api.CallPasskeyBegin).with(api.PasskeyBegin{Origin: origin}, false))
}

// PasskeyFinish opens a session by an answer to a challenge.
func (l Login) PasskeyFinish(ctx context.Context, req api.PasskeyLogin) (api.PersonSession, error) {
	return fetch[api.PersonSession](ctx, l.c, on(api.CallPasskeyFinish).with(req, false))
}
