// Package receipt is what an anchor returns for a checkpoint, and its offline
// verification.
//
// The receipt of a time-stamp authority proves a time by itself, against trusted
// roots. A receipt of another kind says where the checkpoint is stored, which proves
// nothing: an auditor fetches a copy from there, and Checkpoints reads it.
//
// The package reads bytes. It opens no file and no connection, knows no clock, and
// links no client of an anchor. The service, the verifier and the front door share it.
//
// Carries the checking side of R-A6.
package receipt

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
)

// Kind says what an anchor is.
type Kind string

// The kinds of anchor.
const (
	File Kind = "file" // an append-only file
	Git  Kind = "git"  // a branch that only moves forward
	S3   Kind = "s3"   // objects under an object lock
	TSA  Kind = "tsa"  // a time-stamp authority (RFC 3161), which stores nothing
)

// Kinds lists them all.
func Kinds() []Kind { return []Kind{File, Git, S3, TSA} }

const (
	// MaxSize bounds an encoded receipt, in bytes.
	MaxSize = 2*logproof.MaxSigned + 2*maxToken
	// MaxAnswer bounds the answer of a time-stamp authority, in bytes.
	MaxAnswer = 2 * maxToken
	// maxToken is far above real tokens, certificate chains included.
	maxToken = 32 << 10
	maxPlace = 1024
	maxText  = 1024
)

// Receipt is what an anchor returned for one checkpoint.
type Receipt struct {
	V      int       `json:"v"`    // format of this document: 1
	Name   string    `json:"name"` // of the anchor, in the configuration of the service
	Kind   Kind      `json:"kind"`
	Place  string    `json:"place"`  // where it was stored, as the trust file names it
	At     time.Time `json:"at"`     // by the service's clock
	Signed []byte    `json:"signed"` // the signed checkpoint

	// One of these, by kind; File has none.
	Git *Commit `json:"git,omitempty"`
	S3  *Object `json:"s3,omitempty"`
	TSA *Token  `json:"tsa,omitempty"`
}

// Commit names the commit whose file "checkpoint" is the checkpoint.
type Commit struct {
	ID string `json:"commit"`
}

// Object names a checkpoint in a bucket, as it was read back.
type Object struct {
	Key     string    `json:"key"`
	Version string    `json:"version"` // the first of its key; the service writes no other
	ETag    string    `json:"etag"`
	Until   time.Time `json:"until"` // retained in mode COMPLIANCE until then
}

// Token is a TimeStampToken in DER.
type Token struct {
	Token []byte `json:"token"`
}

var commitPattern = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// ValidName reports whether name is a valid name of an anchor.
func ValidName(name string) bool {
	_, err := api.ParseAnchorName(name)
	return err == nil
}

// Parse reads exactly what Encode writes. It verifies only the form.
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
		return Receipt{}, errors.New("receipt: not in canonical form")
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

// Validate refuses a receipt without the members of its kind.
func (r Receipt) Validate() error {
	switch {
	case r.V != 1:
		return fmt.Errorf("receipt: unknown format %d, want 1", r.V)
	case !ValidName(r.Name):
		return fmt.Errorf("receipt: anchor %.80q: want 1 to 63 of a-z, 0-9 and -", r.Name)
	case r.Place == "" || len(r.Place) > maxPlace:
		return fmt.Errorf("receipt of %s: place of %d bytes, want 1 to %d", r.Name, len(r.Place), maxPlace)
	case r.At.Location() != time.UTC || r.At.Nanosecond()%1000 != 0:
		return fmt.Errorf("receipt of %s: time %s: want UTC and microseconds", r.Name, r.At)
	}
	if _, err := logproof.Peek(r.Signed); err != nil {
		return fmt.Errorf("receipt of %s: %w", r.Name, err)
	}
	if (r.Git != nil) != (r.Kind == Git) || (r.S3 != nil) != (r.Kind == S3) || (r.TSA != nil) != (r.Kind == TSA) {
		return fmt.Errorf("receipt of %s: members do not match kind %.40q", r.Name, r.Kind)
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
		return fmt.Errorf("unknown kind %.40q", r.Kind)
	}
	return nil
}

// Checkpoint returns the anchored checkpoint without verifying its signatures: use
// logproof.Open for that.
func (r Receipt) Checkpoint() logproof.Checkpoint {
	c, err := logproof.Peek(r.Signed)
	if err != nil {
		return logproof.Checkpoint{} // not one that Parse returned
	}
	return c
}
