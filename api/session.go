package api

import "time"

// The headers by which a request says more about its caller than the socket
// does. Both only take away: a handle stands for a token that the service has
// verified, and a ceiling lowers.
const (
	SessionHeader = "Bailiwick-Session"
	CeilingHeader = "Bailiwick-Ceiling"
)

// SessionRequest exchanges a token for a handle. It is the only request that
// carries a token.
type SessionRequest struct {
	Token string `json:"token"`
}

// Session is what a token was exchanged for. The handle is good for requests of
// the process that got it, until it expires or the token ends.
type Session struct {
	Handle    string    `json:"handle"`
	Principal Principal `json:"principal"`
	Ceiling   Tier      `json:"ceiling"` // consented
	ExpiresAt time.Time `json:"expiresAt"`
}

// Who is what the service takes a caller for.
type Who struct {
	Principal Principal `json:"principal"`
	Ceiling   Tier      `json:"ceiling"` // consented, lowered by what the request declared
	Consent   Tier      `json:"consent"` // what an operator consented to
}

// Refused tells the service of a call that was refused before it became a
// request, so that the log has it (R-A3).
type Refused struct {
	Operation string `json:"operation"` // what was called
	Message   string `json:"message"`
}

// RefusedReceipt says where the log has it.
type RefusedReceipt struct {
	AuditEntry uint64 `json:"auditEntry"`
}
