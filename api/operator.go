package api

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// OperatorVerb is what an operator decided. The set is closed.
type OperatorVerb string

// The verbs. Each is a request that the operator's key signs (R-B9).
const (
	VerbPrincipalAdd    OperatorVerb = "principal.add"    // makes a principal known: Principal, OAuth where it comes with tokens of another issuer
	VerbPrincipalRemove OperatorVerb = "principal.remove" // Principal: its tokens, those of another issuer too, are worth nothing from then on, and its ceiling is observe
	VerbTokenCreate     OperatorVerb = "token.create"     // Principal, Token
	VerbTokenRotate     OperatorVerb = "token.rotate"     // Principal, Token in the place of its token Replaces, which ends
	VerbTokenRevoke     OperatorVerb = "token.revoke"     // Principal, whose token Replaces ends
	VerbCeilingSet      OperatorVerb = "ceiling.set"      // Principal, Ceiling
	VerbStopLift        OperatorVerb = "stop.lift"        // Stop
)

// OperatorVerbs lists them all.
func OperatorVerbs() []OperatorVerb {
	return []OperatorVerb{VerbPrincipalAdd, VerbPrincipalRemove, VerbTokenCreate, VerbTokenRotate, VerbTokenRevoke, VerbCeilingSet, VerbStopLift}
}

// OperatorRecord is one decision of an operator, as canonical JSON the payload
// of a DSSE envelope that the operator's key signed. Number and Previous make
// the records of one service a chain, so that none can be left out, brought
// back or used at another service.
type OperatorRecord struct {
	V         int           `json:"v"`                  // format of this document: 1
	Service   string        `json:"service"`            // key id of the service that it is for
	Number    uint64        `json:"number"`             // its place in the chain, from 1
	Previous  Digest        `json:"previous,omitempty"` // of the payload before; absent in the first
	At        time.Time     `json:"at"`                 // when it was signed; the service refuses one that is older than OperatorRecordMaxAge
	Verb      OperatorVerb  `json:"verb"`
	Principal Principal     `json:"principal,omitempty"`
	Ceiling   *Tier         `json:"ceiling,omitempty"`
	Token     *TokenRecord  `json:"token,omitempty"`
	Replaces  TokenID       `json:"replaces,omitempty"`
	Stop      string        `json:"stop,omitempty"` // id of a stop
	OAuth     *OAuthSubject `json:"oauth,omitempty"`
	Reason    string        `json:"reason,omitempty"` // for people
}

// OperatorRecordMaxAge is how long after it was signed a record may arrive.
const OperatorRecordMaxAge = 10 * time.Minute

// TokenID names a token without being worth anything: "t-" and 12 characters
// of a-z and 2-7.
type TokenID string

var tokenIDPattern = regexp.MustCompile(`^t-[a-z2-7]{12}$`)

// UnmarshalText accepts only the form of an id.
func (id *TokenID) UnmarshalText(b []byte) error {
	if !tokenIDPattern.Match(b) {
		return fmt.Errorf("token id %.40q: want t- and 12 of a-z 2-7", b)
	}
	*id = TokenID(b)
	return nil
}

// TokenRecord is what is kept of a token: never the token.
type TokenRecord struct {
	ID        TokenID   `json:"id"`
	Hash      Digest    `json:"hash"` // of the token's text
	ExpiresAt time.Time `json:"expiresAt"`
}

// MaxTokenLifetime is how long a token may be good.
const MaxTokenLifetime = 2 * 366 * 24 * time.Hour

// OAuthSubject is who another issuer's tokens are about.
type OAuthSubject struct {
	Issuer  string `json:"issuer"`
	Subject string `json:"subject"`
}

// OperatorHead is what the next record has to name.
type OperatorHead struct {
	Service string `json:"service"` // key id
	Number  uint64 `json:"number"`  // of the newest record; 0 when there is none
	Digest  Digest `json:"digest,omitempty"`
}

// OperatorRequest hands in a signed record.
type OperatorRequest struct {
	Envelope []byte `json:"envelope"` // DSSE, canonical JSON
}

