package catalog

import (
	"errors"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// Fault says why a catalog cannot be used. The set is closed.
type Fault string

// The faults.
const (
	FaultEmpty     Fault = "empty"           // nothing has been applied yet
	FaultUnsigned  Fault = "unsigned"        // the revision carries no signature
	FaultThreshold Fault = "below-threshold" // signed by too few distinct keys
	FaultForeign   Fault = "foreign"         // signed only by keys that the trust root does not list
	FaultSignature Fault = "bad-signature"   // a signature of a listed key does not verify
	FaultCorrupt   Fault = "corrupt"         // a blob is missing or does not match its digest
	FaultMalformed Fault = "malformed"       // violates the format
	FaultRollback  Fault = "rollback"        // older than, or no successor of, what was seen before
)

// Error reports a fault of a catalog. Its API code is CodeIntegrity, or
// CodeNotFound for an empty catalog.
type Error struct {
	Fault   Fault
	Message string
	err     error // the cause; may be nil
}

func (e *Error) Error() string { return e.Message }

// Unwrap gives the error its code and its cause.
func (e *Error) Unwrap() []error {
	code := api.CodeIntegrity
	if e.Fault == FaultEmpty {
		code = api.CodeNotFound
	}
	errs := []error{api.Errorf(code, "%s", e.Message)}
	if e.err != nil {
		errs = append(errs, e.err)
	}
	return errs
}

// FaultOf returns the fault that err reports, or "".
func FaultOf(err error) Fault {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Fault
	}
	return ""
}

func fault(f Fault, err error, format string, args ...any) error {
	e := &Error{Fault: f, Message: fmt.Sprintf(format, args...), err: err}
	if err != nil {
		e.Message += ": " + err.Error()
	}
	return e
}

// sealFault maps an error of the signatures to its fault.
func sealFault(err error, format string, args ...any) error {
	f := FaultMalformed
	switch {
	case errors.Is(err, seal.ErrUnsigned):
		f = FaultUnsigned
	case errors.Is(err, seal.ErrUnknownKey):
		f = FaultForeign
	case errors.Is(err, seal.ErrThreshold):
		f = FaultThreshold
	case errors.Is(err, seal.ErrSignature):
		f = FaultSignature
	}
	return fault(f, err, format, args...)
}
