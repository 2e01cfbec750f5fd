// Package anchor sends checkpoints to places that the operator of the service
// cannot change unnoticed, and compares the log with what they hold.
//
// An anchor is a file, a branch of a git repository, a bucket with Object Lock,
// or a time-stamp authority. It returns receipts (package receipt),
// which are kept in the state database. The Keeper works in the background: an
// anchor that fails, hangs, is slow or lies stops no work. It falls behind, and
// its status says so. Only the start of the service waits: it compares the whole
// history of each anchor with the log, and fails if the log is shorter than what
// an anchor holds, is another log, or if what is there was not written by the
// service, unless an operator named that anchor as lost.
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

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
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
	// Newest returns the signed checkpoint that the anchor got last, not verified,
	// or nil.
	Newest(ctx context.Context) (signed []byte, err error)
	// Scan calls see for all that the anchor holds, in any order and one at a time:
	// the whole history, also what later writes hide. An error of see ends it. It
	// returns an *UnfitError if it read all and Put would fail, and any other error
	// if it could not reach the rest. known returns the signed checkpoint that the
	// anchor acknowledged for a size, or nil: a Scan that verifies that it is what
	// the anchor holds need not fetch it.
	Scan(ctx context.Context, known func(size uint64) []byte, see func(Item) error) error
}

// Item is one thing that an anchor holds. The zero value says only that the anchor
// still answers.
type Item struct {
	Where  string // for messages, such as "line 12"
	ID     string // as receipts name it: a commit, or an object's version; empty in a file
	Signed []byte // its content, not verified
	// Problem is why it is not as the service writes it, or empty. Content that is
	// no checkpoint is a problem without saying so.
	Problem string
	// Stray is something beside the place that the service writes to. It counts only
	// if it is a checkpoint that the service signed.
	Stray bool
	// Half is the size that half a line names, or 0. A power cut leaves such lines,
	// but none about entries that the log has not.
	Half uint64
}

// UnfitError reports that an anchor can be read to its end, but not written to.
type UnfitError struct{ Err error }

func (e *UnfitError) Error() string { return e.Err.Error() }

// Unwrap implements the interface of package errors.
func (e *UnfitError) Unwrap() error { return e.Err }

// MismatchError reports that what an anchor holds, or acknowledged, is not of this
// log, or not as the service wrote it.
type MismatchError struct {
	Anchor ID
	What   string // the worst finding: what the anchor holds or lacks
	Why    string
	More   int    // further findings
	Held   uint64 // entries of the checkpoint of the worst finding, or 0
	Local  uint64 // entries of the log
	// Signed: the service signed a checkpoint that is ahead of its log or contradicts
	// it.
	Signed bool
	// Found identifies all findings, whatever the size of the log.
	Found api.Digest
	// All describes the first maxFindings of them, in no order.
	All []string
}

func (e *MismatchError) Error() string {
	more := ""
	if e.More > 0 {
		more = "; and " + record.Plural(e.More, "further finding")
	}
	return fmt.Sprintf("%s %s, the log here has %d: %s%s", e.Anchor, e.What, e.Local, e.Why, more)
}

// newReceipt returns the part that all kinds of receipts share.
func newReceipt(id ID, now time.Time, signed []byte) receipt.Receipt {
	return receipt.Receipt{V: 1, Name: id.Name, Kind: id.Kind, Place: id.Place, At: now.UTC().Truncate(time.Microsecond), Signed: signed}
}

// newest returns the larger of two checkpoints. signed may be nil.
func newest(signed, other []byte) ([]byte, error) {
	cp, err := logproof.Peek(other)
	if err != nil || signed == nil {
		return other, err
	}
	if have, err := logproof.Peek(signed); err != nil || have.Size >= cp.Size {
		return signed, err
	}
	return other, nil
}
