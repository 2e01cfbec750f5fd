package dispatch

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Caller is a principal making a request.
type Caller struct {
	Principal api.Principal
	// Ceiling is the highest tier that the session declared for itself;
	// Irreversible where it declared none.
	Ceiling api.Tier
	// TokenValid reports whether the caller's token is still valid; nil for a
	// caller without one. It is checked again in the transaction that admits.
	TokenValid func() bool
	// Retries is the run whose plan the caller submits again, or that it adds to: a stop
	// of that run covers what Validate decides about.
	Retries api.RunID
	// Pinned is the catalog revision that Validate finds names in, that of the run which
	// the caller adds to; "": the one in force.
	Pinned api.Digest
}

// CheckToken refuses a caller whose token was revoked or has expired.
func (c Caller) CheckToken() error {
	if c.TokenValid == nil || c.TokenValid() {
		return nil
	}
	return api.Errorf(api.CodeUnauthenticated, "the token of %s was revoked or has expired", c.Principal).WithHint("nothing was done; ask the operator for a token: bailiwick token create PRINCIPAL")
}

// Registry is what operators decided; see internal/state/operator. It is read for
// every decision, so that revoked consent takes effect at once.
type Registry interface {
	// Consent returns the highest tier that p has consent for.
	Consent(p api.Principal) api.Tier
	// ConsentIn is Consent within the transaction that admits.
	ConsentIn(tx *store.Tx, p api.Principal) (api.Tier, error)
	// Known reports whether operators decided anything about p.
	Known(p api.Principal) bool
	stops
}

// stops are the emergency stops of a Registry.
type stops interface {
	// StopsFor returns the emergency stops that cover w.
	StopsFor(w api.StopSubject) []string
	// StopsIn is StopsFor within the transaction that admits.
	StopsIn(tx *store.Tx, w api.StopSubject) ([]string, error)
	// Engage makes a stop durable together with what mark writes.
	Engage(ctx context.Context, by api.Principal, req api.StopRequest, mark func(*store.Tx, api.Stop) (int, error)) (api.Stop, error)
}
