package api

import (
	"fmt"
	"regexp"
	"time"
)

// PendingID identifies a record that waits for signatures: "l-" and 12 characters of a-z
// and 2-7.
type PendingID string

var pendingIDPattern = regexp.MustCompile(`^l-[a-z2-7]{12}$`)

// UnmarshalText accepts only a valid id.
func (id *PendingID) UnmarshalText(b []byte) error {
	if !pendingIDPattern.Match(b) {
		return fmt.Errorf("pending decision id %.40q: want l- and 12 of a-z 2-7", b)
	}
	*id = PendingID(b)
	return nil
}

// PendingRequest submits a decision for signature. The service completes the record: v,
// service, number, previous, at and nonce are empty.
type PendingRequest struct {
	Record OperatorRecord `json:"record"`
	// Content is the encrypted value of a record that sets a secret.
	Content []byte `json:"content,omitempty"`
}

// PendingState is the state of a pending decision.
type PendingState string

// The states of a pending decision.
const (
	PendingOpen     PendingState = "open"     // waits for signatures
	PendingRecorded PendingState = "recorded" // in force
	PendingRefused  PendingState = "refused"  // signed, but it could not come into force
	PendingStale    PendingState = "stale"    // another record came first
)

// PendingDecision is a decision that waits for signatures, before anybody signed it. The
// service keeps it in memory, for OperatorRecordMaxAge.
type PendingDecision struct {
	ID      PendingID    `json:"id"`
	State   PendingState `json:"state"`
	By      Principal    `json:"by"` // who submitted it
	At      time.Time    `json:"at"`
	Expires time.Time    `json:"expires"`
	// Payload is exactly what is signed: the canonical JSON of Record.
	Payload []byte         `json:"payload"`
	Record  OperatorRecord `json:"record"`
	// Challenge is what a passkey signs: the SHA-256 of the DSSE pre-authentication
	// encoding of Payload.
	Challenge []byte `json:"challenge"`
	// Text says in plain words what Record decides, all of an action included.
	Text string `json:"text"`
	// Passkeys are the passkeys in force, with which Record can be signed.
	Passkeys  []PasskeyInfo    `json:"passkeys"`
	Signed    []string         `json:"signed"`    // ids of the keys that signed
	Threshold int              `json:"threshold"` // how many have to
	Receipt   *OperatorReceipt `json:"receipt,omitempty"`
	Refusal   string           `json:"refusal,omitempty"` // why it could not come into force
}

// PasskeyInfo describes a passkey of the operators.
type PasskeyInfo struct {
	Key        string   `json:"key"` // id
	Name       string   `json:"name,omitempty"`
	Credential []byte   `json:"credential"` // id
	RPID       string   `json:"rpId"`
	Origins    []string `json:"origins"` // of the pages that may ask
}

// Assertion is a signature by a passkey, as a browser returns it.
type Assertion struct {
	AuthenticatorData []byte `json:"authenticatorData"`
	ClientDataJSON    []byte `json:"clientDataJSON"`
	Credential        []byte `json:"credentialId"`
	Signature         []byte `json:"signature"`
}

// PendingSignature signs a pending decision: one of an assertion and an envelope.
type PendingSignature struct {
	Assertion *Assertion `json:"assertion,omitempty"`
	Envelope  []byte     `json:"envelope,omitempty"` // as bailiwick-deploy operator sign writes it
}
