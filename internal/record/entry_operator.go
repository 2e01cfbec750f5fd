package record

import (
	"fmt"
	"strings"
)

// OperatorDecision is the detail of KindOperatorRecorded; RefRecord names what
// was signed, and the principal of the entry is who handed it in. What the
// verb has no use for is empty.
type OperatorDecision struct {
	Ceiling   string   `json:"ceiling,omitempty"`
	ExpiresAt string   `json:"expiresAt,omitempty"` // of the token
	Issuer    string   `json:"issuer,omitempty"`    // of tokens that the principal comes with
	Keys      []string `json:"keys"`                // whose signatures were verified
	Number    int64    `json:"number"`              // in the chain of records, from 1
	Reason    string   `json:"reason,omitempty"`
	Replaces  string   `json:"replaces,omitempty"` // id of the token that ends
	Stop      string   `json:"stop,omitempty"`     // id of the stop that is lifted
	Subject   string   `json:"subject,omitempty"`  // the principal that it is about
	Token     string   `json:"token,omitempty"`    // id of the token that begins
	Verb      string   `json:"verb"`
}

func (d OperatorDecision) bound(b *bounds) Detail {
	d.Ceiling, d.ExpiresAt, d.Issuer, d.Keys, d.Number = b.cut(d.Ceiling), b.cut(d.ExpiresAt), b.cut(d.Issuer), b.list(d.Keys), b.number(d.Number)
	d.Reason, d.Replaces, d.Stop, d.Subject = b.cut(d.Reason), b.cut(d.Replaces), b.cut(d.Stop), b.cut(d.Subject)
	d.Token, d.Verb = b.cut(d.Token), b.cut(d.Verb)
	return d
}

func (d OperatorDecision) say(e *Entry) string {
	return fmt.Sprintf("operator record %d: %s, signed by %s, handed in by %s", d.Number, d.what(), words(d.Keys), e.who()) +
		optional(": %s", quoteUnlessEmpty(d.Reason))
}

// what says what was decided. The verbs are those of api.OperatorVerbs.
func (d OperatorDecision) what() string {
	switch d.Verb {
	case "principal.add":
		return fmt.Sprintf("principal %s is known", word(d.Subject)) + optional(", by tokens of %s", quoteUnlessEmpty(d.Issuer))
	case "principal.remove":
		return fmt.Sprintf("principal %s is removed, with its tokens and its ceiling", word(d.Subject))
	case "token.create":
		return fmt.Sprintf("token %s is %s until %s", word(d.Token), word(d.Subject), word(d.ExpiresAt))
	case "token.rotate":
		return fmt.Sprintf("token %s is %s until %s and ends token %s", word(d.Token), word(d.Subject), word(d.ExpiresAt), word(d.Replaces))
	case "token.revoke":
		return fmt.Sprintf("token %s of %s ends", word(d.Replaces), word(d.Subject))
	case "ceiling.set":
		return fmt.Sprintf("%s may go up to %s", word(d.Subject), word(d.Ceiling))
	case "stop.lift":
		return fmt.Sprintf("stop %s is lifted", word(d.Stop))
	}
	return "verb " + word(d.Verb)
}

// StopEngaged is the detail of KindStopEngaged. The entry is of whoever
// engaged it. What was in flight has an entry of its own when it has ended.
type StopEngaged struct {
	Name   string `json:"name,omitempty"`   // which principal, target or dispatch
	Reason string `json:"reason,omitempty"` // for people
	Scope  string `json:"scope"`            // an api.StopScope
	Stop   string `json:"stop"`             // its id
}

func (d StopEngaged) bound(b *bounds) Detail {
	d.Name, d.Reason, d.Scope, d.Stop = b.cut(d.Name), b.cut(d.Reason), b.cut(d.Scope), b.cut(d.Stop)
	return d
}

func (d StopEngaged) say(e *Entry) string {
	holds := strings.TrimSpace(word(d.Scope) + " " + wordUnlessEmpty(d.Name))
	return fmt.Sprintf("%s engaged stop %s, which holds %s and cancels what of it is in flight", e.who(), word(d.Stop), holds) +
		optional(": %s", quoteUnlessEmpty(d.Reason))
}
