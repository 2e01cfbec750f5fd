package softkey

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/base64"
	"math/big"

	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// Case is an assertion that a verifier accepts or refuses.
type Case struct {
	Name string
	// Want is a part of the reason for refusing it; empty: it is accepted.
	Want string
	// Stricter says that the WebAuthn standard lets a verifier accept it.
	Stricter bool
	ES256    bool                            // of ES256 keys only
	Allow    func(*seal.Credential)          // changes the key
	Lie      func(a *Authenticator)          // changes the statement
	Edit     func(*seal.Assertion) error     // changes what was signed
	Bytes    func(challenge [32]byte) []byte // the client data, as text
}

// Cases returns honest assertions and one of each way to lie.
func Cases() []Case {
	synced := func(c *seal.Credential) { c.Synced = true }
	flags := func(f byte) func(*Authenticator) { return func(a *Authenticator) { a.Flags = f } }
	origin := func(o string) func(*Authenticator) { return func(a *Authenticator) { a.Origin = o } }
	more := func(name string, v any) func(*Authenticator) {
		return func(a *Authenticator) { a.More = map[string]any{name: v} }
	}
	return []Case{
		{Name: "honest"},
		{Name: "no crossOrigin", Lie: func(a *Authenticator) { a.CrossOrigin = nil }},
		{Name: "a member that Chromium adds", Lie: more("other_keys_can_be_added_here", "do not compare clientDataJSON against a template. See https://goo.gl/yabPex")},
		{Name: "synced, allowed", Allow: synced, Lie: flags(0x0d)},
		{Name: "synced and backed up, allowed", Allow: synced, Lie: flags(0x1d)},
		{Name: "client data with white space", Bytes: func(c [32]byte) []byte { return append([]byte("{ "), text(c, "", "")[1:]...) }},

		{Name: "the type of a registration", Want: "want webauthn.get", Lie: func(a *Authenticator) { a.Type = "webauthn.create" }},
		{Name: "another challenge", Want: "another challenge", Lie: func(a *Authenticator) { a.Challenge = &[32]byte{1} }},
		{Name: "an empty challenge", Want: "another challenge", Bytes: func([32]byte) []byte {
			return []byte(`{"type":"webauthn.get","challenge":"","origin":"` + Origin + `"}`)
		}},
		{Name: "another origin", Want: "passkey is not for origin", Lie: origin("https://evil.example")},
		{Name: "another port", Want: "passkey is not for origin", Lie: origin("http://sign.bailiwick.localhost:8472")},
		{Name: "another scheme", Want: "passkey is not for origin", Lie: origin("https://sign.bailiwick.localhost:8471")},
		{Name: "a name within the relying party", Want: "passkey is not for origin", Lie: origin("http://x.sign.bailiwick.localhost:8471")},
		{Name: "no origin", Want: "passkey is not for origin", Lie: origin("")},
		{Name: "in a frame", Want: "frame of another origin", Lie: func(a *Authenticator) { a.CrossOrigin = true }},
		{Name: "crossOrigin as text", Want: "frame of another origin", Lie: func(a *Authenticator) { a.CrossOrigin = "false" }},
		{Name: "a top origin", Want: "frame of another origin", Lie: more("topOrigin", "https://evil.example")},
		{Name: "another relying party", Want: "another relying party", Lie: func(a *Authenticator) { a.RPID = "bailiwick.localhost" }},
		{Name: "localhost as the relying party", Want: "another relying party", Lie: func(a *Authenticator) { a.RPID = "localhost" }},
		{Name: "without presence", Want: "not present", Lie: flags(0x04)},
		{Name: "without verification", Want: "not verified", Lie: flags(0x01)},
		{Name: "synced", Want: "may be copied", Lie: flags(0x0d)},
		{Name: "synced and backed up", Want: "may be copied", Lie: flags(0x1d)},
		{Name: "not synced, and its key says so", Want: "cannot be copied", Allow: synced},
		{Name: "backed up without being eligible", Want: "backed up", Lie: flags(0x15)},
		{Name: "flags of attested data", Want: "expected", Lie: flags(0x45)},
		{Name: "flags of extensions", Want: "expected", Lie: flags(0x85)},
		{Name: "another credential", Want: "another credential", Edit: func(a *seal.Assertion) error {
			a.Credential = append([]byte{a.Credential[0] ^ 1}, a.Credential[1:]...)
			return nil
		}},
		{Name: "client data that is not an object", Want: "not a JSON object", Bytes: func([32]byte) []byte { return []byte(`[]`) }},
		{Name: "client data with something behind it", Want: "after the JSON value", Bytes: func(c [32]byte) []byte { return append(text(c, "", ""), "{}"...) }},

		{Name: "a reserved flag", Want: "expected", Stricter: true, Lie: flags(0x07)},
		{Name: "two origins", Want: "duplicate", Stricter: true, Bytes: func(c [32]byte) []byte { return text(c, `"origin":"https://evil.example",`, "") }},
		{Name: "a member in capitals", Want: "want webauthn.get", Stricter: true, Bytes: func(c [32]byte) []byte {
			return []byte(`{"TYPE":"webauthn.get","challenge":"` + base64.RawURLEncoding.EncodeToString(c[:]) + `","origin":"` + Origin + `"}`)
		}},
		{Name: "large client data", Want: "client data of", Stricter: true, Lie: more("x", string(make([]byte, 400)))}, // each byte as \u0000
		{Name: "the high S", Want: "low S", Stricter: true, ES256: true, Edit: highS},
	}
}

