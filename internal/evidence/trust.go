package evidence

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"github.com/bailiwick-dev/bailiwick/internal/evidence/bundle"
	"regexp"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
)

const (
	maxTrust     = 1 << 20
	maxTrustKeys = 256
	maxPlace     = 1024
)

// Trust is what an auditor goes by: whose signatures count, for what part of
// which log. It must have reached the auditor otherwise than the evidence
// that it is to judge, and the auditor may change it by hand, to revoke a key.
type Trust struct {
	V   int      `json:"v"` // format of this document: 1
	Log LogTrust `json:"log"`
	// Deploy says who may publish what workers are.
	Deploy DeployTrust `json:"deploy"`
	// Operators says who may decide beside the catalog; nil: nobody.
	Operators *seal.TrustRoot `json:"operators,omitempty"`
	// Statements are the keys that sign what was made of a dispatch, good for
	// statements whose entries they cover.
	Statements []LogKey `json:"statements"`
	// TSA are the roots of time-stamp authorities, each one certificate in PEM.
	TSA []string `json:"tsa,omitempty"`
	// Anchors are the places of which the auditor believes that who runs the
	// service cannot change in silence what is there.
	Anchors []AnchorTrust `json:"anchors,omitempty"`
}

// LogTrust says which log, and who signs for it: its checkpoints, and the
// manifests that its entries name.
type LogTrust struct {
	Origin string   `json:"origin"`
	Keys   []LogKey `json:"keys"` // ed25519, in the order in which they were in force
}

// LogKey is a key that was in force for a part of a log: it may sign what the
// entries From to UpTo name, and checkpoints of up to UpTo entries. (A later key
// may sign an early checkpoint, since a tree that is built again is signed as it
// grows; an earlier key may not sign a late one.)
type LogKey struct {
	ID     seal.KeyID `json:"id"`
	Name   string     `json:"name,omitempty"` // for people; means nothing
	Public []byte     `json:"public"`
	From   uint64     `json:"from"`
	UpTo   *uint64    `json:"upTo,omitempty"` // nil: it is in force
	// Revoked is the number of the entry from which on nothing of this key
	// counts: somebody else may have it. What it signed before counts only where
	// something else proves that it is before: a checkpoint of a key that is not
	// revoked, or an anchor. So a checkpoint that only this key signed is worth
	// nothing alone, and a rotation by it nothing at all.
	Revoked *uint64 `json:"revoked,omitempty"`
}

// DeployTrust is the trust root of the catalog, and those before it.
type DeployTrust struct {
	Root  seal.TrustRoot `json:"root"`
	Older []OlderRoot    `json:"older,omitempty"` // oldest first
}

// OlderRoot counts for revisions up to a number.
type OlderRoot struct {
	Root seal.TrustRoot `json:"root"`
	UpTo uint64         `json:"upTo"`
}

// AnchorTrust names a place that the auditor trusts.
type AnchorTrust struct {
	Name  string            `json:"name"`
	Kind  bundle.AnchorKind `json:"kind"`
	Place string            `json:"place"` // a path, a URL, bucket and prefix: as the receipt says it
}

// ParseTrust reads strict JSON: members that are not known, said twice or
// missing where they must be there are refused. White space is the auditor's.
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

