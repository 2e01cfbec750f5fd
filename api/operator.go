package api

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// OperatorVerb is a kind of operator decision. The set is closed.
type OperatorVerb string

// The verbs. Each is a request that the operator's key signs (R-B9).
const (
	VerbPrincipalAdd    OperatorVerb = "principal.add"    // adds Principal, with OAuth if it uses tokens of another issuer
	VerbPrincipalRemove OperatorVerb = "principal.remove" // removes Principal: all its tokens end, another issuer's too, and its ceiling is observe
	VerbTokenCreate     OperatorVerb = "token.create"     // creates Token for Principal
	VerbTokenRotate     OperatorVerb = "token.rotate"     // creates Token for Principal and ends its token Replaces
	VerbTokenRevoke     OperatorVerb = "token.revoke"     // ends Principal's token Replaces
	VerbCeilingSet      OperatorVerb = "ceiling.set"      // sets Principal's Ceiling
	VerbStopLift        OperatorVerb = "stop.lift"        // lifts Stop
	VerbAnchorLost      OperatorVerb = "anchor.lost"      // names Anchor as lost in the state that Found identifies
	VerbSecretSet       OperatorVerb = "secret.set"       // makes Content the encrypted value of file:Secret
	VerbSecretRemove    OperatorVerb = "secret.remove"    // removes the value of file:Secret
	VerbApprove         OperatorVerb = "approval.approve" // Principal approves the ToolAction of Approval, whose digest is Content
	VerbDeny            OperatorVerb = "approval.deny"    // Principal denies it
	VerbOperatorSet     OperatorVerb = "operators.set"    // puts the operator keys of Set in force
)

// OperatorVerbs lists them all.
func OperatorVerbs() []OperatorVerb {
	return []OperatorVerb{VerbPrincipalAdd, VerbPrincipalRemove, VerbTokenCreate, VerbTokenRotate, VerbTokenRevoke, VerbCeilingSet, VerbStopLift, VerbAnchorLost, VerbSecretSet, VerbSecretRemove, VerbApprove, VerbDeny, VerbOperatorSet}
}

// OperatorRecord is one decision of an operator. Its canonical JSON is the payload
// of a DSSE envelope signed by the operator's key. Number and Previous chain the
// records of one service, so that none can be left out, replayed or used at another
// service.
type OperatorRecord struct {
	V         int           `json:"v"`                  // format of this document: 1
	Service   string        `json:"service"`            // key id of its service
	Number    uint64        `json:"number"`             // its place in the chain, from 1
	Previous  Digest        `json:"previous,omitempty"` // digest of the previous payload; absent in the first
	At        time.Time     `json:"at"`                 // when it was signed; the service refuses it after OperatorRecordMaxAge
	Verb      OperatorVerb  `json:"verb"`
	Principal Principal     `json:"principal,omitempty"`
	Ceiling   *Tier         `json:"ceiling,omitempty"`
	Token     *TokenRecord  `json:"token,omitempty"`
	Replaces  TokenID       `json:"replaces,omitempty"`
	Stop      string        `json:"stop,omitempty"` // id of a stop
	Anchor    string        `json:"anchor,omitempty"`
	Found     Digest        `json:"found,omitempty"` // of all that is wrong with Anchor, as AnchorFinding names it
	OAuth     *OAuthSubject `json:"oauth,omitempty"`
	Secret    Name          `json:"secret,omitempty"`
	Content   Digest        `json:"content,omitempty"` // of the encrypted value, or of the ToolAction
	Approval  ApprovalID    `json:"approval,omitempty"`
	Set       *OperatorSet  `json:"set,omitempty"`
	// Nonce is set in a record that is submitted before it is signed: 32 hexadecimal digits.
	// A passkey signs only such records.
	Nonce  string `json:"nonce,omitempty"`
	Reason string `json:"reason,omitempty"` // for people
}

// OperatorSet is a set of operator keys or of deploy keys. It replaces the one before, which
// signs the record that it is in. A key that it does not list signs nothing more.
type OperatorSet struct {
	Number   uint64          `json:"number"`   // operators.json, or trust.json, is set 1
	Previous Digest          `json:"previous"` // of the set before, of its canonical JSON
	Root     json.RawMessage `json:"root"`     // the keys and the threshold, in the form of operators.json
}

// MaxOperatorSet bounds the root of a set, in bytes.
const MaxOperatorSet = 48 << 10

// OperatorKeys are the operator keys of a service.
type OperatorKeys struct {
	Set       uint64          `json:"set"`       // number of the set in force; 1 is operators.json
	Digest    Digest          `json:"digest"`    // of it
	Threshold int             `json:"threshold"` // how many of its keys sign a decision
	Root      json.RawMessage `json:"root"`      // the set, in the form of operators.json
	Keys      []OperatorKey   `json:"keys"`      // of all sets, in the order of their addition
}

