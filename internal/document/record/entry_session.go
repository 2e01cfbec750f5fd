package record

import "fmt"

// SessionOpened is the detail of KindSessionOpened. The entry's principal is the person,
// and everything that the session needs after a restart of the service is in it.
type SessionOpened struct {
	Channel    string   `json:"channel"`              // where alone it is valid: tls, or unix:UID
	Credential string   `json:"credential,omitempty"` // digest of what was presented, which is presented once
	Ends       string   `json:"ends"`                 // RFC 3339
	From       string   `json:"from,omitempty"`       // address of the caller
	Groups     []string `json:"groups,omitempty"`     // of the person at the issuer: those that the catalog names
	Handle     string   `json:"handle"`               // digest of the handle, which is random
	Issuer     string   `json:"issuer,omitempty"`     // of via oidc
	Key        string   `json:"key,omitempty"`        // of via passkey
	Session    string   `json:"session"`              // id
	Subject    string   `json:"subject,omitempty"`    // of the issuer
	Via        string   `json:"via"`                  // oidc or passkey
}

func (d SessionOpened) describe(e *Entry) string {
	s := fmt.Sprintf("%s logged in by %s: session %s until %s", e.caller(), Word(d.Via), Word(d.Session), Word(d.Ends))
	switch {
	case d.Key != "":
		s += ", with passkey " + Word(d.Key)
	case d.Issuer != "":
		s += fmt.Sprintf(", as %s of %s", Quote(d.Subject), Quote(d.Issuer))
	}
	if d.From != "" {
		s += ", from " + Word(d.From)
	}
	return s + withWords(", in groups ", d.Groups)
}

// SessionEnded is the detail of KindSessionEnded. The entry has a principal if somebody
// ended the session.
type SessionEnded struct {
	Of      string `json:"of"` // whose session it was
	Session string `json:"session"`
	Why     string `json:"why"` // logout, idle, expired, replaced or mapping
}

func (d SessionEnded) describe(e *Entry) string {
	s := fmt.Sprintf("session %s of %s ended: %s", Word(d.Session), Word(d.Of), Word(d.Why))
	if e.Principal != "" {
		s = fmt.Sprintf("%s ended session %s of %s: %s", e.caller(), Word(d.Session), Word(d.Of), Word(d.Why))
	}
	return s
}
