package seal

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// Bounds of an Assertion.
const (
	maxClientData = 2 << 10
	// sizeAuthenticatorData is that of an assertion without extensions, which nothing
	// here asks for: the hash of the rpId, flags, and the counter.
	sizeAuthenticatorData = sha256.Size + 1 + 4
)

// MaxAssertion is the longest encoding of an Assertion, in bytes.
const MaxAssertion = 8 << 10

// The flags of authenticator data (WebAuthn Level 3, section 6.1).
const (
	flagUP = 1 << 0 // the user was present
	flagUV = 1 << 2 // the user was verified
	flagBE = 1 << 3 // the credential may be copied to other devices
	flagBS = 1 << 4 // it was
)

// Assertion is a signature by a passkey, as a browser returns it. Its canonical JSON is
// the signature in an envelope. The challenge in ClientDataJSON is that of Challenge.
type Assertion struct {
	AuthenticatorData []byte `json:"authenticatorData"`
	ClientDataJSON    []byte `json:"clientDataJSON"`
	Credential        []byte `json:"credentialId"`
	Signature         []byte `json:"signature"`
}

// Challenge returns what a passkey signs for a payload: the SHA-256 of its DSSE
// pre-authentication encoding.
func Challenge(t PayloadType, payload []byte) [sha256.Size]byte {
	return sha256.Sum256(dsse.PAE(string(t), payload))
}

// VerifyAssertion returns an error unless a is an assertion of the passkey k about a payload,
// asked for by the page with an origin.
func (k Key) VerifyAssertion(t PayloadType, payload []byte, a Assertion, origin string) error {
	if k.Passkey == nil {
		return errors.New("not a passkey")
	}
	if !slices.Contains(k.Passkey.Origins, origin) {
		return fmt.Errorf("the passkey is not for origin %.120q", origin)
	}
	at := *k.Passkey
	at.Origins = []string{origin}
	k.Passkey = &at
	raw, err := a.Normal(k)
	if err != nil {
		return err
	}
	return k.Verify(dsse.PAE(string(t), payload), raw)
}

// ParseAssertion reads the encoding of an assertion and refuses every other spelling of
// it. It verifies nothing.
func ParseAssertion(raw []byte) (Assertion, error) {
	var a Assertion
	if len(raw) > MaxAssertion {
		return Assertion{}, fmt.Errorf("assertion: larger than %d bytes", MaxAssertion)
	}
	if err := canon.DecodeExact(raw, &a); err != nil {
		return Assertion{}, fmt.Errorf("assertion: %w", err)
	}
	return a, a.checkSizes()
}

func (a Assertion) checkSizes() error {
	switch {
	case len(a.AuthenticatorData) != sizeAuthenticatorData:
		return fmt.Errorf("assertion: authenticator data of %d bytes, want %d: no extensions", len(a.AuthenticatorData), sizeAuthenticatorData)
	case len(a.ClientDataJSON) == 0 || len(a.ClientDataJSON) > maxClientData:
		return fmt.Errorf("assertion: client data of %d bytes, want 1 to %d", len(a.ClientDataJSON), maxClientData)
	case len(a.Credential) < minCredentialID || len(a.Credential) > maxCredentialID:
		return fmt.Errorf("assertion: credential id of %d bytes, want %d to %d", len(a.Credential), minCredentialID, maxCredentialID)
	case len(a.Signature) == 0 || len(a.Signature) > maxP256:
		return fmt.Errorf("assertion: signature of %d bytes, want 1 to %d", len(a.Signature), maxP256)
	}
	return nil
}

// SignCount returns the authenticator's counter; 0 if it has none.
func (a Assertion) SignCount() uint32 {
	return binary.BigEndian.Uint32(a.AuthenticatorData[sha256.Size+1:])
}

// Normal returns the encoding of a by the passkey k, with the low S: authenticators
// return either, and Verify takes one.
func (a Assertion) Normal(k Key) ([]byte, error) {
	if err := a.checkSizes(); err != nil {
		return nil, err
	}
	if len(k.Public) == sizeP256 {
		low, err := lowS(a.Signature)
		if err != nil {
			return nil, fmt.Errorf("assertion: %w", err)
		}
		a.Signature = low
	}
	return canon.Marshal(a)
}

