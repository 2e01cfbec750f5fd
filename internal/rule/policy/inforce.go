package policy

import "context"

// InForce yields the policy in force; see internal/state/inforce. A policy that cannot be
// read is an error, so nothing is decided.
type InForce interface {
	Engine(ctx context.Context) (*Engine, error)
}