// OperatorReceipt says that a record is in force.
type OperatorReceipt struct {
	Number     uint64 `json:"number"`
	AuditEntry uint64 `json:"auditEntry"`
}

// PrincipalInfo is what the service knows of a principal.
type PrincipalInfo struct {
	Principal Principal     `json:"principal"`
	Known     bool          `json:"known"`   // an operator added it; others come from the operating system or from grants
	Ceiling   Tier          `json:"ceiling"` // consented; observe unless an operator raised it
	Grants    []Name        `json:"grants"`  // of the catalog's revision in force
	Tokens    []TokenInfo   `json:"tokens"`
	OAuth     *OAuthSubject `json:"oauth,omitempty"`
	Stops     []string      `json:"stops"` // ids of the stops that hold it
}

// TokenState says whether a token is good.
type TokenState string

// The states of a token.
const (
	TokenActive  TokenState = "active"
	TokenExpired TokenState = "expired"
	TokenRevoked TokenState = "revoked"
	TokenRotated TokenState = "rotated" // another took its place
)

// TokenInfo is what the service knows of a token.
type TokenInfo struct {
	ID        TokenID    `json:"id"`
	Principal Principal  `json:"principal"`
	State     TokenState `json:"state"`
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt time.Time  `json:"expiresAt"`
	EndedAt   *time.Time `json:"endedAt,omitempty"` // revoked or rotated
}

// StopScope says what a stop holds.
type StopScope string

// The scopes of a stop.
const (
	StopAll       StopScope = "all"
	StopPrincipal StopScope = "principal"
	StopTarget    StopScope = "target"
	StopRun       StopScope = "run"
	StopDispatch  StopScope = "dispatch"
)

// StopRequest engages an emergency stop (R-T10).
type StopRequest struct {
	Scope  StopScope `json:"scope"`
	Name   string    `json:"name,omitempty"` // which principal, target, run or dispatch
	Reason string    `json:"reason,omitempty"`
}

// Check refuses what is no scope, and a name where there must be none.
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
	case StopTarget:
		_, err = ParseName(r.Name)
	case StopRun:
		_, err = ParseRunID(r.Name)
	case StopDispatch:
		_, err = ParseDispatchID(r.Name)
	default:
		err = fmt.Errorf("stop: scope %.80q: want all, principal, target, run or dispatch", string(r.Scope))
	}
	return err
}

// Stop is an emergency stop. It holds until an operator lifts it.
type Stop struct {
	ID        string     `json:"id"` // s-NUMBER
	Scope     StopScope  `json:"scope"`
	Name      string     `json:"name,omitempty"`
	Reason    string     `json:"reason,omitempty"`
	By        Principal  `json:"by"`
	At        time.Time  `json:"at"`
	LiftedAt  *time.Time `json:"liftedAt,omitempty"`
	Cancelled int        `json:"cancelled"` // dispatches that were in flight when it was engaged
}

// TokenPrefix begins every token. It lets scanners for credentials know a token when they see one.
const TokenPrefix = "bwt_"

// CheckToken checks the form of a token: the prefix and 64 lower-case hexadecimal
// digits, 256 random bits. The error never holds the token.
func CheckToken(s string) error {
	h, ok := strings.CutPrefix(s, TokenPrefix)
	if !ok || len(h) != 64 || strings.Trim(h, "0123456789abcdef") != "" {
		return fmt.Errorf("token: want %s and 64 lower-case hexadecimal digits", TokenPrefix)
	}
	return nil
}

// TokenText returns the text of a token of these 32 bytes.
func TokenText(random [32]byte) string { return fmt.Sprintf("%s%x", TokenPrefix, random) }

// Known reports whether v is one of the verbs.
func (v OperatorVerb) Known() bool { return slices.Contains(OperatorVerbs(), v) }

// StopSubject is what a stop may be about.
type StopSubject struct {
	Principal Principal // who asks
	Target    Name
	Run       RunID // empty where it is no task's
	Dispatch  DispatchID
}

// Covers reports whether s is about w. It does not know whether s was lifted.
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
	}
	return true // what is not understood holds everything
}