// Validate refuses trust that would accept nothing, anything, or something
// other than what it seems to say.
func (t Trust) Validate() error {
	if t.V != 1 {
		return fmt.Errorf("trust file: format %d is not known to this build, which reads 1", t.V)
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

// origin is a signed note's key name: no space, no plus.
var originPattern = regexp.MustCompile(`^[!-*,-~]{1,200}$`)

func (l LogTrust) validate() error {
	if !originPattern.MatchString(l.Origin) {
		return fmt.Errorf("origin %.80q: want 1 to 200 printable ASCII characters without space and plus", l.Origin)
	}
	if len(l.Keys) == 0 {
		return errors.New("no keys: nothing would be accepted")
	}
	for i, k := range l.Keys {
		if k.ID.Algorithm() != seal.Ed25519 {
			return fmt.Errorf("key %d: %s, and a log is signed with ed25519", i+1, k.ID)
		}
	}
	return validateKeys(l.Keys)
}

// validateKeys refuses keys of which two would be in force at once: one
// follows the other, without an overlap.
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
			return fmt.Errorf("key %s is listed twice", k.ID)
		}
		seen[k.ID] = true
		if k.UpTo != nil && *k.UpTo < k.From {
			return fmt.Errorf("key %s is good from %d up to %d, which is never", k.ID, k.From, *k.UpTo)
		}
		if i == 0 {
			continue
		}
		if last := keys[i-1]; last.UpTo == nil || *last.UpTo >= k.From {
			return fmt.Errorf("key %s is good from entry %d, when %s still is", k.ID, k.From, last.ID)
		}
	}
	return nil
}

// Key returns the public key itself.
func (k LogKey) Key() seal.Key { return seal.Key{ID: k.ID, Name: k.Name, Public: k.Public} }

// Entry says why k cannot have signed what entry n names; nil: it can. The
// caller must know n from something that another key, or an anchor, vouches
// for, or k must not be revoked.
func (k LogKey) Entry(n uint64) error {
	switch {
	case k.Revoked != nil && n >= *k.Revoked:
		return fmt.Errorf("key %s is revoked from entry %d on, and this is entry %d", k.ID, *k.Revoked, n)
	case n < k.From:
		return fmt.Errorf("key %s is good from entry %d on, and this is entry %d", k.ID, k.From, n)
	case k.UpTo != nil && n > *k.UpTo:
		return fmt.Errorf("key %s is good up to entry %d, and this is entry %d", k.ID, *k.UpTo, n)
	}
	return nil
}

// Size says why k cannot have signed a checkpoint of n entries; nil: it can.
// Of a revoked key that is not yet enough: see Alone.
func (k LogKey) Size(n uint64) error {
	switch {
	case k.Revoked != nil && n > *k.Revoked:
		return fmt.Errorf("key %s is revoked from entry %d on, and this checkpoint is of %d entries", k.ID, *k.Revoked, n)
	case k.UpTo != nil && n > *k.UpTo:
		return fmt.Errorf("key %s is good up to %d entries, and this checkpoint is of %d", k.ID, *k.UpTo, n)
	}
	return nil
}

// Alone reports whether a checkpoint that k signed is worth anything by
// itself. One of a revoked key must be proved to be a part of one that is, or
// be at an anchor.
func (k LogKey) Alone() bool { return k.Revoked == nil }

// FindKey returns the key with this id.
func FindKey(keys []LogKey, id seal.KeyID) (LogKey, bool) {
	i := slices.IndexFunc(keys, func(k LogKey) bool { return k.ID == id })
	if i < 0 {
		return LogKey{}, false
	}
	return keys[i], true
}

// For returns the trust roots against which revision n of the catalog may
// verify, the one in force first.
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
			return fmt.Errorf("older root %d: good up to revision %d, want more than the one before it", i+1, o.UpTo)
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

var anchorName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

func (t Trust) validateAnchors() error {
	seen := map[string]bool{}
	for i, a := range t.Anchors {
		switch {
		case !anchorName.MatchString(a.Name):
			return fmt.Errorf("trust file: anchor %d: name %.80q: want 1 to 63 of a-z, 0-9 and -", i+1, a.Name)
		case seen[a.Name]:
			return fmt.Errorf("trust file: anchor %q is listed twice", a.Name)
		case !slices.Contains([]bundle.AnchorKind{bundle.AnchorFile, bundle.AnchorGit, bundle.AnchorS3, bundle.AnchorTSA}, a.Kind):
			return fmt.Errorf("trust file: anchor %q: kind %.40q is not known to this build", a.Name, a.Kind)
		case a.Place == "" || len(a.Place) > maxPlace:
			return fmt.Errorf("trust file: anchor %q: place of %d bytes, want 1 to %d", a.Name, len(a.Place), maxPlace)
		}
		seen[a.Name] = true
	}
	return nil
}
