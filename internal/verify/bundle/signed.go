package bundle

import (
	"fmt"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// Signed are the signed documents that one entry of the log names (record.Entry.SignedRef):
// the envelopes of a catalog revision, of an operator's record, or of a change of the
// service's key. A copy of the log has them beside the entries.
type Signed struct {
	V         int      `json:"v"` // 1
	Envelopes [][]byte `json:"envelopes"`
}

// MaxSigned is how many bytes a Signed has at most.
const MaxSigned = 2 * seal.MaxEnvelope

// Encode returns the canonical bytes.
func (s Signed) Encode() ([]byte, error) { return canon.Marshal(s) }

// ParseSigned refuses all but the canonical encoding.
func ParseSigned(b []byte) (Signed, error) {
	var s Signed
	if len(b) > MaxSigned {
		return s, fmt.Errorf("signed documents: larger than %d bytes", MaxSigned)
	}
	err := canon.DecodeExact(b, &s)
	if err == nil {
		err = canon.Format(s.V, 1)
	}
	if err == nil && (len(s.Envelopes) == 0 || len(s.Envelopes) > seal.MaxSignatures) {
		err = fmt.Errorf("%d envelopes, want 1 to %d", len(s.Envelopes), seal.MaxSignatures)
	}
	if err != nil {
		return Signed{}, fmt.Errorf("signed documents: %w", err)
	}
	return s, nil
}
