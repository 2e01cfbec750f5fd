package api

import "time"

// LoginMethod is how a person logs in.
type LoginMethod string

// The methods.
const (
	LoginOIDC    LoginMethod = "oidc"    // an ID token of the team's identity provider
	LoginPasskey LoginMethod = "passkey" // an assertion of an operator's passkey
)

// LoginMethods says how people log in at a service.
type LoginMethods struct {
	OIDC     *OIDCProvider `json:"oidc,omitempty"`
	Passkeys bool          `json:"passkeys,omitempty"` // a person has one
	Tokens   bool          `json:"tokens"`             // always: POST /v1/session
}

// OIDCProvider is the identity provider whose ID tokens a service accepts.
type OIDCProvider struct {
	Issuer string   `json:"issuer"`
	Client string   `json:"client"` // client id, the audience of the ID token
	Scopes []string `json:"scopes"`
}

// OIDCLogin presents an ID token, which opens one session.
type OIDCLogin struct {
	IDToken string `json:"idToken"`
	Nonce   string `json:"nonce,omitempty"` // that the login began with; empty in the device flow
}

// PasskeyBegin asks for a challenge to the passkeys of the page with an origin, such as
// https://bailiwick.example.
type PasskeyBegin struct {
	Origin string `json:"origin"`
}

// PasskeyChallenge is what a passkey signs to log in. It is good for two minutes and one
// session.
type PasskeyChallenge struct {
	ID        string        `json:"id"`
	Challenge []byte        `json:"challenge"` // 32 bytes
	Passkeys  []PasskeyInfo `json:"passkeys"`  // that may answer
	ExpiresAt time.Time     `json:"expiresAt"`
}

// PasskeyLogin answers a challenge.
type PasskeyLogin struct {
	ID        string    `json:"id"`
	Assertion Assertion `json:"assertion"`
}

// PersonSession is a session of a person, to send in SessionHeader. It is valid over what
// it was opened over alone: TLS, or the socket for the same account.
type PersonSession struct {
	Session     string    `json:"session"` // the handle, a secret
	ID          string    `json:"id"`
	Principal   Principal `json:"principal"`
	ExpiresAt   time.Time `json:"expiresAt"`   // at the latest
	IdleSeconds float64   `json:"idleSeconds"` // it ends after this long without a request
}

// SessionInfo describes an open session of a person.
type SessionInfo struct {
	ID        string      `json:"id"`
	Principal Principal   `json:"principal"`
	Via       LoginMethod `json:"via"`
	Groups    []string    `json:"groups,omitempty"`
	From      string      `json:"from,omitempty"` // address
	Current   bool        `json:"current,omitempty"`
	OpenedAt  time.Time   `json:"openedAt"`
	UsedAt    time.Time   `json:"usedAt"`
	ExpiresAt time.Time   `json:"expiresAt"`
}
