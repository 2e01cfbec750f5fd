package catalog

import (
	"errors"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
)

// Fault says in which way a catalog cannot be used. The set is closed.
type Fault string

// The faults.
const (
	FaultEmpty     Fault = "empty"           // nothing has been applied yet
	FaultUnsigned  Fault = "unsigned"        // the revision carries no signature
	FaultThreshold Fault = "below-threshold" // too few distinct keys signed it
	FaultForeign   Fault = "foreign"         // only keys that the trust root does not know signed it
	FaultSignature Fault = "bad-signature"   // a known key's signature does not match
	FaultCorrupt   Fault = "corrupt"         // a blob is missing or is not what its digest says
	FaultMalformed Fault = "malformed"       // something is not what the format allows
	FaultRollback  Fault = "rollback"        // older than, or beside, what was seen before
)

// Error is how every fault of a catalog is reported. Its API code is
// CodeIntegrity, or CodeNotFound for an empty catalog.
type Error struct {
	Fault   Fault
	Message string
	err     error // what it was noticed by; may be nil
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

// FaultOf returns the fault that err reports, or "" when it reports none.
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

// sealFault names what is wrong with the signatures.
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
