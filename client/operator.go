package client

import (
	"context"
	"io"
	"net/url"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Operator reads the whole log and runs the service. It makes operator calls
// only.
type Operator struct {
	c *Conn
	OperatorLog
	OperatorRecords
	OperatorRuns
	OperatorSchedules
}

// Operator returns the operator's face of c.
func (c *Conn) Operator() Operator {
	return Operator{c, OperatorLog{c}, OperatorRecords{c}, OperatorRuns{c}, OperatorSchedules{c}}
}

// Status returns the status of the service.
func (o Operator) Status(ctx context.Context) (api.ServiceStatus, error) {
	return fetch[api.ServiceStatus](ctx, o.c, on(api.CallStatus))
}

// Stop shuts the service down. Running workers continue; the next service adopts
// them.
func (o Operator) Stop(ctx context.Context) error {
	return o.c.do(ctx, on(api.CallStop))
}

// Stay turns off the idle shutdown of a service.
func (o Operator) Stay(ctx context.Context) error {
	return o.c.do(ctx, on(api.CallStay))
}

// GC removes what the service's retention rules have expired; with dryRun it
// only reports what that is.
func (o Operator) GC(ctx context.Context, dryRun bool) (api.GCReport, error) {
	c := api.CallGC
	if dryRun {
		c = api.CallGCPlan
	}
	return fetch[api.GCReport](ctx, o.c, on(c))
}

// Trust writes to w the trust file to give to an auditor of this installation,
// over another channel than the evidence.
func (o Operator) Trust(ctx context.Context, w io.Writer) error {
	return o.c.copy(ctx, on(api.CallTrust), w)
}

// Grants returns the grants of all principals, sorted by name.
func (o Operator) Grants(ctx context.Context) ([]api.ArtifactInfo, error) {
	return fetch[[]api.ArtifactInfo](ctx, o.c, on(api.CallGrantList))
}

// Revisions returns at most limit revisions of the catalog, newest first, older than the
// number before if that is not 0.
func (o Operator) Revisions(ctx context.Context, before uint64, limit int) ([]api.CatalogRevision, error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if before > 0 {
		query.Set("before", strconv.FormatUint(before, 10))
	}
	return fetch[[]api.CatalogRevision](ctx, o.c, on(api.CallRevisionList).where(query))
}

// Revision returns a revision of the catalog with what it changed in the one before.
func (o Operator) Revision(ctx context.Context, number uint64) (api.RevisionChanges, error) {
	return fetch[api.RevisionChanges](ctx, o.c, on(api.CallRevision, strconv.FormatUint(number, 10)))
}

// Principals lists the principals that operators decided about or that have
// grants.
func (o Operator) Principals(ctx context.Context) ([]api.PrincipalInfo, error) {
	return fetch[[]api.PrincipalInfo](ctx, o.c, on(api.CallPrincipalList))
}

// Principal returns what the service knows about p, even if no operator added
// it.
func (o Operator) Principal(ctx context.Context, p api.Principal) (api.PrincipalInfo, error) {
	return fetch[api.PrincipalInfo](ctx, o.c, on(api.CallPrincipal, string(p)))
}

// Tokens lists all tokens ever created, oldest first, never with their text.
func (o Operator) Tokens(ctx context.Context) ([]api.TokenInfo, error) {
	return fetch[[]api.TokenInfo](ctx, o.c, on(api.CallTokenList))
}

// Secrets lists the secrets of the catalog and those that are set; with check, the
// service reads each value, and says which it could not read.
func (o Operator) Secrets(ctx context.Context, check bool) (api.SecretList, error) {
	c := api.CallSecretList
	if check {
		c = api.CallSecretCheck
	}
	return fetch[api.SecretList](ctx, o.c, on(c))
}

// Engage engages an emergency stop. When this returns, everything it covers has
// been cancelled; the records say how each ended. It is never repeated when
// its effect is unknown: the list of stops tells.
func (o Operator) Engage(ctx context.Context, req api.StopRequest) (api.Stop, error) {
	return fetch[api.Stop](ctx, o.c, on(api.CallStopEngage).with(req, false))
}

// Stops lists all emergency stops, oldest first, including lifted ones.
func (o Operator) Stops(ctx context.Context) ([]api.Stop, error) {
	return fetch[[]api.Stop](ctx, o.c, on(api.CallStopList))
}
