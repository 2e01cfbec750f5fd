package dispatch

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// Caller is who asks for something to run, and how far that may go at most.
type Caller struct {
	Principal api.Principal
	// Ceiling is what the request has bound itself to; Irreversible where it has
	// not. It only lowers.
	Ceiling api.Tier
	// TokenValid reports whether the token by which it asks still is; nil where it asks
	// by none. It is asked again in the transaction that would admit.
	TokenValid func() bool
}

// Gone refuses who asks by a token that has ended.
func (c Caller) CheckToken() error {
	if c.TokenValid == nil || c.TokenValid() {
		return nil
	}
	return api.Errorf(api.CodeUnauthenticated, "the token by which %s asked has ended", c.Principal).WithHint("nothing was done; ask the operator for a token: bailiwick token create PRINCIPAL")
}

// Registry is what operators decided; see internal/operator. It is asked at every
// decision, so that what an operator takes back counts at once.
type Registry interface {
	// Consent returns the highest tier that was consented to for p.
	Consent(p api.Principal) api.Tier
	// ConsentIn returns the same for the transaction that would make something
	// happen.
	ConsentIn(tx *store.Tx, p api.Principal) (api.Tier, error)
	// Known reports whether anything was decided about p.
	Known(p api.Principal) bool
	stops
}

// stops are the emergency stops of a Registry.
type stops interface {
	// StopsFor returns the emergency stops that hold something, and StopsIn the
	// same for the transaction that would make it happen.
	StopsFor(w api.StopSubject) []string
	StopsIn(tx *store.Tx, w api.StopSubject) ([]string, error)
	// Engage makes a stop durable together with what mark writes.
	Engage(ctx context.Context, by api.Principal, req api.StopRequest, mark func(*store.Tx, api.Stop) (int, error)) (api.Stop, error)
}