// checkClientData refuses client data that is not of this challenge, asked for by a page
// of c, at the top of its window.
func (a Assertion) checkClientData(challenge [sha256.Size]byte, c *Credential) error {
	// Canonicalize refuses what two readers could understand differently. Browsers add
	// members, so unknown ones are left alone.
	canonical, err := canon.Canonicalize(a.ClientDataJSON)
	if err != nil {
		return fmt.Errorf("client data: %w", err)
	}
	// A map, because a struct takes members in any case.
	var members map[string]json.RawMessage
	if err := json.Unmarshal(canonical, &members); err != nil {
		return errors.New("client data: not a JSON object")
	}
	text := func(name string) string {
		var s string
		if json.Unmarshal(members[name], &s) != nil {
			return ""
		}
		return s
	}
	_, framed := members["topOrigin"]
	cross, there := members["crossOrigin"]
	switch {
	case text("type") != "webauthn.get":
		return fmt.Errorf("client data: type %.40q, want webauthn.get", text("type"))
	case text("challenge") != base64.RawURLEncoding.EncodeToString(challenge[:]):
		return fmt.Errorf("client data: %w: it signs another challenge", ErrSignature)
	case !slices.Contains(c.Origins, text("origin")):
		return fmt.Errorf("client data: the passkey is not for origin %.120q", text("origin"))
	case there && !bytes.Equal(cross, []byte("false")) || framed:
		return errors.New("client data: the page was in a frame of another origin")
	}
	return nil
}

// checkAuthenticatorData refuses data for another relying party, and data that does not
// say that the user was there and was verified.
func (a Assertion) checkAuthenticatorData(c *Credential) error {
	rp := sha256.Sum256([]byte(c.RPID))
	flags := a.AuthenticatorData[sha256.Size]
	switch {
	case !bytes.Equal(a.AuthenticatorData[:sha256.Size], rp[:]):
		return fmt.Errorf("authenticator data: for another relying party than %s", c.RPID)
	case flags&flagUP == 0:
		return errors.New("authenticator data: the user was not present")
	case flags&flagUV == 0:
		return errors.New("authenticator data: the user was not verified")
	case flags&flagBE == 0 && flags&flagBS != 0:
		return errors.New("authenticator data: backed up, but it cannot be")
	case flags&flagBE != 0 && !c.Synced:
		return errors.New("authenticator data: the passkey may be copied to other devices, which its key does not allow")
	case flags&flagBE == 0 && c.Synced:
		return errors.New("authenticator data: the passkey cannot be copied to other devices, but its key says that it can")
	case flags&^(flagUP|flagUV|flagBE|flagBS) != 0:
		return fmt.Errorf("authenticator data: flags %#02x: no extensions and no attested data are expected", flags)
	}
	return nil
}

// SignCounts returns the counters of the assertions in e whose keys are in ids, by key.
func (e *Envelope) SignCounts(ids []KeyID) map[KeyID]uint32 {
	counts := map[KeyID]uint32{}
	for _, s := range e.signatures {
		if s.by.Algorithm() != Passkey || !slices.Contains(ids, s.by) {
			continue
		}
		if a, err := ParseAssertion(s.raw); err == nil {
			counts[s.by] = max(counts[s.by], a.SignCount())
		}
	}
	return counts
}

// SignaturesBy returns the signatures of e by the keys in ids.
func (e *Envelope) SignaturesBy(ids []KeyID) map[KeyID][]byte {
	raw := map[KeyID][]byte{}
	for _, s := range e.signatures {
		if slices.Contains(ids, s.by) {
			raw[s.by] = s.raw
		}
	}
	return raw
}

// AnyPasskey reports whether one of ids is that of a passkey.
func AnyPasskey(ids []KeyID) bool {
	return slices.ContainsFunc(ids, func(id KeyID) bool { return id.Algorithm() == Passkey })
}

// SignCounter remembers the counters of passkeys. One that does not rise means that
// somebody copied the authenticator (WebAuthn Level 3, section 6.1.1).
type SignCounter map[KeyID]uint32

// ErrCloned means that the counter of a passkey did not rise.
var ErrCloned = errors.New("its counter did not rise: the authenticator may have been copied")

// Check returns ErrCloned if one of counts does not follow those that c remembers. An
// authenticator without a counter always says 0.
func (c SignCounter) Check(counts map[KeyID]uint32) error {
	for id, n := range counts {
		if last := c[id]; n <= last && last != 0 {
			return fmt.Errorf("passkey %s: %w: it was %d, and now is %d", id, ErrCloned, last, n)
		}
	}
	return nil
}

// Add remembers counts.
func (c SignCounter) Add(counts map[KeyID]uint32) { maps.Copy(c, counts) }

// Assemble returns the envelope of payload with signatures that were made elsewhere, by
// the ids of their keys.
func Assemble(t PayloadType, payload []byte, signatures map[KeyID][]byte) ([]byte, error) {
	env := dsse.Envelope{PayloadType: string(t), Payload: base64.StdEncoding.EncodeToString(payload), Signatures: []dsse.Signature{}}
	for id, raw := range signatures {
		env.Signatures = append(env.Signatures, dsse.Signature{KeyID: string(id), Sig: base64.StdEncoding.EncodeToString(raw)})
	}
	slices.SortFunc(env.Signatures, func(a, b dsse.Signature) int { return bytes.Compare([]byte(a.KeyID), []byte(b.KeyID)) })
	return canon.Marshal(env)
}
