package policy

import (
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Decision is the answer to one request: allowed or denied, and the policies that
// decided. Only an Engine makes one. The zero value is invalid, and everything
// that takes a Decision refuses it.
type Decision struct {
	valid     bool
	allowed   bool
	principal api.Principal
	action    Action
	resource  string
	policies  []string
	reasons   []string
	ceiling   api.Tier // of an allowed dispatch

	needsApproval bool // of a denied call
}

// Valid reports whether an Engine made d.
func (d Decision) Valid() bool { return d.valid }

// Allowed reports whether the request may go ahead once d is logged.
func (d Decision) Allowed() bool { return d.valid && d.allowed }

// NeedsApproval reports whether a denied call of a tool would be allowed if people
// approved it.
func (d Decision) NeedsApproval() bool { return d.valid && d.needsApproval }

// Principal returns the principal of the request.
func (d Decision) Principal() api.Principal { return d.principal }

// Action returns the requested action.
func (d Decision) Action() string { return string(d.action) }

// Resource returns the object of the action, as KIND/NAME or a plain word.
func (d Decision) Resource() string { return d.resource }

// Ceiling returns, for an allowed dispatch, the highest tier that would have been
// allowed: the lowest of grant, consent, session and target mode. It bounds
// everything that the dispatch causes later.
func (d Decision) Ceiling() api.Tier {
	if !d.Allowed() {
		return api.Observe
	}
	return d.ceiling
}

// Policies returns the ids of the policies that decided, sorted; none for a
// denial by default.
func (d Decision) Policies() []string { return slices.Clone(d.policies) }

// AllowedBy reports whether these, sorted, are the policies that decided.
func (d Decision) AllowedBy(policies []string) bool { return slices.Equal(d.policies, policies) }

// Reasons returns, for a denial, what is missing or what forbids it, for people.
func (d Decision) Reasons() []string { return slices.Clone(d.reasons) }
