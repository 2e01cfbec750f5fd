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

// Start returns a MissingError.
func Start(context.Context, Spec) (*Jail, error) { return nil, elsewhere() }

// Sweep does nothing.
func Sweep() int { return 0 }

// Probe reports that this system has no jails.
func Probe(context.Context) Report {
	e := elsewhere()
	return Report{Layers: []Layer{{Name: e.Layer, Detail: e.Detail, Fix: e.Fix}}}
}

// Workspace is nil.
func (*Jail) Workspace() *os.File { return nil }

// Upper is nil.
func (*Jail) Upper() *os.File { return nil }

// Run returns a MissingError.
func (*Jail) Run(context.Context, Command) (Exit, error) { return Exit{}, elsewhere() }

// Isolation is empty.
func (*Jail) Isolation() Isolation { return Isolation{} }

// Close does nothing.
func (*Jail) Close() error { return nil }
