// Package anchor gives checkpoints to places that whoever runs the service
// cannot change in silence, and holds the log against what is there.
//
// An anchor is a file, a branch of a git repository, a bucket under Object
// Lock, or a time-stamp authority. What it gives is a receipt (package
// evidence/receipt), which is kept in the state database. The Keeper does this
// behind the back of everything else: an anchor that fails, hangs, is slow or
// lies stops no work and raises no claim; it falls behind, and its status says
// so. Only the start of the service waits: a log that is behind what an anchor
// holds, or another log, is refused.
//
// The package decides nothing about what runs, never changes or removes what
// an anchor holds, and opens no connection but through the HTTP client that it
// is given. Secrets come from a function, at each use, and are in no message.
// Another kind of anchor (a witness) is another implementation of Anchor.
//
// Carries R-A6.
package anchor

import (
	"context"
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/evidence/receipt"
	"github.com/bailiwick-dev/bailiwick/internal/note"
)

// ID names an anchor.
type ID struct {
	Name  string       // in the configuration; receipts are kept under it
	Kind  receipt.Kind //
	Place string       // what checkpoints are given to, as trust files say it; no secret in it
}

func (id ID) String() string { return fmt.Sprintf("anchor %q (%s %s)", id.Name, id.Kind, id.Place) }

// Anchor takes checkpoints. Its methods are called by one goroutine at a time
// and end soon after their context does, or are left behind.
type Anchor interface {
	ID() ID
	// Put gives it a signed checkpoint. It returns without an error only if the
	// checkpoint is there: what was put before and not acknowledged is found, or
	// put again. It never replaces one.
	Put(ctx context.Context, signed []byte) (receipt.Receipt, error)
	// Newest returns the largest signed checkpoint that it holds; nil where it
	// holds none. Nobody has verified it.
	Newest(ctx context.Context) (signed []byte, err error)
}

// MismatchError says that what an anchor holds and the log are not of one
// history.
type MismatchError struct {
	Anchor ID
	Held   uint64 // entries, by what the anchor holds
	Local  uint64 // entries that are here
	Why    string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s holds a checkpoint of %d entries, the log here has %d: %s", e.Anchor, e.Held, e.Local, e.Why)
}

// newReceipt is what all kinds of receipt have.
func newReceipt(id ID, now time.Time, signed []byte) receipt.Receipt {
	return receipt.Receipt{V: 1, Name: id.Name, Kind: id.Kind, Place: id.Place, At: now.UTC().Truncate(time.Microsecond), Signed: signed}
}

// newest returns the larger of two checkpoints, of which the first may be nil.
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
