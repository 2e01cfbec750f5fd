// Package softkey is a WebAuthn authenticator in software, with the part of a browser
// that makes the client data: tests sign with it, honestly and not.
//
// Only tests link it.
package softkey

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// The page and the relying party of New.
const (
	Origin = "http://sign.bailiwick.localhost:8471"
	RPID   = "sign.bailiwick.localhost"
)

// Authenticator has one credential. Its fields are what the next assertion says, which a
// test may change to lie.
type Authenticator struct {
	RPID, Type, Origin string
	Flags              byte           // UP and UV
	Count              uint32         // of the newest assertion
	Stuck              bool           // Count does not rise
	CrossOrigin        any            // the member of the client data; nil: left out
	More               map[string]any // further members
	Challenge          *[32]byte      // instead of the one that is asked for
	ClientData         []byte         // instead of the one that a browser makes

	ID  []byte
	key crypto.Signer
}

// New returns an authenticator with a new credential, of ES256 or, with ed, of EdDSA.
func New(ed bool) (*Authenticator, error) {
	a := &Authenticator{RPID: RPID, Type: "webauthn.get", Origin: Origin, Flags: 0x05, CrossOrigin: false, ID: make([]byte, 32)}
	_, err := rand.Read(a.ID)
	if err == nil && ed {
		_, a.key, err = ed25519.GenerateKey(rand.Reader)
	} else if err == nil {
		a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	return a, err
}

// Credential returns what a browser shows of a at enrolment.
func (a *Authenticator) Credential() seal.Credential {
	return seal.Credential{ID: a.ID, RPID: RPID, Origins: []string{Origin}}
}

// SPKI returns the public key, as getPublicKey() does.
func (a *Authenticator) SPKI() ([]byte, error) { return x509.MarshalPKIXPublicKey(a.key.Public()) }

// Key returns the operator key of a.
func (a *Authenticator) Key(name string) (seal.Key, error) {
	spki, err := a.SPKI()
	if err != nil {
		return seal.Key{}, err
	}
	return seal.NewPasskey(name, spki, a.Credential())
}

// Enrol returns what a browser shows of a new credential: with the flags, the page and the
// challenge of a, and the public key as authenticators encode it.
func (a *Authenticator) Enrol() (seal.Enrolment, error) {
	spki, err := a.SPKI()
	if err != nil {
		return seal.Enrolment{}, err
	}
	// COSE_Key of RFC 9053, in CBOR: the algorithm, the curve, and the coordinates.
	cose := append([]byte{0xa4, 0x01, 0x01, 0x03, 0x27, 0x20, 0x06, 0x21, 0x58, 0x20}, spki[len(spki)-32:]...)
	if _, es := a.key.(*ecdsa.PrivateKey); es {
		x, y := spki[len(spki)-64:len(spki)-32], spki[len(spki)-32:]
		cose = append([]byte{0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21, 0x58, 0x20}, x...)
		cose = append(append(cose, 0x22, 0x58, 0x20), y...)
	}
	rp := sha256.Sum256([]byte(a.RPID))
	data := binary.BigEndian.AppendUint32(append(rp[:], a.Flags|0x40), a.Count)
	data = binary.BigEndian.AppendUint16(append(data, make([]byte, 16)...), uint16(len(a.ID))) //nolint:gosec // G115: 32
	var challenge [32]byte
	if a.Challenge != nil {
		challenge = *a.Challenge
	}
	clientData, err := json.Marshal(map[string]any{"type": "webauthn.create", "challenge": base64.RawURLEncoding.EncodeToString(challenge[:]), "origin": a.Origin, "crossOrigin": false})
	return seal.Enrolment{
		Name: "ann", AuthenticatorData: append(append(data, a.ID...), cose...), ClientDataJSON: clientData, Credential: a.ID, RPID: RPID, SPKI: spki,
	}, err
}

// Assert returns the assertion about a challenge.
func (a *Authenticator) Assert(challenge [32]byte) (seal.Assertion, error) {
	if !a.Stuck {
		a.Count++
	}
	if a.Challenge != nil {
		challenge = *a.Challenge
	}
	clientData := a.ClientData
	if clientData == nil {
		members := map[string]any{"type": a.Type, "challenge": base64.RawURLEncoding.EncodeToString(challenge[:]), "origin": a.Origin}
		if a.CrossOrigin != nil {
			members["crossOrigin"] = a.CrossOrigin
		}
		maps.Copy(members, a.More)
		var err error
		if clientData, err = json.Marshal(members); err != nil {
			return seal.Assertion{}, err
		}
	}
	rp := sha256.Sum256([]byte(a.RPID))
	data := binary.BigEndian.AppendUint32(append(rp[:], a.Flags), a.Count)
	return a.sign(data, clientData)
}

// sign signs as an authenticator does: with either S.
func (a *Authenticator) sign(data, clientData []byte) (seal.Assertion, error) {
	hash := sha256.Sum256(clientData)
	message, options := append(append([]byte{}, data...), hash[:]...), crypto.Hash(0)
	if _, ok := a.key.(*ecdsa.PrivateKey); ok {
		sum := sha256.Sum256(message)
		message, options = sum[:], crypto.SHA256
	}
	signature, err := a.key.Sign(rand.Reader, message, options)
	return seal.Assertion{AuthenticatorData: data, ClientDataJSON: clientData, Credential: a.ID, Signature: signature}, err
}

// Sign returns the envelope of payload, signed by a as its key says.
func (a *Authenticator) Sign(t seal.PayloadType, payload []byte) ([]byte, error) {
	key, err := a.Key("")
	if err != nil {
		return nil, err
	}
	assertion, err := a.Assert(seal.Challenge(t, payload))
	if err != nil {
		return nil, err
	}
	raw, err := assertion.Normal(key)
	if err != nil {
		return nil, fmt.Errorf("softkey: %w", err)
	}
	return seal.Assemble(t, payload, map[seal.KeyID][]byte{key.ID: raw})
}
