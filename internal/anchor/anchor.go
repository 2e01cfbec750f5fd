// Package anchor sends checkpoints to places that the operator of the service
// cannot change unnoticed, and compares the log with what they hold.
//
// An anchor is a file, a branch of a git repository, a bucket with Object Lock,
// or a time-stamp authority. It returns receipts (package evidence/receipt),
// which are kept in the state database. The Keeper works in the background: an
// anchor that fails, hangs, is slow or lies stops no work. It falls behind, and
// its status says so. Only the start of the service waits, and fails if the log
// is shorter than what an anchor holds, or is another log.
//
// The package never decides what runs, never changes or removes what an anchor
// holds, and connects only through the HTTP client that it is given. It gets
// secrets from a function at each use, and never logs them. Other kinds of
// anchor, such as a witness, can implement Anchor.
//
// Carries R-A6.
package anchor

import (
	"context"
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/evidence/receipt"
	"github.com/bailiwick-dev/bailiwick/internal/note"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// ID names an anchor.
type ID struct {
	Name  string // in the configuration and of its receipts
	Kind  receipt.Kind
	Place string // where checkpoints go, as in trust files; contains no secret
}

func (id ID) String() string { return fmt.Sprintf("anchor %q (%s %s)", id.Name, id.Kind, id.Place) }

// Anchor stores or stamps checkpoints. One goroutine at a time calls its methods.
// A call that does not return soon after its context is done is abandoned.
type Anchor interface {
	ID() ID
	// Put stores a signed checkpoint. It succeeds only if the anchor has it, also
	// if an earlier call stored it and failed to return. It never replaces one.
	Put(ctx context.Context, signed []byte) (receipt.Receipt, error)
	// Newest returns the largest signed checkpoint that the anchor holds, not
	// verified, or nil.
	Newest(ctx context.Context) (signed []byte, err error)
}

// MismatchError reports that an anchor's checkpoint is not one of this log.
type MismatchError struct {
	Anchor ID
	Held   uint64 // entries that the anchor's checkpoint covers
	Local  uint64 // entries of the log
	Why    string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s holds a checkpoint of %s, the log here has %d: %s", e.Anchor, record.Plural(e.Held, "entry"), e.Local, e.Why)
}

// newReceipt returns the part that all kinds of receipts share.
func newReceipt(id ID, now time.Time, signed []byte) receipt.Receipt {
	return receipt.Receipt{V: 1, Name: id.Name, Kind: id.Kind, Place: id.Place, At: now.UTC().Truncate(time.Microsecond), Signed: signed}
}

// newest returns the larger of two checkpoints. signed may be nil.
func newest(signed, other []byte) ([]byte, error) {
	cp, err := note.Peek(other)
	if err != nil || signed == nil {
		return other, err
	}
	if have, err := note.Peek(signed); err != nil || have.Size >= cp.Size {
		return signed, err
	}
	return other, nil
}
