// Package decisiontext says in plain words what an operator record decides: what people read
// before they sign it, on a terminal or on a page. It never decides anything.
//
// Carries the text of R-B9 (people sign what they are shown).
package decisiontext

import (
	"fmt"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/visibletext"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// Text says in plain words everything that r decides: it is all that the user
// sees before typing the passphrase. action is what a vote is about. Text that others wrote is quoted behind a
// label, and each of its lines behind a mark, so that no part of it can look like
// a row of this program or overwrite one.
func Text(r api.OperatorRecord, action *api.Action) string {
	return "\nYou are asked to sign ONE decision of the operator:\n\n" + Recorded(r, action)
}

// Recorded is Text about a record that is signed.
func Recorded(r api.OperatorRecord, action *api.Action) string {
	o := &out{}
	what := "call"
	if action != nil && action.Step != nil {
		what = "task"
	}
	o.line("  " + sentence(r, what))
	if r.Ceiling != nil {
		o.line("  " + tierText(*r.Ceiling))
	}
	o.line("")
	if action != nil {
		o.action(action)
	}
	o.fact("verb", string(r.Verb))
	o.fact("principal", string(r.Principal))
	if r.Ceiling != nil {
		o.fact("ceiling", r.Ceiling.String())
	}
	if r.Token != nil {
		o.fact("token", string(r.Token.ID))
		o.fact("expires", timeText(r.Token.ExpiresAt))
		o.fact("token's hash", string(r.Token.Hash))
	}
	o.fact("replaces", string(r.Replaces))
	o.fact("stop", r.Stop)
	o.fact("anchor", r.Anchor)
	o.fact("found", string(r.Found))
	o.fact("secret", string(r.Secret))
	if r.Approval == "" {
		o.fact("content", string(r.Content))
	} else {
		o.fact("action", string(r.Content))
	}
	if r.OAuth != nil {
		o.quote("issuer", r.OAuth.Issuer)
		o.quote("subject", r.OAuth.Subject)
	}
	if r.Set != nil {
		o.operatorSet(r.Set)
	}
	o.quote("reason", r.Reason)
	o.fact("service", r.Service)
	o.fact("decision no.", fmt.Sprintf("%d, of %s", r.Number, timeText(r.At)))
	if r.Previous != "" {
		o.fact("after", string(r.Previous))
	}
	return o.b.String()
}

// sentence is the decision in one sentence. It has only values of a narrow form:
// names of principals, tiers, ids and times. what is the kind
// of an action.
func sentence(r api.OperatorRecord, what string) string {
	switch r.Verb {
	case api.VerbPrincipalAdd:
		if r.OAuth != nil {
			return fmt.Sprintf("Add %s, authenticated by tokens of the issuer and subject below.", r.Principal)
		}
		return fmt.Sprintf("Add %s. This gives it no token and no rights.", r.Principal)
	case api.VerbPrincipalRemove:
		return fmt.Sprintf("Revoke every token of %s at once, accept no issuer's tokens for it, and reset its ceiling to OBSERVE.", r.Principal)
	case api.VerbTokenCreate:
		return fmt.Sprintf("Let any holder of a new token act as %s until %s.", r.Principal, timeText(r.Token.ExpiresAt))
	case api.VerbTokenRotate:
		return fmt.Sprintf("Let any holder of a new token act as %s until %s, and revoke the token %s.", r.Principal, timeText(r.Token.ExpiresAt), r.Replaces)
	case api.VerbTokenRevoke:
		return fmt.Sprintf("Revoke the token %s of %s at once.", r.Replaces, r.Principal)
	case api.VerbCeilingSet:
		return fmt.Sprintf("Consent to %s acting up to the tier %s, where a grant and the target allow that too.", r.Principal, strings.ToUpper(r.Ceiling.String()))
	case api.VerbStopLift:
		return fmt.Sprintf("Lift the emergency stop %s. Other stops stay in force.", r.Stop)
	case api.VerbAnchorLost:
		return fmt.Sprintf("Start although the anchor %s contradicts the log or was changed, in exactly the state found below. It gets no more checkpoints.", r.Anchor)
	case api.VerbSecretSet:
		return fmt.Sprintf("Replace the value of the secret %s, for all workers from now on, by the encrypted content below.", r.Secret)
	case api.VerbSecretRemove:
		return fmt.Sprintf("Remove the value of the secret %s. Dispatches that need it fail until it is set again.", r.Secret)
	case api.VerbApprove:
		return fmt.Sprintf("As %s, approve the %s below, once. It has the approval %s.", r.Principal, what, r.Approval)
	case api.VerbDeny:
		return fmt.Sprintf("As %s, deny the %s below. It has the approval %s.", r.Principal, what, r.Approval)
	case api.VerbOperatorSet:
		root, err := seal.ParseTrustRoot(r.Set.Root)
		if err != nil {
			break // readRecord refuses it
		}
		who, votes := "of them", "Votes under these keys count for nothing: none has a principal."
		if root.Assigned() {
			who, votes = "of their owners", "A vote counts only under a key of its voter."
		}
		return fmt.Sprintf("Replace the operator keys by the %s below. %d %s must sign each decision from now on. Any other key signs nothing more. %s", record.Plural(len(root.Keys), "key"), root.Threshold, who, votes)
	}
	return string(r.Verb)
}

// operatorSet writes all of a set of operator keys.
func (o *out) operatorSet(s *api.OperatorSet) {
	o.fact("set", fmt.Sprint(s.Number))
	o.fact("after set", string(s.Previous))
	root, err := seal.ParseTrustRoot(s.Root)
	if err != nil {
		return // readRecord refuses it
	}
	for _, k := range root.Keys {
		o.fact("key", string(k.ID))
		o.fact("belongs to", string(k.Principal))
		o.quote("named", k.Name)
		if p := k.Passkey; p != nil {
			o.fact("touched at", strings.Join(p.Origins, " "))
			if p.Synced {
				o.fact("synced", "yes: its authenticator copies it to other devices")
			}
		}
	}
	o.fact("threshold", fmt.Sprint(root.Threshold))
}

// action writes all of an action, each line of what others wrote behind a mark.
func (o *out) action(a *api.Action) {
	for _, f := range console.ActionFacts(a) {
		o.fact(f.Label, f.Value)
	}
	label, text := console.ActionText(a)
	for line := range strings.Lines(text) {
		for _, part := range parts(strings.TrimSuffix(line, "\n")) {
			o.linef("  %-12s | %s", label, part)
			label = ""
		}
	}
	if foreign := console.Foreign(text); foreign != "" {
		o.linef("  %-12s %s", "not ASCII", console.Line(foreign))
	}
	o.line("")
}

// parts divides a line so that a terminal does not.
func parts(line string) (list []string) {
	start, width := 0, 0
	for i, r := range line {
		n := console.Columns(string(r))
		if width+n > quoteWidth {
			list, start, width = append(list, line[start:i]), i, 0
		}
		width += n
	}
	return append(list, line[start:])
}

// tierText says what a tier means.
func tierText(t api.Tier) string {
	switch t {
	case api.Observe:
		return "observe: subagents that read and report, and change nothing."
	case api.Reversible:
		return "reversible: subagents whose work can be discarded, such as a patch."
	case api.Stateful:
		return "stateful: subagents that change things outside, such as a database, or reach the network."
	case api.Irreversible:
		return "irreversible: subagents whose effects CANNOT be taken back."
	}
	return t.String()
}

func timeText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }

// fact writes a row whose value has a narrow form, unless it is empty.
func (o *out) fact(name, value string) {
	if value != "" {
		o.linef("  %-12s %s", name, console.Line(value))
	}
}

// quoteWidth is how much of a text stands on a line: a line that the terminal
// breaks would continue without a mark.
const quoteWidth = 56

// quote writes a row whose value others wrote: quoted, escaped, on marked lines.
func (o *out) quote(name, value string) {
	if value == "" {
		return
	}
	for _, part := range parts(visibletext.Quote(value)) {
		o.linef("  %-12s | %s", name, part)
		name = ""
	}
}

// out builds a text of lines.
type out struct{ b strings.Builder }

func (o *out) line(s string) { o.b.WriteString(s + "\n") }

func (o *out) linef(format string, args ...any) { o.line(fmt.Sprintf(format, args...)) }
