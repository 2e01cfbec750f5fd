package seal

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// Bounds of a Credential. WebAuthn Level 3, section 4, bounds the id.
const (
	minCredentialID = 16
	maxCredentialID = 1023
	maxRPID         = 253
	maxOrigins      = 8
	maxOrigin       = 300
)

// Credential is what makes a Key a passkey: a WebAuthn credential, and what each of its
// assertions has to say. Key.Public is the credential's public key, of ES256 or EdDSA.
type Credential struct {
	ID      []byte   `json:"id"`      // 16 to 1023 bytes; base64 in JSON
	RPID    string   `json:"rpId"`    // the relying party, a domain name
	Origins []string `json:"origins"` // of the pages that may ask, sorted
	// UV is always true: the authenticator verified its user, by a PIN or a finger.
	UV bool `json:"uv"`
	// Synced says that the authenticator may copy the credential to other devices, which
	// is refused otherwise.
	Synced bool `json:"synced,omitempty"`
}

// NewPasskey returns the key of a credential whose public key is given in SPKI, as
// getPublicKey() of a browser does.
func NewPasskey(name string, spki []byte, c Credential) (Key, error) {
	public, err := parseSPKI(spki)
	if err != nil {
		return Key{}, err
	}
	c.UV, c.Origins = true, slices.Sorted(slices.Values(c.Origins))
	k := Key{Name: name, Public: public, Passkey: &c}
	if k.ID, err = k.passkeyID(); err != nil {
		return Key{}, err
	}
	return k, k.Validate()
}

func parseSPKI(spki []byte) ([]byte, error) {
	key, err := x509.ParsePKIXPublicKey(spki)
	if err != nil {
		return nil, errors.New("public key: not SPKI in DER")
	}
	switch key := key.(type) {
	case ed25519.PublicKey:
		return key, nil
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() {
			return key.Bytes()
		}
	}
	return nil, errors.New("public key: want ECDSA P-256 (ES256) or ed25519 (EdDSA)")
}

// passkeyID returns the id of a passkey: a digest of everything that decides which
// assertions verify, so that an id means the same in every trust root.
func (k Key) passkeyID() (KeyID, error) {
	b, err := canon.Marshal(struct {
		Passkey *Credential `json:"passkey"`
		Public  []byte      `json:"public"`
	}{k.Passkey, k.Public})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return KeyID(string(Passkey) + ":" + hex.EncodeToString(sum[:])[:32]), nil
}

var rpIDPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+$`)

// validate refuses a credential that would accept assertions for other pages than its
// own.
func (c *Credential) validate() error {
	switch {
	case len(c.ID) < minCredentialID || len(c.ID) > maxCredentialID:
		return fmt.Errorf("passkey: credential id of %d bytes, want %d to %d", len(c.ID), minCredentialID, maxCredentialID)
	case len(c.RPID) > maxRPID || !rpIDPattern.MatchString(c.RPID):
		// Every port and every program of this machine is within "localhost".
		return fmt.Errorf("passkey: rpId %.80q: want a domain name of at least two labels, such as sign.bailiwick.localhost", c.RPID)
	case !c.UV:
		return errors.New("passkey: uv: want true: the authenticator has to verify its user")
	case len(c.Origins) == 0 || len(c.Origins) > maxOrigins:
		return fmt.Errorf("passkey: %d origins, want 1 to %d", len(c.Origins), maxOrigins)
	case !slices.IsSorted(c.Origins) || len(slices.Compact(slices.Clone(c.Origins))) != len(c.Origins):
		return errors.New("passkey: origins: want them sorted and distinct")
	}
	if _, err := netip.ParseAddr(c.RPID); err == nil {
		return fmt.Errorf("passkey: rpId %.80q: want a domain name, not an address", c.RPID)
	}
	for _, o := range c.Origins {
		if err := checkOrigin(o, c.RPID); err != nil {
			return fmt.Errorf("passkey: origin %.120q: %w", o, err)
		}
	}
	return nil
}

// checkOrigin refuses an origin that no browser sends for rpID, or over a network that
// is not encrypted.
func checkOrigin(origin, rpID string) error {
	u, err := url.Parse(origin)
	if err != nil || len(origin) > maxOrigin || u.Scheme+"://"+u.Host != origin {
		return errors.New("want SCHEME://HOST or SCHEME://HOST:PORT")
	}
	host := u.Hostname()
	loopback := strings.HasSuffix(host, ".localhost")
	switch {
	case u.Scheme != "https" && (u.Scheme != "http" || !loopback):
		return errors.New("want https, or http on a name that ends with .localhost")
	case host != rpID && !strings.HasSuffix(host, "."+rpID) || host != strings.ToLower(host):
		return fmt.Errorf("not within %s", rpID)
	case u.Port() == "" && strings.HasSuffix(u.Host, ":"), u.Scheme == "https" && u.Port() == "443", u.Scheme == "http" && u.Port() == "80":
		return errors.New("a browser leaves out the port that its scheme implies")
	}
	return nil
}

// verifyPasskey returns an error unless raw is an assertion of k about message.
func (k Key) verifyPasskey(message, raw []byte) error {
	a, err := ParseAssertion(raw)
	if err != nil {
		return err
	}
	if !bytes.Equal(a.Credential, k.Passkey.ID) {
		return fmt.Errorf("assertion: %w: of another credential", ErrSignature)
	}
	if err := a.checkClientData(sha256.Sum256(message), k.Passkey); err != nil {
		return fmt.Errorf("assertion: %w", err)
	}
	if err := a.checkAuthenticatorData(k.Passkey); err != nil {
		return fmt.Errorf("assertion: %w", err)
	}
	clientData := sha256.Sum256(a.ClientDataJSON)
	if err := verifyRaw(k.Public, append(slices.Clone(a.AuthenticatorData), clientData[:]...), a.Signature); err != nil {
		return fmt.Errorf("assertion: %w", err)
	}
	return nil
}
