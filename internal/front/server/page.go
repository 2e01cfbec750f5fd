package server

import (
	"context"
	"net/netip"

	"github.com/bailiwick-dev/bailiwick/api"
)

// checkPage refuses a call that the account of the page makes for itself. It makes calls in
// the sessions of people, and those by which people log in or enrol; what it presents there
// authorizes them. So who takes the page over may what the sessions that it holds may.
func (c *callers) checkPage(ctx context.Context, call api.Call, who caller) error {
	if c.Page == "" || who.Principal != c.Page || call.Class() == api.ClassLogin {
		return nil
	}
	err := api.Errorf(api.CodeDenied, "%s is the account of the page: it makes this call in the session of a person alone", who.Principal).
		WithHint("sign in at the page, or make the call from an account of your own")
	return c.refuse(ctx, refusal{via: "unix", claimed: string(who.Principal), err: err})
}

// from returns the address of who logs in: of the connection, or of the browser that the
// page logs in for. Only the account of the page may say so.
func (c *callers) from(r *request) string {
	p, _ := r.Context().Value(peerKey{}).(peer) // establish has checked it
	given := r.Header.Values(api.FromHeader)
	if p.from != "" || len(given) != 1 || c.Page != "" && r.caller.Principal != c.Page {
		return p.from
	}
	at, err := netip.ParseAddr(given[0])
	if err != nil {
		return ""
	}
	return at.Unmap().WithZone("").String()
}
