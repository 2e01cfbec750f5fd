package client

import (
	"context"
	"net/http"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Exchange presents a token, which goes no further than this one request, for
// a handle that stands for it in requests of this process. The handle is for
// Runtime.With; before it expires, or when a request with it is refused as
// unauthenticated, exchange again.
func (c *Conn) Exchange(ctx context.Context, token string) (s api.Session, err error) {
	err = c.request(ctx, call{http.MethodPost, "/v1/session", api.SessionRequest{Token: token}, true}, &s)
	return s, err
}

// With returns a Runtime whose requests are those of the handle's principal,
// and go no further than ceiling. An empty handle leaves it as it is who calls
// (without one at all, the socket says so), and of two ceilings the lower one
// holds: neither raises anything.
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
			had, _ := api.ParseTier(given) // one that is no tier reads as the lowest, here as there
			lowest = min(lowest, had)
		}
		h.Set(api.CeilingHeader, lowest.String())
	}
	return Runtime{&Conn{link: r.c.link, header: h}}
}

// Who returns what the service takes the caller for.
func (r Runtime) Who(ctx context.Context) (w api.Who, err error) {
	err = r.c.request(ctx, get("/v1/runtime/who"), &w)
	return w, err
}
