package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Runtime starts, watches and cancels dispatches and runs of what humans have
// defined. It makes runtime calls only.
type Runtime struct {
	c *Conn
	RuntimeDispatches
	RuntimeRuns
}

// Runtime returns the runtime face of c.
func (c *Conn) Runtime() Runtime { return Runtime{c, RuntimeDispatches{c}, RuntimeRuns{c}} }

// Can returns what policy would decide about a dispatch.
func (r Runtime) Can(ctx context.Context, req api.CanRequest) (api.CanAnswer, error) {
	return fetch[api.CanAnswer](ctx, r.c, on(api.CallCan).with(req, false))
}

// CanCall returns what policy would decide about a call of a tool.
func (r Runtime) CanCall(ctx context.Context, req api.CanCallRequest) (api.CanCallAnswer, error) {
	return fetch[api.CanCallAnswer](ctx, r.c, on(api.CallCanCall).with(req, false))
}

// RoleTools returns what a role may call, with their schemas if those are requested.
func (r Runtime) RoleTools(ctx context.Context, role api.Name, schemas bool) (api.RoleTools, error) {
	return fetch[api.RoleTools](ctx, r.c, on(api.CallRoleTools, string(role)).where(url.Values{"schemas": {strconv.FormatBool(schemas)}}))
}

// Listing returns a page of what the caller may use of a kind: capability,
// subagent or env. The cursor is Next of the page before, or empty for the first.
func (r Runtime) Listing(ctx context.Context, kind api.Kind, cursor string) (api.ListingPage, error) {
	c, ok := map[api.Kind]api.Call{api.KindCapability: api.CallCapabilities, api.KindSubagent: api.CallSubagents, api.KindEnv: api.CallEnvs}[kind]
	if !ok {
		return api.ListingPage{}, api.Errorf(api.CodeInvalid, "artifacts of kind %q cannot be listed", string(kind))
	}
	return fetch[api.ListingPage](ctx, r.c, on(c).where(url.Values{"cursor": {cursor}}))
}

// Artifacts returns a page of what a person is shown of the artifacts of a kind
// that the caller may use. The cursor is Next of the page before, or empty for the
// first. With a name the page has only that artifact, or nothing.
func (r Runtime) Artifacts(ctx context.Context, kind api.Kind, name api.Name, cursor string) (api.ArtifactPage, error) {
	query := url.Values{}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	if name != "" {
		query.Set("name", string(name))
	}
	return fetch[api.ArtifactPage](ctx, r.c, on(api.CallArtifacts, string(kind)).where(query))
}

// Refused has the service log a call that was refused before it became a
// request.
func (r Runtime) Refused(ctx context.Context, refused api.Refused) (api.RefusedReceipt, error) {
	return fetch[api.RefusedReceipt](ctx, r.c, on(api.CallRefused).with(refused, false))
}

// HTTPReady returns whether the service is ready for an MCP server on HTTP.
func (r Runtime) HTTPReady(ctx context.Context) (api.HTTPReady, error) {
	return fetch[api.HTTPReady](ctx, r.c, on(api.CallHTTPReady))
}