// text is client data as browsers write it, with further members.
func text(challenge [32]byte, before, after string) []byte {
	return []byte(`{` + before + `"type":"webauthn.get","challenge":"` + base64.RawURLEncoding.EncodeToString(challenge[:]) + `","origin":"` + Origin + `","crossOrigin":false` + after + `}`)
}

// highS replaces a signature by the equivalent one with the high S.
func highS(a *seal.Assertion) error {
	var v struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(a.Signature, &v); err != nil {
		return err
	}
	n := elliptic.P256().Params().N
	if high := new(big.Int).Sub(n, v.S); high.Cmp(v.S) > 0 {
		v.S = high
	}
	var err error
	a.Signature, err = asn1.Marshal(v)
	return err
}

// Made is a case with its key and its assertion, whose signature has the low S unless the
// case is about it.
type Made struct {
	Case
	Key       seal.Key
	SPKI      []byte
	Assertion seal.Assertion
}

// Make makes the assertion of c about message, by a new credential.
func (c Case) Make(ed bool, message []byte) (m Made, err error) {
	a, err := New(ed)
	if err != nil {
		return m, err
	}
	credential := a.Credential()
	if c.Allow != nil {
		c.Allow(&credential)
	}
	m.Case = c
	if m.SPKI, err = a.SPKI(); err != nil {
		return m, err
	}
	if m.Key, err = seal.NewPasskey("ann", m.SPKI, credential); err != nil {
		return m, err
	}
	challenge := sha256.Sum256(message)
	if c.Lie != nil {
		c.Lie(a)
	}
	if c.Bytes != nil {
		a.ClientData = c.Bytes(challenge)
	}
	if m.Assertion, err = a.Assert(challenge); err != nil {
		return m, err
	}
	if _, es := a.key.(*ecdsa.PrivateKey); es {
		m.Assertion.Signature, err = lowS(m.Assertion.Signature)
	}
	if err == nil && c.Edit != nil {
		err = c.Edit(&m.Assertion)
	}
	return m, err
}

func lowS(signature []byte) ([]byte, error) {
	var v struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(signature, &v); err != nil {
		return nil, err
	}
	if low := new(big.Int).Sub(elliptic.P256().Params().N, v.S); low.Cmp(v.S) < 0 {
		v.S = low
	}
	return asn1.Marshal(v)
}
