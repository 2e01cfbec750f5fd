package api

import (
	"encoding/json"
	"strings"
	"time"
)

// InvitationTime is how long a person can open the link of an invitation, and how long
// afterwards an operator can admit the passkey that was enrolled with it.
const InvitationTime = 24 * time.Hour

// EnrolPath is the path of the page that a link leads to. The code is in the fragment,
// which a browser sends to no server.
const EnrolPath = "/enrol"

// InvitationRequest invites a person to enrol a passkey on a device of their own.
type InvitationRequest struct {
	Principal Principal `json:"principal"`
	// Synced allows a passkey that its authenticator copies to other devices of its user.
	Synced bool `json:"synced,omitempty"`
}

// InvitationState is the state of an invitation.
type InvitationState string

// The states of an invitation.
const (
	InvitationOpen     InvitationState = "open"     // its link was not used yet
	InvitationEnrolled InvitationState = "enrolled" // a passkey waits for an operator, who admits it
	InvitationAdmitted InvitationState = "admitted" // the passkey is an operator key
)

// Invitation is a one-time link for a person. It ends with its use, its time, a newer one
// for the same person, and with the last operator key of its inviter. The link alone gives
// nothing: an operator key is what the operators sign.
type Invitation struct {
	Principal Principal       `json:"principal"`
	By        Principal       `json:"by"`
	At        time.Time       `json:"at"`
	Expires   time.Time       `json:"expires"`
	State     InvitationState `json:"state"`
	Origin    string          `json:"origin"` // of the page that enrols
	// Link is only in the answer that creates the invitation.
	Link string `json:"link,omitempty"`
	// Key is the passkey that was enrolled, in the form of operators.json, without its
	// principal.
	Key json.RawMessage `json:"key,omitempty"`
}

// EnrolRequest asks what an invitation is for, or, with an enrolment, uses it up. The code
// is the secret in its link.
type EnrolRequest struct {
	Code      string     `json:"code"`
	Enrolment *Enrolment `json:"enrolment,omitempty"`
}

// Enrolment is a new passkey, as a browser returns it without attestation. Base64 in JSON.
type Enrolment struct {
	Name              string `json:"name"` // of the passkey, for people
	AuthenticatorData []byte `json:"authenticatorData"`
	ClientDataJSON    []byte `json:"clientDataJSON"`
	Credential        []byte `json:"credentialId"`
	RPID              string `json:"rpId"`
	SPKI              []byte `json:"publicKey"` // as getPublicKey() returns it
}

// EnrolAnswer is the answer to an EnrolRequest.
type EnrolAnswer struct {
	Principal Principal `json:"principal"`
	Expires   time.Time `json:"expires"`
	RPID      string    `json:"rpId"`
	// Challenge is in the client data of the enrolment. It follows from the code.
	Challenge []byte `json:"challenge"`
	// Fingerprint identifies the passkey that was enrolled; see Fingerprint.
	Fingerprint string `json:"fingerprint,omitempty"`
}

// fingerprintDigits is how many hexadecimal digits of a key id people compare: 80 bits.
const fingerprintDigits = 20

// Fingerprint returns what people compare of an operator key: the first 80 bits of its id,
// which is a digest of the key and, of a passkey, of all that its assertions have to say.
// Groups of four digits; empty if id is not the id of a key.
func Fingerprint(id string) string {
	_, digits, _ := strings.Cut(id, ":")
	if len(digits) < fingerprintDigits {
		return ""
	}
	var groups []string
	for i := 0; i < fingerprintDigits; i += 4 {
		groups = append(groups, digits[i:i+4])
	}
	return strings.Join(groups, " ")
}