// OperatorKey is an operator key of a service, in force or retired.
type OperatorKey struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"` // for people only
	// Principal owns the key; empty in a set from before keys had principals.
	Principal Principal          `json:"principal,omitempty"`
	Added     *OperatorKeyChange `json:"added,omitempty"`   // nil: it is in operators.json
	Retired   *OperatorKeyChange `json:"retired,omitempty"` // nil: it is in force
}

// OperatorKeyChange is the set that added or retired a key, and the decision that put it
// in force.
type OperatorKeyChange struct {
	Set      uint64    `json:"set"`
	Decision uint64    `json:"decision"` // number of the operator record
	At       time.Time `json:"at"`       // when it was signed
}

// OperatorRecordMaxAge is how long after signing a record is accepted.
const OperatorRecordMaxAge = 10 * time.Minute

// TokenID identifies a token and is not secret: "t-" and 12 characters of a-z and
// 2-7.
type TokenID string

var tokenIDPattern = regexp.MustCompile(`^t-[a-z2-7]{12}$`)

// UnmarshalText accepts only a valid id.
func (id *TokenID) UnmarshalText(b []byte) error {
	if !tokenIDPattern.Match(b) {
		return fmt.Errorf("token id %.40q: want t- and 12 of a-z 2-7", b)
	}
	*id = TokenID(b)
	return nil
}

// TokenRecord is what is stored of a token, never the token itself.
type TokenRecord struct {
	ID        TokenID   `json:"id"`
	Hash      Digest    `json:"hash"` // of the token's text
	ExpiresAt time.Time `json:"expiresAt"`
}

// MaxTokenLifetime bounds the lifetime of a token.
const MaxTokenLifetime = 2 * 366 * 24 * time.Hour

// OAuthSubject is the subject of another issuer's tokens.
type OAuthSubject struct {
	Issuer  string `json:"issuer"`
	Subject string `json:"subject"`
}

// OperatorHead is the predecessor that the next record has to name.
type OperatorHead struct {
	Service string `json:"service"` // key id
	Number  uint64 `json:"number"`  // of the newest record; 0 before the first
	Digest  Digest `json:"digest,omitempty"`
}

// OperatorRequest submits a signed record.
type OperatorRequest struct {
	Envelope []byte `json:"envelope"` // DSSE, canonical JSON
	// Content is the encrypted value of a record that sets a secret.
	Content []byte `json:"content,omitempty"`
}

// AnchorFinding is what is wrong with an anchor, and what a decision about it has to
// name.
type AnchorFinding struct {
	Name     string       `json:"name"`
	Found    Digest       `json:"found,omitempty"`    // identifies all that is wrong; empty: it agrees with the log
	Message  string       `json:"message,omitempty"`  // the worst
	Findings []string     `json:"findings,omitempty"` // at most 20, in no order
	Head     OperatorHead `json:"head"`
}

// OperatorReceipt confirms that a record is in force.
type OperatorReceipt struct {
	Number     uint64 `json:"number"`
	AuditEntry uint64 `json:"auditEntry"`
}

// Decision is an operator record that is in force, with what proves it.
type Decision struct {
	OperatorReceipt
	Record OperatorRecord `json:"record"`
	// Payload is exactly what was signed: the canonical JSON of Record.
	Payload []byte `json:"payload"`
	Digest  Digest `json:"digest"` // of Payload
	// Challenge is what a passkey signed; see PendingDecision.
	Challenge []byte `json:"challenge"`
	// Text says in plain words what Record decides, all of an action included. It is not
	// signed.
	Text       string              `json:"text"`
	Set        uint64              `json:"set"` // of operator keys, that was in force
	Threshold  int                 `json:"threshold"`
	Signatures []DecisionSignature `json:"signatures"` // that were verified
}

// DecisionSignature is a signature of a decision.
type DecisionSignature struct {
	Key  string `json:"key"` // id
	Name string `json:"name,omitempty"`
	// Assertion is the signature of a passkey; nil: a key of a file signed.
	Assertion *Assertion `json:"assertion,omitempty"`
}

// PrincipalInfo describes a principal.
type PrincipalInfo struct {
	Principal Principal     `json:"principal"`
	Known     bool          `json:"known"`   // an operator added it; others come from the operating system or from grants
	Ceiling   Tier          `json:"ceiling"` // consented; observe unless an operator raised it
	Grants    []Name        `json:"grants"`  // of the catalog's revision in force
	Tokens    []TokenInfo   `json:"tokens"`
	OAuth     *OAuthSubject `json:"oauth,omitempty"`
	Stops     []string      `json:"stops"` // ids of the stops that cover it
}

