// Command webauthn says of each assertion on standard input whether go-webauthn accepts
// it: the oracle that the end-to-end tests compare the service and bailiwick-verify with.
// It is a module of its own, so nothing of it is a dependency of the programs.
package main

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/protocol/webauthncbor"
	"github.com/go-webauthn/webauthn/protocol/webauthncose"
	"github.com/go-webauthn/webauthn/webauthn"
)

// question is one assertion, and the credential that it should be of.
type question struct {
	Credential, SPKI, Challenge []byte
	RPID                        string
	Origins                     []string
	Synced                      bool
	Count                       uint32 // of the assertion before

	// The assertion.
	By, AuthenticatorData, ClientDataJSON, Signature []byte
}

// answer is what go-webauthn says.
type answer struct {
	Accepted, Cloned bool
	Reason           string
}

func main() {
	var questions []question
	if err := json.NewDecoder(os.Stdin).Decode(&questions); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	answers := make([]answer, len(questions))
	for i, q := range questions {
		c, err := q.ask()
		if answers[i].Accepted = err == nil; err != nil {
			answers[i].Reason = err.Error()
			if e := (*protocol.Error)(nil); errors.As(err, &e) {
				answers[i].Reason += ": " + e.DevInfo
			}
			continue
		}
		answers[i].Cloned = c.Authenticator.CloneWarning
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type user struct{ credential webauthn.Credential }

func (user) WebAuthnID() []byte                           { return []byte("operator") }
func (user) WebAuthnName() string                         { return "operator" }
func (user) WebAuthnDisplayName() string                  { return "operator" }
func (u user) WebAuthnCredentials() []webauthn.Credential { return []webauthn.Credential{u.credential} }

func (q question) ask() (*webauthn.Credential, error) {
	public, err := cose(q.SPKI)
	if err != nil {
		return nil, err
	}
	w, err := webauthn.New(&webauthn.Config{RPID: q.RPID, RPDisplayName: "Bailiwick", RPOrigins: q.Origins})
	if err != nil {
		return nil, err
	}
	url := base64.RawURLEncoding.EncodeToString
	response, err := json.Marshal(map[string]any{
		"id": url(q.By), "rawId": url(q.By), "type": "public-key",
		"response": map[string]string{"authenticatorData": url(q.AuthenticatorData), "clientDataJSON": url(q.ClientDataJSON), "signature": url(q.Signature)},
	})
	if err != nil {
		return nil, err
	}
	parsed, err := protocol.ParseCredentialRequestResponseBytes(response)
	if err != nil {
		return nil, err
	}
	u := user{webauthn.Credential{
		ID: q.Credential, PublicKey: public, Flags: webauthn.CredentialFlags{BackupEligible: q.Synced}, Authenticator: webauthn.Authenticator{SignCount: q.Count},
	}}
	return w.ValidateLogin(u, webauthn.SessionData{
		Challenge: url(q.Challenge), RelyingPartyID: q.RPID, UserID: u.WebAuthnID(), AllowedCredentialIDs: [][]byte{q.Credential}, UserVerification: protocol.VerificationRequired,
	}, parsed)
}

// cose returns a public key as authenticators encode it.
func cose(spki []byte) ([]byte, error) {
	key, err := x509.ParsePKIXPublicKey(spki)
	if err != nil {
		return nil, err
	}
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		point, err := key.Bytes()
		if err != nil {
			return nil, err
		}
		return webauthncbor.Marshal(webauthncose.EC2PublicKeyData{
			PublicKeyData: webauthncose.PublicKeyData{KeyType: int64(webauthncose.EllipticKey), Algorithm: int64(webauthncose.AlgES256)},
			Curve:         int64(webauthncose.P256), XCoord: point[1:33], YCoord: point[33:],
		})
	case ed25519.PublicKey:
		return webauthncbor.Marshal(webauthncose.OKPPublicKeyData{
			PublicKeyData: webauthncose.PublicKeyData{KeyType: int64(webauthncose.OctetKey), Algorithm: int64(webauthncose.AlgEdDSA)},
			Curve:         int64(webauthncose.Ed25519), XCoord: key,
		})
	}
	return nil, fmt.Errorf("public key of type %T", key)
}
