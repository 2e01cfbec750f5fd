package evidence

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

const (
	maxTrust     = 1 << 20
	maxTrustKeys = 256
	maxPlace     = 1024
)

// Trust is what an auditor trusts: logs, and keys for parts of each log. It must
// reach the auditor by another way than the evidence. The auditor may edit it, to
// revoke a key.
type Trust struct {
	V   int      `json:"v"` // format of this document: 1
	Log LogTrust `json:"log"`
	// Deploy says who may publish what workers are.
	Deploy DeployTrust `json:"deploy"`
	// Operators may change ceilings, tokens and stops; nil: nobody may.
	Operators *seal.TrustRoot `json:"operators,omitempty"`
	// Statements are the keys that sign attestations, each for those whose entries
	// it covers.
	Statements []LogKey `json:"statements"`
	// TSA are the roots of time-stamp authorities, each one certificate in PEM.
	TSA []string `json:"tsa,omitempty"`
	// Anchors are the places that, in the auditor's judgement, the service's
	// operator cannot change unnoticed.
	Anchors []AnchorTrust `json:"anchors,omitempty"`
}

// LogTrust names a log and the keys that sign its checkpoints and manifests.
type LogTrust struct {
	Origin string   `json:"origin"`
	Keys   []LogKey `json:"keys"` // ed25519, oldest first
}

// LogKey is a key that was in force for a part of a log: it may sign what entries
// From to UpTo name, and checkpoints of up to UpTo entries. A later key may sign a
// smaller checkpoint, because a rebuilt tree is signed as it grows.
type LogKey struct {
	ID     seal.KeyID `json:"id"`
	Name   string     `json:"name,omitempty"` // for people only
	Public []byte     `json:"public"`
	From   uint64     `json:"from"`
	UpTo   *uint64    `json:"upTo,omitempty"` // nil while it is in force
	// Revoked is the number of the first entry for which this key no longer counts,
	// because it may be compromised. Earlier signatures count only if something else
	// proves that they are earlier: a checkpoint by a key that is not revoked, or an
	// anchor. A checkpoint that only this key signed proves nothing alone, and a
	// rotation by it nothing at all.
	Revoked *uint64 `json:"revoked,omitempty"`
}

// DeployTrust is the trust root of the catalog, and its predecessors.
type DeployTrust struct {
	Root  seal.TrustRoot `json:"root"`
	Older []OlderRoot    `json:"older,omitempty"` // oldest first
}

// OlderRoot is valid for revisions up to UpTo.
type OlderRoot struct {
	Root seal.TrustRoot `json:"root"`
	UpTo uint64         `json:"upTo"`
}

// AnchorTrust names a place that the auditor trusts.
type AnchorTrust struct {
	Name  string       `json:"name"`
	Kind  receipt.Kind `json:"kind"`
	Place string       `json:"place"` // a path, a URL, or bucket and prefix, as in the receipt
}

// ParseTrust reads strict JSON: it refuses unknown, duplicate and missing members.
// White space is allowed.
func ParseTrust(b []byte) (Trust, error) {
	var t Trust
	if len(b) > maxTrust {
		return Trust{}, fmt.Errorf("trust file: larger than %d bytes", maxTrust)
	}
	if err := canon.Decode(b, &t); err != nil {
		return Trust{}, fmt.Errorf("trust file: %w", err)
	}
	if err := t.Validate(); err != nil {
		return Trust{}, err
	}
	return t, nil
}

// Encode returns the canonical bytes of t with a line feed.
func (t Trust) Encode() ([]byte, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	b, err := canon.Marshal(t)
	return append(b, '\n'), err
}

// Validate refuses trust that would accept nothing, everything, or something
// else than it seems to.
func (t Trust) Validate() error {
	if err := canon.Format(t.V, 1); err != nil {
		return fmt.Errorf("trust file: %w", err)
	}
	if err := t.Log.validate(); err != nil {
		return fmt.Errorf("trust file: log: %w", err)
	}
	if err := t.Deploy.validate(); err != nil {
		return fmt.Errorf("trust file: deploy: %w", err)
	}
	if t.Operators != nil {
		if err := t.Operators.Validate(); err != nil {
			return fmt.Errorf("trust file: operators: %w", err)
		}
	}
	if err := validateKeys(t.Statements); err != nil {
		return fmt.Errorf("trust file: statements: %w", err)
	}
	if _, err := t.TSARoots(); err != nil {
		return fmt.Errorf("trust file: %w", err)
	}
	return t.validateAnchors()
}

// originPattern matches the key name of a signed note: no space, no plus.
var originPattern = regexp.MustCompile(`^[!-*,-~]{1,200}$`)

func (l LogTrust) validate() error {
	if !originPattern.MatchString(l.Origin) {
		return fmt.Errorf("origin %.80q: want 1 to 200 printable ASCII characters without space and plus", l.Origin)
	}
	if len(l.Keys) == 0 {
		return errors.New("no keys")
	}
	for i, k := range l.Keys {
		if k.ID.Algorithm() != seal.Ed25519 {
			return fmt.Errorf("key %d: %s, want an ed25519 key", i+1, k.ID)
		}
	}
	return validateKeys(l.Keys)
}

