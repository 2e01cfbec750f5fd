package policy

import (
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Decision is what policy said to one request: allowed, or denied, and which
// policies decided. Only an Engine makes one. The zero value is no decision;
// everything that takes a Decision refuses it.
type Decision struct {
	valid     bool
	allowed   bool
	principal api.Principal
	action    Action
	resource  string
	policies  []string
	reasons   []string
	ceiling   api.Tier // of an allowed dispatch
}

// Valid reports whether an Engine made d.
func (d Decision) Valid() bool { return d.valid }

// Allowed reports whether the request may go ahead once d is logged.
func (d Decision) Allowed() bool { return d.valid && d.allowed }

// Principal returns who asked.
func (d Decision) Principal() api.Principal { return d.principal }

// Action returns what was asked for.
func (d Decision) Action() string { return string(d.action) }

// Resource returns on what, as KIND/NAME or a plain word.
func (d Decision) Resource() string { return d.resource }

// Ceiling returns, for an allowed dispatch, the highest tier at which it would
// have been allowed: that of the grant, the consent, the session and the
// target's mode, whichever is lowest. What the dispatch brings about later has
// it for its bound.
func (d Decision) Ceiling() api.Tier {
	if !d.Allowed() {
		return api.Observe
	}
	return d.ceiling
}

// Policies returns the ids of the policies that decided, sorted. A denial for
// want of any permission has none.
func (d Decision) Policies() []string { return slices.Clone(d.policies) }

// Reasons returns, for a denial, what is missing or what forbids, in words.
func (d Decision) Reasons() []string { return slices.Clone(d.reasons) }
