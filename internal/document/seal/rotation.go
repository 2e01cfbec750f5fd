package seal

import (
	"context"
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// KeyRotation names the key that follows the service's current one, which signs it.
type KeyRotation struct {
	V     int       `json:"v"`     // 1
	Log   string    `json:"log"`   // the origin of the log that both sign
	Old   KeyID     `json:"old"`   // the key that signs this
	New   Key       `json:"new"`   // in force afterwards
	Entry uint64    `json:"entry"` // the log entry of the rotation: the last that the old key covers
	At    time.Time `json:"at"`
}

// LogOrigin returns the origin of a service's log, which is named after the
// service's first key and survives rotations.
func LogOrigin(first KeyID) string { return "bailiwick.dev/log/" + string(first) }

// Sign returns the envelope of r, signed with the old key.
func (r KeyRotation) Sign(ctx context.Context, old Signer) ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	if old.KeyID() != r.Old {
		return nil, fmt.Errorf("rotation of key %s: signed with %s", r.Old, old.KeyID())
	}
	doc, err := canon.Marshal(r)
	if err != nil {
		return nil, err
	}
	return Sign(ctx, Rotation, doc, old)
}

// OpenRotation returns the rotation in envelope if old signed it.
func OpenRotation(envelope []byte, old Key) (KeyRotation, error) {
	payload, _, err := Verify(envelope, Rotation, RootOf(old))
	if err != nil {
		return KeyRotation{}, fmt.Errorf("rotation: %w", err)
	}
	r, err := decodeRotation(payload)
	if err == nil && r.Old != old.ID {
		err = fmt.Errorf("rotation of key %s: signed by %s", r.Old, old.ID)
	}
	if err != nil {
		return KeyRotation{}, err
	}
	return r, nil
}

// PeekRotation returns the unverified rotation in envelope. Its only use is to
// find the key for OpenRotation.
func PeekRotation(envelope []byte) (KeyRotation, error) {
	payload, err := Payload(envelope, Rotation)
	if err != nil {
		return KeyRotation{}, fmt.Errorf("rotation: %w", err)
	}
	return decodeRotation(payload)
}

func decodeRotation(payload []byte) (KeyRotation, error) {
	var r KeyRotation
	if err := canon.DecodeExact(payload, &r); err != nil {
		return KeyRotation{}, fmt.Errorf("rotation: %w", err)
	}
	return r, r.check()
}

func (r KeyRotation) check() error {
	if err := canon.Format(r.V, 1); err != nil {
		return fmt.Errorf("rotation: %w", err)
	}
	switch {
	case r.Old == r.New.ID:
		return fmt.Errorf("rotation: key %s follows itself", r.Old)
	case r.New.ID.Algorithm() != Ed25519 || r.Old.Algorithm() != Ed25519:
		return fmt.Errorf("rotation of key %s to %s: the service signs with ed25519", r.Old, r.New.ID)
	case r.Log == "" || len(r.Log) > 200:
		return fmt.Errorf("rotation of key %s: names no log", r.Old)
	}
	if err := r.New.Validate(); err != nil {
		return fmt.Errorf("rotation of key %s: %w", r.Old, err)
	}
	return nil
}
