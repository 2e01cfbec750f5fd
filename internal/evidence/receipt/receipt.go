// Package receipt is what an anchor gave for a checkpoint, as a value, and
// what of it can be checked by somebody who has only the bytes.
//
// A receipt of a time-stamp authority proves a time by itself, against roots
// that the reader trusts. Those of the other kinds say where the checkpoint is
// to be found, and are a claim of the service's until the reader has looked
// there: with a copy that he fetched himself they are held against it.
//
// The package reads bytes. It opens no file and no connection, knows no clock,
// and links no client of what anchors are. The service and the verifier share
// it.
//
// Carries the checking side of R-A6.
package receipt

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/note"
)

// Kind says what an anchor is.
type Kind string

// The kinds of anchor.
const (
	File Kind = "file" // a file to which checkpoints are appended
	Git  Kind = "git"  // a branch of a repository that refuses to go back
	S3   Kind = "s3"   // objects that cannot be removed before a time
	TSA  Kind = "tsa"  // a time-stamp authority (RFC 3161); it keeps nothing
)

// Kinds returns all of them.
func Kinds() []Kind { return []Kind{File, Git, S3, TSA} }

const (
	// MaxSize is how long an encoded receipt may be.
	MaxSize = 2*note.MaxSigned + 2*maxToken
	// maxToken is far above what authorities give, chains of certificates
	// included.
	maxToken = 32 << 10
	maxPlace = 1024
	maxText  = 1024
)

// Receipt is what an anchor gave for one checkpoint.
type Receipt struct {
	V      int       `json:"v"`    // format of this document: 1
	Name   string    `json:"name"` // of the anchor, in the configuration of the service
	Kind   Kind      `json:"kind"`
	Place  string    `json:"place"`  // what the checkpoint was given to; in the words of the trust file
	At     time.Time `json:"at"`     // when, by the clock of the service
	Signed []byte    `json:"signed"` // the checkpoint as it was given, with its signature

	// One of these, by kind; File has none.
	Git *Commit `json:"git,omitempty"`
	S3  *Object `json:"s3,omitempty"`
	TSA *Token  `json:"tsa,omitempty"`
}

// Commit is where a checkpoint is in a repository: the file "checkpoint" of it.
type Commit struct {
	ID string `json:"commit"`
}

// Object is where a checkpoint is in a bucket, and what was read back of it.
type Object struct {
	Key     string    `json:"key"`
	Version string    `json:"version"` // the first of its key; a later one is not ours
	ETag    string    `json:"etag"`
	Until   time.Time `json:"until"` // it is kept in mode COMPLIANCE until then
}

// Token is a TimeStampToken in DER.
type Token struct {
	Token []byte `json:"token"`
}

var (
	namePattern   = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	commitPattern = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
)

// ValidName reports whether an anchor may be called so.
func ValidName(name string) bool { return namePattern.MatchString(name) }

// Parse reads what Encode wrote. Nothing is verified but the form.
func Parse(b []byte) (Receipt, error) {
	if len(b) > MaxSize {
		return Receipt{}, fmt.Errorf("receipt: larger than %d bytes", MaxSize)
	}
	var r Receipt
	if err := canon.DecodeExact(b, &r); err != nil {
		return Receipt{}, fmt.Errorf("receipt: %w", err)
	}
	if err := r.Validate(); err != nil {
		return Receipt{}, err
	}
	if again, err := r.Encode(); err != nil || !bytes.Equal(again, b) {
		return Receipt{}, errors.New("receipt: not in its canonical form")
	}
	return r, nil
}

// Encode returns the canonical bytes of r.
func (r Receipt) Encode() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return canon.Marshal(r)
}

// Validate refuses a receipt that does not say what one of its kind says.
func (r Receipt) Validate() error {
	switch {
	case r.V != 1:
		return fmt.Errorf("receipt: format %d is not known to this build, which reads 1", r.V)
	case !ValidName(r.Name):
		return fmt.Errorf("receipt: anchor %.80q: want 1 to 63 of a-z, 0-9 and -", r.Name)
	case r.Place == "" || len(r.Place) > maxPlace:
		return fmt.Errorf("receipt of %s: place of %d bytes, want 1 to %d", r.Name, len(r.Place), maxPlace)
	case r.At.Location() != time.UTC || r.At.Nanosecond()%1000 != 0:
		return fmt.Errorf("receipt of %s: time %s: want UTC and microseconds", r.Name, r.At)
	}
	if _, err := note.Peek(r.Signed); err != nil {
		return fmt.Errorf("receipt of %s: %w", r.Name, err)
	}
	if (r.Git != nil) != (r.Kind == Git) || (r.S3 != nil) != (r.Kind == S3) || (r.TSA != nil) != (r.Kind == TSA) {
		return fmt.Errorf("receipt of %s: does not say what one of kind %.40q says", r.Name, r.Kind)
	}
	if err := r.validateKind(); err != nil {
		return fmt.Errorf("receipt of %s: %w", r.Name, err)
	}
	return nil
}

func (r Receipt) validateKind() error {
	switch r.Kind {
	case File:
		return nil
	case Git:
		if !commitPattern.MatchString(r.Git.ID) {
			return fmt.Errorf("commit %.80q: want 40 or 64 hexadecimal digits", r.Git.ID)
		}
	case S3:
		o := r.S3
		if o.Key == "" || o.Version == "" || max(len(o.Key), len(o.Version), len(o.ETag)) > maxText {
			return fmt.Errorf("object: key, version and etag of %d, %d and %d bytes, want at most %d, and a key and a version", len(o.Key), len(o.Version), len(o.ETag), maxText)
		}
		if o.Until.Location() != time.UTC || o.Until.IsZero() {
			return fmt.Errorf("object: kept until %s: want a time in UTC", o.Until)
		}
	case TSA:
		if n := len(r.TSA.Token); n == 0 || n > maxToken {
			return fmt.Errorf("token of %d bytes, want 1 to %d", n, maxToken)
		}
	default:
		return fmt.Errorf("kind %.40q is not known to this build", r.Kind)
	}
	return nil
}

// Checkpoint returns the checkpoint that was given to the anchor. Its
// signatures are not looked at: note.Open does that.
func (r Receipt) Checkpoint() note.Checkpoint {
	c, err := note.Peek(r.Signed)
	if err != nil {
		return note.Checkpoint{} // not one that Parse returned
	}
	return c
}
