package seal

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

const (
	maxTrustRoot = 64 << 10
	maxKeys      = 64
)

// TrustRoot lists the keys whose signatures count, and how many are needed.
type TrustRoot struct {
	V         int   `json:"v"` // format of this document: 1
	Keys      []Key `json:"keys"`
	Threshold int   `json:"threshold"` // distinct keys that must have signed

	// sets are the digests of the deploy keys' chain up to this set. Empty: it is the first.
	sets []api.Digest
}

// RootOf returns a trust root of keys with threshold 1.
func RootOf(keys ...Key) TrustRoot { return TrustRoot{V: 1, Keys: keys, Threshold: 1} }

// Validate refuses a trust root that would accept nothing or anything, or that is
// ambiguous.
func (r TrustRoot) Validate() error {
	if err := canon.Format(r.V, 1); err != nil {
		return fmt.Errorf("trust root: %w", err)
	}
	switch {
	case len(r.Keys) == 0 || len(r.Keys) > maxKeys:
		return fmt.Errorf("trust root: %d keys, want 1 to %d", len(r.Keys), maxKeys)
	case r.Threshold < 1 || r.Threshold > len(r.Keys):
		return fmt.Errorf("trust root: threshold %d, want 1 to %d, the number of keys", r.Threshold, len(r.Keys))
	}
	seen, public := map[KeyID]bool{}, map[string]bool{}
	for i, k := range r.Keys {
		if err := k.Validate(); err != nil {
			return fmt.Errorf("trust root: key %d: %w", i+1, err)
		}
		if seen[k.ID] {
			return fmt.Errorf("trust root: key %s is a duplicate", k.ID)
		}
		// One credential under two ids would count twice.
		if public[string(k.Public)] {
			return fmt.Errorf("trust root: key %s has the same public key as another", k.ID)
		}
		seen[k.ID], public[string(k.Public)] = true, true
	}
	return nil
}

func (r TrustRoot) find(id KeyID) (Key, bool) {
	for _, k := range r.Keys {
		if k.ID == id {
			return k, true
		}
	}
	return Key{}, false
}

// ParseTrustRoot parses canonical JSON, with or without one final line feed, and
// refuses every other encoding of a trust root.
func ParseTrustRoot(b []byte) (TrustRoot, error) {
	var r TrustRoot
	if len(b) > maxTrustRoot {
		return TrustRoot{}, fmt.Errorf("trust root: larger than %d bytes", maxTrustRoot)
	}
	if err := canon.DecodeExact(bytes.TrimSuffix(b, []byte("\n")), &r); err != nil {
		if canon.Decode(b, &r) == nil { // an edited file, whose content is fine
			return TrustRoot{}, fmt.Errorf("trust root: %w: write it as \"jq -cS .\" prints it", err)
		}
		return TrustRoot{}, fmt.Errorf("trust root: %w", err)
	}
	if err := r.Validate(); err != nil {
		return TrustRoot{}, err
	}
	return r, nil
}

// Encode returns the canonical bytes of r with a line feed.
func (r TrustRoot) Encode() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	b, err := canon.Marshal(r)
	return append(b, '\n'), err
}

// LoadTrustRoot reads the trust root at path. A file that another account owns or
// may write to, or can replace, is refused.
func LoadTrustRoot(path string) (TrustRoot, error) {
	r, _, err := new(TrustRootReader).Load(path)
	return r, err
}

// TrustRootReader is LoadTrustRoot for a caller that reads often: it parses only other bytes than
// before. It is safe for concurrent use.
type TrustRootReader struct{ last, chained atomic.Pointer[readTrustRoot] }

type readTrustRoot struct {
	bytes []byte
	root  TrustRoot
}

// Load returns the trust root at path, and its bytes, which the caller does not change.
func (t *TrustRootReader) Load(path string) (TrustRoot, []byte, error) {
	b, err := readGuarded(path, "trust root", maxTrustRoot, 0o022, "chmod go-w")
	if err == nil {
		err = guardDir(filepath.Dir(path), "trust root")
	}
	if err != nil {
		return TrustRoot{}, nil, err
	}
	if last := t.last.Load(); last != nil && bytes.Equal(last.bytes, b) {
		return last.root, last.bytes, nil
	}
	r, err := ParseTrustRoot(b)
	if err != nil {
		return TrustRoot{}, nil, fmt.Errorf("%s: %w", path, err)
	}
	t.last.Store(&readTrustRoot{b, r})
	return r, b, nil
}

// CreateTrustRoot writes a new trust root; it never overwrites one.
func CreateTrustRoot(path string, r TrustRoot) error {
	b, err := r.Encode()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // G301: public keys; every program of the system reads them
		return fmt.Errorf("trust root: %w", err)
	}
	return createFile(path, b, 0o644)
}
