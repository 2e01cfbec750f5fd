//go:build !linux

package jail

import (
	"context"
	"os"
)

// Main does nothing on this system.
func Main() {}

// Jail cannot exist on this system.
type Jail struct{}

func elsewhere() *MissingError {
	return &MissingError{Layer: "Linux", Detail: "jails need Linux namespaces", Fix: "run the worker on Linux"}
}

// Start refuses.
func Start(context.Context, Spec) (*Jail, error) { return nil, elsewhere() }

// Sweep has nothing to remove.
func Sweep() int { return 0 }

// Probe says that this system has no jail.
func Probe(context.Context) Report {
	e := elsewhere()
	return Report{Layers: []Layer{{Name: e.Layer, Detail: e.Detail, Fix: e.Fix}}}
}

// Workspace is nil.
func (*Jail) Workspace() *os.File { return nil }

// Upper is nil.
func (*Jail) Upper() *os.File { return nil }

// Run refuses.
func (*Jail) Run(context.Context, Command) (Exit, error) { return Exit{}, elsewhere() }

// Isolation is none.
func (*Jail) Isolation() Isolation { return Isolation{} }

// Close does nothing.
func (*Jail) Close() error { return nil }
