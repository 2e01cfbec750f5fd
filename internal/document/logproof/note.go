// Package logproof reads and writes what verifies a log: checkpoints, the
// signed notes that carry them, and proofs that an entry is in a log or that one
// log extends another.
//
// The formats are C2SP's (signed-note, tlog-checkpoint, tlog-proof), and a value
// has one encoding: all others are refused. The package builds no tree, reads no
// file, knows no clock and never decides whether to trust a key: the caller names
// the keys. The service and the verifier share it.
//
// Carries R-A5 (checkpoints that others can read) and the proofs of R-A1.
package logproof

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	formats "github.com/transparency-dev/formats/log"
	sumnote "golang.org/x/mod/sumdb/note"
)

// MaxSigned is the largest signed checkpoint in bytes: three lines and room for
// the cosignatures of many witnesses.
const MaxSigned = 64 << 10

// maxOrigin is the longest origin in bytes.
const maxOrigin = 255

// Why Open refuses a signed checkpoint. Every other error means that it is
// malformed.
var (
	// ErrUnsigned: none of the keys signed it.
	ErrUnsigned = errors.New("signed by none of the known keys")
	// ErrSignature: a signature that names one of the keys does not match.
	ErrSignature = errors.New("the signature does not match")
	// ErrOrigin: it belongs to another log.
	ErrOrigin = errors.New("of another log")
)

// Hash is a node of a tree.
type Hash = [sha256.Size]byte

// Checkpoint commits to the first Size entries of a log.
type Checkpoint struct {
	Origin string // the name of the log, the same in all its checkpoints
	Size   uint64
	Root   Hash
}

// Text returns the three lines that are signed.
func (c Checkpoint) Text() []byte {
	return formats.Checkpoint{Origin: c.Origin, Size: c.Size, Hash: c.Root[:]}.Marshal()
}

// Parse parses the text of a checkpoint. It refuses extension lines: ours have
// none, and no reader would check them.
func Parse(text []byte) (Checkpoint, error) {
	var parsed formats.Checkpoint
	rest, err := parsed.Unmarshal(text)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint: %w", err)
	}
	switch {
	case len(rest) > 0:
		return Checkpoint{}, errors.New("checkpoint: has more than three lines")
	case len(parsed.Hash) != sha256.Size:
		return Checkpoint{}, fmt.Errorf("checkpoint: root has %d bytes, want %d", len(parsed.Hash), sha256.Size)
	case parsed.Size > math.MaxInt64: // the log's own limit
		return Checkpoint{}, fmt.Errorf("checkpoint: size %d is too large", parsed.Size)
	case len(parsed.Origin) > maxOrigin:
		return Checkpoint{}, fmt.Errorf("checkpoint: origin has %d bytes, want at most %d", len(parsed.Origin), maxOrigin)
	}
	c := Checkpoint{Origin: parsed.Origin, Size: parsed.Size, Root: Hash(parsed.Hash)}
	if !bytes.Equal(c.Text(), text) {
		return Checkpoint{}, errors.New("checkpoint: not in its canonical form")
	}
	return c, nil
}

// Signer signs with an ed25519 key. A seal.Signer is one.
type Signer interface {
	Public() []byte // 32 bytes
	Sign(ctx context.Context, message []byte) ([]byte, error)
}

// Sign returns c as a signed note with one signature, whose key is named after
// the origin.
func Sign(ctx context.Context, c Checkpoint, s Signer) ([]byte, error) {
	if _, err := Parse(c.Text()); err != nil {
		return nil, err
	}
	v, err := verifier(c.Origin, s.Public())
	if err != nil {
		return nil, err
	}
	text := c.Text()
	sig, err := s.Sign(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("sign a checkpoint of size %d: %w", c.Size, err)
	}
	if !v.Verify(text, sig) {
		return nil, fmt.Errorf("sign a checkpoint of size %d: the key returned a signature that does not verify", c.Size)
	}
	line := base64.StdEncoding.EncodeToString(append(binary.BigEndian.AppendUint32(nil, v.KeyHash()), sig...))
	return fmt.Appendf(nil, "%s\n\u2014 %s %s\n", text, c.Origin, line), nil
}

// Keys are keys of one log, ready to verify its checkpoints.
type Keys struct {
	origin string
	list   sumnote.Verifiers
	by     map[uint32]ed25519.PublicKey // by the hash that signatures name
}

