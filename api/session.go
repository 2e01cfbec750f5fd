package api

import "time"

// The headers of a request about its caller. SessionHeader has the handle of a
// verified token; CeilingHeader can only lower the caller's ceiling.
const (
	SessionHeader = "Bailiwick-Session"
	// FromHeader has the address of the browser that the page for several people logs in for.
	// The service believes it from the account of the page alone, and only logs it.
	FromHeader    = "Bailiwick-From"
	CeilingHeader = "Bailiwick-Ceiling"
)

// SessionRequest exchanges a token for a handle. It is the only request that
// carries a token.
type SessionRequest struct {
	Token string `json:"token"`
}

// Session is the answer to a SessionRequest. The handle is valid for the process
// that got it, until it expires or the token ends.
type Session struct {
	Handle    string    `json:"handle"`
	Principal Principal `json:"principal"`
	Ceiling   Tier      `json:"ceiling"` // consented
	ExpiresAt time.Time `json:"expiresAt"`
}

// Who is the caller as the service established it.
type Who struct {
	Principal Principal `json:"principal"`
	Ceiling   Tier      `json:"ceiling"` // the consent, lowered by the ceiling that the request declared
	Consent   Tier      `json:"consent"` // the highest tier that an operator consented to

	Auth         WhoAuth  `json:"auth"`
	Operator     bool     `json:"operator,omitempty"`     // it may run the service
	Stops        []string `json:"stops,omitempty"`        // ids of the stops in force that cover its dispatches on some target
	Revision     uint64   `json:"revision,omitempty"`     // of the catalog; 0 when none has been applied
	CatalogError string   `json:"catalogError,omitempty"` // why the catalog is refused
}

// WhoAuth is how the service established a caller.
type WhoAuth string

// The ways.
const (
	AuthAccount WhoAuth = "account" // by the account at the other end of the socket
	AuthToken   WhoAuth = "token"   // by a token
	AuthSession WhoAuth = "session" // by the session of a person who logged in
)

// Refused reports a call that was refused before it became a request, for the log
// (R-A3).
type Refused struct {
	Operation string `json:"operation"` // the refused call
	Message   string `json:"message"`
}

// RefusedReceipt has the log entry of a refused call.
type RefusedReceipt struct {
	AuditEntry uint64 `json:"auditEntry"`
}
