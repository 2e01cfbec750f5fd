package note

import (
	"bytes"
	"errors"
	"fmt"

	formats "github.com/transparency-dev/formats/proof"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
)

// MaxProof is how long a proof as a file may be.
const MaxProof = MaxSigned + 64<<10

// LeafHash is the hash of an entry in the tree (RFC 6962, section 2.1).
func LeafHash(leaf []byte) Hash { return Hash(rfc6962.DefaultHasher.HashLeaf(leaf)) }

// EmptyRoot is the root of a log without entries.
func EmptyRoot() Hash { return Hash(rfc6962.DefaultHasher.EmptyRoot()) }

// VerifyInclusion checks that the entry with this leaf hash is entry number
// index of the log that c describes. The error says why it is not.
func VerifyInclusion(c Checkpoint, index uint64, leaf Hash, hashes []Hash) error {
	if err := proof.VerifyInclusion(rfc6962.DefaultHasher, index, c.Size, leaf[:], views(hashes), c.Root[:]); err != nil {
		return fmt.Errorf("entry #%d is not proved to be in the log of size %d: %w", index, c.Size, reason(err))
	}
	return nil
}

// VerifyConsistency checks that the log that later describes begins with the
// whole log that earlier describes. The error says why it does not.
func VerifyConsistency(earlier, later Checkpoint, hashes []Hash) error {
	if earlier.Origin != later.Origin {
		return fmt.Errorf("checkpoints of %q and %q: %w", earlier.Origin, later.Origin, ErrOrigin)
	}
	var err error
	switch {
	case earlier.Size > later.Size:
		err = errors.New("it is shorter")
	case earlier.Size == 0 && earlier.Root != EmptyRoot(), later.Size == 0 && later.Root != EmptyRoot():
		err = errors.New("the root of an empty log is another")
	default:
		err = proof.VerifyConsistency(rfc6962.DefaultHasher, earlier.Size, later.Size, views(hashes), earlier.Root[:], later.Root[:])
	}
	if err != nil {
		return fmt.Errorf("the log of size %d is not proved to go on that of size %d: %w", later.Size, earlier.Size, reason(err))
	}
	return nil
}

// reason spares a reader the hashes, which say nothing to anybody.
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

// Proof is that an entry is in a log, with the signed checkpoint that it leads
// to: a file by itself (C2SP tlog-proof).
type Proof struct {
	Index  uint64
	Hashes []Hash
	Signed []byte // the signed checkpoint, as it is
	Extra  []byte // an application's own; nil: there is none. It proves nothing.
}

// Encode returns the proof as a file.
func (p Proof) Encode() []byte {
	return formats.TLogProof{Index: p.Index, Hashes: p.Hashes, Checkpoint: p.Signed, ExtraData: p.Extra}.Marshal()
}

// ParseProof reads what Encode wrote. Nothing is verified but the form.
func ParseProof(b []byte) (Proof, error) {
	if len(b) > MaxProof {
		return Proof{}, fmt.Errorf("proof: larger than %d bytes", MaxProof)
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
