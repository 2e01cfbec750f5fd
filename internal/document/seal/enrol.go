package seal

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// maxEnrolment bounds the authenticator data of an enrolment: it has the credential and
// its public key.
const maxEnrolment = 4 << 10

// flagAT says that authenticator data has a new credential.
const flagAT = 1 << 6

// Enrolment is what a browser shows of a new passkey: navigator.credentials.create()
// without attestation. It proves nothing: the first decision that the passkey signs does.
type Enrolment struct {
	Name              string `json:"name"` // of the passkey, for people
	AuthenticatorData []byte `json:"authenticatorData"`
	ClientDataJSON    []byte `json:"clientDataJSON"`
	Credential        []byte `json:"credentialId"`
	RPID              string `json:"rpId"`
	SPKI              []byte `json:"publicKey"` // as getPublicKey() returns it
}

// ParseEnrolment reads strict JSON.
func ParseEnrolment(b []byte) (Enrolment, error) {
	var e Enrolment
	if len(b) > maxKeyFile {
		return e, fmt.Errorf("enrolment: larger than %d bytes", maxKeyFile)
	}
	if err := canon.Decode(b, &e); err != nil {
		return e, fmt.Errorf("enrolment: %w", err)
	}
	return e, nil
}

// Key returns the operator key of e. synced allows a passkey that its authenticator may
// copy to other devices.
func (e Enrolment) Key(synced bool) (Key, error) {
	origin, _, err := e.clientData()
	if err == nil {
		err = e.check(synced)
	}
	if err != nil {
		return Key{}, fmt.Errorf("enrolment: %w", err)
	}
	return NewPasskey(e.Name, e.SPKI, Credential{ID: e.Credential, RPID: e.RPID, Origins: []string{origin}, Synced: synced})
}

// Copied reports whether the authenticator may copy the passkey to other devices.
func (e Enrolment) Copied() bool {
	return len(e.AuthenticatorData) > sha256.Size && e.AuthenticatorData[sha256.Size]&flagBE != 0
}

// Answers returns an error unless the page at origin, whose relying party is rpID, asked
// for the passkey with a challenge.
func (e Enrolment) Answers(challenge [sha256.Size]byte, origin, rpID string) error {
	from, given, err := e.clientData()
	switch {
	case err != nil:
		return fmt.Errorf("enrolment: %w", err)
	case from != origin || e.RPID != rpID:
		return fmt.Errorf("enrolment: for %.80q at %.120q, want %s at %s", e.RPID, from, rpID, origin)
	case given != base64.RawURLEncoding.EncodeToString(challenge[:]):
		return errors.New("enrolment: it answers another challenge")
	}
	return nil
}

// clientData returns the origin of the page that enrolled the passkey, which alone may ask
// for assertions, and its challenge.
func (e Enrolment) clientData() (origin, challenge string, err error) {
	if len(e.ClientDataJSON) > maxClientData {
		return "", "", fmt.Errorf("client data: larger than %d bytes", maxClientData)
	}
	canonical, err := canon.Canonicalize(e.ClientDataJSON)
	if err != nil {
		return "", "", fmt.Errorf("client data: %w", err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(canonical, &members); err != nil {
		return "", "", errors.New("client data: not a JSON object")
	}
	var kind string
	if json.Unmarshal(members["type"], &kind) != nil || json.Unmarshal(members["origin"], &origin) != nil || json.Unmarshal(members["challenge"], &challenge) != nil || kind != "webauthn.create" {
		return "", "", fmt.Errorf("client data: type %.40q, want webauthn.create", kind)
	}
	return origin, challenge, nil
}

// check refuses authenticator data that is not about the credential and its key.
func (e Enrolment) check(synced bool) error {
	data := e.AuthenticatorData
	const id = sizeAuthenticatorData + 16 + 2 // after the AAGUID and the length of the id
	if len(data) < id || len(data) > maxEnrolment {
		return fmt.Errorf("authenticator data of %d bytes, want %d to %d", len(data), id, maxEnrolment)
	}
	rp, flags := sha256.Sum256([]byte(e.RPID)), data[sha256.Size]
	switch {
	case !bytes.Equal(data[:sha256.Size], rp[:]):
		return fmt.Errorf("authenticator data: for another relying party than %s", e.RPID)
	case flags&flagUP == 0 || flags&flagUV == 0:
		return errors.New("authenticator data: the user was not verified: use an authenticator with a PIN or a finger")
	case flags&flagAT == 0:
		return errors.New("authenticator data: it has no credential")
	case flags&flagBE != 0 && !synced:
		return errors.New("the authenticator may copy this passkey to other devices: use a device-bound key, or allow it with --synced")
	case flags&flagBE == 0 && synced:
		return errors.New("the authenticator does not copy this passkey: leave out --synced")
	case int(binary.BigEndian.Uint16(data[id-2:])) != len(e.Credential) || !bytes.HasPrefix(data[id:], e.Credential):
		return errors.New("authenticator data: about another credential")
	}
	public, err := parseSPKI(e.SPKI)
	if err != nil {
		return err
	}
	// The key in the data is in CBOR: its coordinates are in it as they are.
	rest, parts := data[id+len(e.Credential):], [][]byte{public}
	if len(public) == sizeP256 {
		parts = [][]byte{public[1:33], public[33:]}
	}
	for _, p := range parts {
		if !bytes.Contains(rest, p) {
			return errors.New("public key: not the one in the authenticator data")
		}
	}
	return nil
}
