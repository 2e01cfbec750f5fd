package client

import (
	"context"
	"net/http"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Exchange presents a token, which is in this one request only, and returns a
// handle that stands for it in requests of this process. Pass the handle to
// Runtime.With; exchange again before it expires, or when a request with it is
// refused as unauthenticated.
func (c *Conn) Exchange(ctx context.Context, token string) (api.Session, error) {
	return fetch[api.Session](ctx, c, on(api.CallSession).with(api.SessionRequest{Token: token}, false))
}

// With returns a Runtime whose requests are made as the handle's principal and
// reach no further than ceiling. An empty handle keeps the caller of r, and of
// two ceilings the lower one holds: neither widens anything.
func (r Runtime) With(handle string, ceiling *api.Tier) Runtime {
	h := r.c.header.Clone()
	if h == nil {
		h = http.Header{}
	}
	if handle != "" {
		h.Set(api.SessionHeader, handle)
	}
	if ceiling != nil {
		lowest := *ceiling
		if given := h.Get(api.CeilingHeader); given != "" {
			previous, _ := api.ParseTier(given) // an unknown tier reads as the lowest, as in the service
			lowest = min(lowest, previous)
		}
		h.Set(api.CeilingHeader, lowest.String())
	}
	return (&Conn{link: r.c.link, header: h}).Runtime()
}

// Who returns the principal and ceiling that the service established for the
// caller.
func (r Runtime) Who(ctx context.Context) (api.Who, error) {
	return fetch[api.Who](ctx, r.c, on(api.CallWho))
}

// As returns a Conn whose requests are made as the principal of a handle, of a token or of
// a person who logged in.
func (c *Conn) As(handle string) *Conn {
	return &Conn{link: c.link, header: c.Runtime().With(handle, nil).c.header}
}

// Sessions is the calls about people's sessions.
type Sessions struct{ c *Conn }

// Sessions returns the calls about people's sessions.
func (c *Conn) Sessions() Sessions { return Sessions{c} }

// List returns the caller's open sessions, and to an operator all, newest first.
func (s Sessions) List(ctx context.Context) ([]api.SessionInfo, error) {
	return fetch[[]api.SessionInfo](ctx, s.c, on(api.CallSessionList))
}

// End ends a session.
func (s Sessions) End(ctx context.Context, id string) error {
	return s.c.do(ctx, on(api.CallSessionEnd, id))
}
