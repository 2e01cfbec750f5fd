package logproof

import (
	"bytes"
	"errors"
	"fmt"

	formats "github.com/transparency-dev/formats/proof"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
)

// MaxProof is the largest encoded proof in bytes.
const MaxProof = MaxSigned + 64<<10

// LeafHash is the hash of an entry in the tree (RFC 6962, section 2.1).
func LeafHash(leaf []byte) Hash { return Hash(rfc6962.DefaultHasher.HashLeaf(leaf)) }

// EmptyRoot is the root of a log without entries.
func EmptyRoot() Hash { return Hash(rfc6962.DefaultHasher.EmptyRoot()) }

// VerifyInclusion verifies that the entry with this leaf hash is entry number
// index of the log that c commits to.
func VerifyInclusion(c Checkpoint, index uint64, leaf Hash, hashes []Hash) error {
	if err := proof.VerifyInclusion(rfc6962.DefaultHasher, index, c.Size, leaf[:], views(hashes), c.Root[:]); err != nil {
		return fmt.Errorf("no proof that entry #%d is in the log of %d entries: %w", index, c.Size, reason(err))
	}
	return nil
}

// VerifyConsistency verifies that the log that later commits to extends the one
// that earlier commits to.
func VerifyConsistency(earlier, later Checkpoint, hashes []Hash) error {
	if earlier.Origin != later.Origin {
		return fmt.Errorf("checkpoints of %q and %q: %w", earlier.Origin, later.Origin, ErrOrigin)
	}
	var err error
	switch {
	case earlier.Size > later.Size:
		err = errors.New("it is shorter")
	case earlier.Size == 0 && earlier.Root != EmptyRoot(), later.Size == 0 && later.Root != EmptyRoot():
		err = errors.New("an empty log has another root")
	default:
		err = proof.VerifyConsistency(rfc6962.DefaultHasher, earlier.Size, later.Size, views(hashes), earlier.Root[:], later.Root[:])
	}
	if err != nil {
		return fmt.Errorf("no proof that the log of %d entries extends the log of %d: %w", later.Size, earlier.Size, reason(err))
	}
	return nil
}

// reason leaves the hashes out of an error.
func reason(err error) error {
	if mismatch := (proof.RootMismatchError{}); errors.As(err, &mismatch) {
		return errors.New("the roots differ")
	}
	return err
}

func views(hashes []Hash) [][]byte {
	out := make([][]byte, len(hashes))
	for i := range hashes {
		out[i] = hashes[i][:]
	}
	return out
}

// Proof proves that an entry is in a log, together with the log's signed
// checkpoint (C2SP tlog-proof).
type Proof struct {
	Index  uint64
	Hashes []Hash
	Signed []byte // the signed checkpoint
	Extra  []byte // application data, or nil. It proves nothing
}

// Encode returns the content of the proof's file.
func (p Proof) Encode() []byte {
	return formats.TLogProof{Index: p.Index, Hashes: p.Hashes, Checkpoint: p.Signed, ExtraData: p.Extra}.Marshal()
}

// ParseProof parses what Encode returned. It verifies only the form.
func ParseProof(b []byte) (Proof, error) {
	if len(b) > MaxProof {
		return Proof{}, fmt.Errorf("proof: more than %d bytes", MaxProof)
	}
	var parsed formats.TLogProof
	if err := parsed.Unmarshal(b); err != nil {
		return Proof{}, fmt.Errorf("proof: %w", err)
	}
	p := Proof{Index: parsed.Index, Hashes: parsed.Hashes, Signed: parsed.Checkpoint, Extra: parsed.ExtraData}
	if !bytes.Equal(p.Encode(), b) {
		return Proof{}, errors.New("proof: not in its canonical form")
	}
	return p, nil
}
