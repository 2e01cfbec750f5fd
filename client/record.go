package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Head returns what the next operator record has to name.
func (o Operator) Head(ctx context.Context) (h api.OperatorHead, err error) {
	err = o.c.request(ctx, get("/v1/operator/records/head"), &h)
	return h, err
}

// Record hands in a decision that an operator's key signed. It is in force when
// this returns. Where the connection breaks nobody knows whether it is: it is
// not handed in twice, since the second one would be refused.
func (o Operator) Record(ctx context.Context, envelope []byte) (r api.OperatorReceipt, err error) {
	err = o.c.request(ctx, call{method: http.MethodPost, path: "/v1/operator/records", body: api.OperatorRequest{Envelope: envelope}}, &r)
	return r, err
}

// Principals lists those that operators decided something about, and those that
// have grants.
func (o Operator) Principals(ctx context.Context) (list []api.PrincipalInfo, err error) {
	err = o.c.request(ctx, get("/v1/operator/principals"), &list)
	return list, err
}

// Principal says what the service knows of p, whether or not anybody added it.
func (o Operator) Principal(ctx context.Context, p api.Principal) (i api.PrincipalInfo, err error) {
	err = o.c.request(ctx, get("/v1/operator/principals/"+url.PathEscape(string(p))), &i)
	return i, err
}

// Tokens lists all that were ever made, oldest first, and never one itself.
func (o Operator) Tokens(ctx context.Context) (list []api.TokenInfo, err error) {
	err = o.c.request(ctx, get("/v1/operator/tokens"), &list)
	return list, err
}

// Engage engages an emergency stop. What it holds has been told to end when
// this returns; how it ended is in the records. It is not asked for twice where
// nobody knows whether it arrived: the list of stops says.
func (o Operator) Engage(ctx context.Context, req api.StopRequest) (s api.Stop, err error) {
	err = o.c.request(ctx, call{method: http.MethodPost, path: "/v1/operator/stops", body: req}, &s)
	return s, err
}

// Stops lists all emergency stops, oldest first, those that were lifted too.
func (o Operator) Stops(ctx context.Context) (list []api.Stop, err error) {
	err = o.c.request(ctx, get("/v1/operator/stops"), &list)
	return list, err
}