// validateKeys refuses keys that overlap: one follows the other.
func validateKeys(keys []LogKey) error {
	if len(keys) > maxTrustKeys {
		return fmt.Errorf("%d keys, want at most %d", len(keys), maxTrustKeys)
	}
	seen := map[seal.KeyID]bool{}
	for i, k := range keys {
		if err := k.Key().Validate(); err != nil {
			return fmt.Errorf("key %d: %w", i+1, err)
		}
		if seen[k.ID] {
			return fmt.Errorf("duplicate key %s", k.ID)
		}
		seen[k.ID] = true
		if k.UpTo != nil && *k.UpTo < k.From {
			return fmt.Errorf("key %s is valid from %d up to %d, which is never", k.ID, k.From, *k.UpTo)
		}
		if i == 0 {
			continue
		}
		if last := keys[i-1]; last.UpTo == nil || *last.UpTo >= k.From {
			return fmt.Errorf("key %s is valid from entry %d, when %s still is", k.ID, k.From, last.ID)
		}
	}
	return nil
}

// Key returns the public key.
func (k LogKey) Key() seal.Key { return seal.Key{ID: k.ID, Name: k.Name, Public: k.Public} }

// Entry returns an error if k cannot have signed what entry n names. If k is
// revoked, n must be known from another key or an anchor.
func (k LogKey) Entry(n uint64) error {
	switch {
	case k.Revoked != nil && n >= *k.Revoked:
		return fmt.Errorf("key %s is revoked from entry %d on, but this is entry %d", k.ID, *k.Revoked, n)
	case n < k.From:
		return fmt.Errorf("key %s is valid from entry %d on, but this is entry %d", k.ID, k.From, n)
	case k.UpTo != nil && n > *k.UpTo:
		return fmt.Errorf("key %s is valid up to entry %d, but this is entry %d", k.ID, *k.UpTo, n)
	}
	return nil
}

// Size returns an error if k cannot have signed a checkpoint of n entries. For a
// revoked key see also Alone.
func (k LogKey) Size(n uint64) error {
	switch {
	case k.Revoked != nil && n > *k.Revoked:
		return fmt.Errorf("key %s is revoked from entry %d on, but this checkpoint has %s", k.ID, *k.Revoked, record.Plural(n, "entry"))
	case k.UpTo != nil && n > *k.UpTo:
		return fmt.Errorf("key %s is valid up to %s, but this checkpoint has %d", k.ID, record.Plural(*k.UpTo, "entry"), n)
	}
	return nil
}

// Alone reports whether a checkpoint signed only by k counts by itself. One by a
// revoked key counts only if a later one extends it, or an anchor holds it.
func (k LogKey) Alone() bool { return k.Revoked == nil }

// FindKey returns the key with the given id.
func FindKey(keys []LogKey, id seal.KeyID) (LogKey, bool) {
	i := slices.IndexFunc(keys, func(k LogKey) bool { return k.ID == id })
	if i < 0 {
		return LogKey{}, false
	}
	return keys[i], true
}

// For returns the trust roots valid for catalog revision n, the newest first.
func (d DeployTrust) For(n uint64) []seal.TrustRoot {
	roots := []seal.TrustRoot{d.Root}
	for _, o := range slices.Backward(d.Older) {
		if n <= o.UpTo {
			roots = append(roots, o.Root)
		}
	}
	return roots
}

func (d DeployTrust) validate() error {
	if err := d.Root.Validate(); err != nil {
		return err
	}
	for i, o := range d.Older {
		if err := o.Root.Validate(); err != nil {
			return fmt.Errorf("older root %d: %w", i+1, err)
		}
		if o.UpTo == 0 || i > 0 && o.UpTo <= d.Older[i-1].UpTo {
			return fmt.Errorf("older root %d: valid up to revision %d, want more than the previous root", i+1, o.UpTo)
		}
	}
	return nil
}

// TSARoots returns the certificates of TSA.
func (t Trust) TSARoots() ([]*x509.Certificate, error) {
	roots := make([]*x509.Certificate, 0, len(t.TSA))
	for i, text := range t.TSA {
		block, rest := pem.Decode([]byte(text))
		if block == nil || block.Type != "CERTIFICATE" || len(bytes.TrimSpace(rest)) != 0 || !strings.HasPrefix(text, "-----BEGIN") {
			return nil, fmt.Errorf("tsa %d: want one PEM block of type CERTIFICATE", i+1)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("tsa %d: %w", i+1, err)
		}
		roots = append(roots, c)
	}
	return roots, nil
}

func (t Trust) validateAnchors() error {
	seen := map[string]bool{}
	for i, a := range t.Anchors {
		switch {
		case !receipt.ValidName(a.Name):
			return fmt.Errorf("trust file: anchor %d: name %.80q: want 1 to 63 of a-z, 0-9 and -", i+1, a.Name)
		case seen[a.Name]:
			return fmt.Errorf("trust file: duplicate anchor %q", a.Name)
		case !slices.Contains(receipt.Kinds(), a.Kind):
			return fmt.Errorf("trust file: anchor %q: unknown kind %.40q", a.Name, a.Kind)
		case a.Place == "" || len(a.Place) > maxPlace:
			return fmt.Errorf("trust file: anchor %q: place of %d bytes, want 1 to %d", a.Name, len(a.Place), maxPlace)
		}
		seen[a.Name] = true
	}
	return nil
}