// TokenState is the state of a token.
type TokenState string

// The states of a token.
const (
	TokenActive  TokenState = "active"
	TokenExpired TokenState = "expired"
	TokenRevoked TokenState = "revoked"
	TokenRotated TokenState = "rotated" // replaced by another
)

// TokenInfo describes a token.
type TokenInfo struct {
	ID        TokenID    `json:"id"`
	Principal Principal  `json:"principal"`
	State     TokenState `json:"state"`
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt time.Time  `json:"expiresAt"`
	EndedAt   *time.Time `json:"endedAt,omitempty"` // revoked or rotated
}

// StopScope is what a stop covers.
type StopScope string

// The scopes of a stop.
const (
	StopAll       StopScope = "all"
	StopPrincipal StopScope = "principal"
	StopTarget    StopScope = "target"
	StopRun       StopScope = "run"
	StopDispatch  StopScope = "dispatch"
	StopSchedule  StopScope = "schedule"
)

// StopRequest engages an emergency stop (R-T10).
type StopRequest struct {
	Scope  StopScope `json:"scope"`
	Name   string    `json:"name,omitempty"` // of the principal, target, run, dispatch or schedule
	Reason string    `json:"reason,omitempty"`
}

// Check validates the scope and its name.
func (r StopRequest) Check() (err error) {
	if len(r.Reason) > MaxReason || !utf8.ValidString(r.Reason) {
		return fmt.Errorf("stop: reason: want text of at most %d bytes", MaxReason)
	}
	switch r.Scope {
	case StopAll:
		if r.Name != "" {
			err = fmt.Errorf("stop: scope all has no name, got %.80q", r.Name)
		}
	case StopPrincipal:
		_, err = ParsePrincipal(r.Name)
	case StopTarget, StopSchedule:
		_, err = ParseName(r.Name)
	case StopRun:
		_, err = ParseRunID(r.Name)
	case StopDispatch:
		_, err = ParseDispatchID(r.Name)
	default:
		err = fmt.Errorf("stop: scope %.80q: want all, principal, target, run, dispatch or schedule", string(r.Scope))
	}
	return err
}

// Stop is an emergency stop. It is in force until an operator lifts it.
type Stop struct {
	ID        string     `json:"id"` // s-NUMBER
	Scope     StopScope  `json:"scope"`
	Name      string     `json:"name,omitempty"`
	Reason    string     `json:"reason,omitempty"`
	By        Principal  `json:"by"`
	At        time.Time  `json:"at"`
	LiftedAt  *time.Time `json:"liftedAt,omitempty"`
	Cancelled int        `json:"cancelled"` // number of dispatches cancelled when it was engaged
}

// TokenPrefix begins every token, so that secret scanners recognize one.
const TokenPrefix = "bwt_"

// CheckToken checks the form of a token: the prefix and 64 lower-case hexadecimal
// digits, 256 random bits. The error never contains the token.
func CheckToken(s string) error {
	h, ok := strings.CutPrefix(s, TokenPrefix)
	if !ok || len(h) != 64 || strings.Trim(h, "0123456789abcdef") != "" {
		return fmt.Errorf("token: want %s and 64 lower-case hexadecimal digits", TokenPrefix)
	}
	return nil
}

// TokenText returns the text of a token.
func TokenText(random [32]byte) string { return fmt.Sprintf("%s%x", TokenPrefix, random) }

// Vote reports whether r is a vote of a person about an approval.
func (r *OperatorRecord) Vote() bool { return r.Verb == VerbApprove || r.Verb == VerbDeny }

// Known reports whether v is one of the verbs.
func (v OperatorVerb) Known() bool { return slices.Contains(OperatorVerbs(), v) }

// StopSubject is what Stop.Covers checks: one dispatch or request.
type StopSubject struct {
	Principal Principal // the caller
	Target    Name
	Run       RunID // empty if it belongs to no run
	Dispatch  DispatchID
}

// Covers reports whether s covers w, whether or not s is lifted.
func (s Stop) Covers(w StopSubject) bool {
	switch s.Scope {
	case StopAll:
		return true
	case StopPrincipal:
		return s.Name == string(w.Principal)
	case StopTarget:
		return s.Name == string(w.Target)
	case StopRun:
		return s.Name == string(w.Run)
	case StopDispatch:
		return s.Name == string(w.Dispatch)
	case StopSchedule:
		return IsScheduleRun(Name(s.Name), w.Run)
	}
	return true // an unknown scope covers everything
}