// NewKeys returns the keys of the log that origin names. It refuses two keys whose
// short hashes are equal, because a signature names its key by that alone.
func NewKeys(origin string, keys ...ed25519.PublicKey) (Keys, error) {
	k := Keys{origin: origin, by: make(map[uint32]ed25519.PublicKey, len(keys))}
	list := make([]sumnote.Verifier, 0, len(keys))
	for _, key := range keys {
		v, err := verifier(origin, key)
		if err != nil {
			return Keys{}, err
		}
		if other, twice := k.by[v.KeyHash()]; twice && other.Equal(key) {
			continue
		} else if twice {
			return Keys{}, fmt.Errorf("key of log %q: two keys have the hash %08x", origin, v.KeyHash())
		}
		k.by[v.KeyHash()] = key
		list = append(list, v)
	}
	k.list = sumnote.VerifierList(list...)
	return k, nil
}

// Open verifies a signed checkpoint of the log that origin names. See Keys.Open.
func Open(signed []byte, origin string, keys ...ed25519.PublicKey) (Checkpoint, []ed25519.PublicKey, error) {
	k, err := NewKeys(origin, keys...)
	if err != nil {
		return Checkpoint{}, nil, err
	}
	return k.Open(signed)
}

// Open verifies a signed checkpoint of the keys' log. It returns the checkpoint
// and the keys that signed it, at least one. It ignores signatures by other keys;
// one that names a key and does not match is an error, whatever else verifies.
func (k Keys) Open(signed []byte) (Checkpoint, []ed25519.PublicKey, error) {
	c, err := Peek(signed)
	if err != nil {
		return Checkpoint{}, nil, err
	}
	if c.Origin != k.origin {
		return Checkpoint{}, nil, fmt.Errorf("checkpoint: %w: %q, want %q", ErrOrigin, c.Origin, k.origin)
	}
	verified, err := sumnote.Open(signed, k.list)
	invalid, unverified := new(sumnote.InvalidSignatureError), new(sumnote.UnverifiedNoteError)
	switch {
	case errors.As(err, &invalid):
		return Checkpoint{}, nil, fmt.Errorf("checkpoint of size %d: %w", c.Size, ErrSignature)
	case errors.As(err, &unverified):
		return Checkpoint{}, nil, fmt.Errorf("checkpoint of size %d: %w", c.Size, ErrUnsigned)
	case err != nil:
		return Checkpoint{}, nil, fmt.Errorf("checkpoint: %w", err)
	}
	by := make([]ed25519.PublicKey, 0, len(verified.Sigs))
	for _, sig := range verified.Sigs {
		by = append(by, k.by[sig.Hash])
	}
	return c, by, nil
}

// Peek returns the checkpoint of a well-formed signed note without verifying its
// signatures. Use it only to show the checkpoint, or to choose how to verify it.
func Peek(signed []byte) (Checkpoint, error) {
	if len(signed) > MaxSigned {
		return Checkpoint{}, fmt.Errorf("checkpoint: more than %d bytes", MaxSigned)
	}
	_, err := sumnote.Open(signed, sumnote.VerifierList())
	unverified := new(sumnote.UnverifiedNoteError)
	if !errors.As(err, &unverified) {
		return Checkpoint{}, fmt.Errorf("checkpoint: not a signed note: %w", err)
	}
	for _, sig := range unverified.Note.UnverifiedSigs {
		// The library ignores the unused bits of the last character, so that
		// one signature would have several spellings.
		if _, err := base64.StdEncoding.Strict().DecodeString(sig.Base64); err != nil {
			return Checkpoint{}, errors.New("checkpoint: a signature is not in its canonical form")
		}
	}
	return Parse([]byte(unverified.Note.Text))
}

// VerifierKey encodes a key of a log as other tools read it ("vkey").
func VerifierKey(origin string, key ed25519.PublicKey) (string, error) {
	vkey, err := sumnote.NewEd25519VerifierKey(origin, key)
	if err != nil {
		return "", fmt.Errorf("key of log %q: %w", origin, err)
	}
	if _, err := sumnote.NewVerifier(vkey); err != nil {
		return "", fmt.Errorf("key of log %q: %w", origin, err)
	}
	return vkey, nil
}

func verifier(origin string, key ed25519.PublicKey) (sumnote.Verifier, error) {
	vkey, err := VerifierKey(origin, key)
	if err != nil {
		return nil, err
	}
	return sumnote.NewVerifier(vkey)
}
