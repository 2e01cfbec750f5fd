package deploycli

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/bailiwick-dev/bailiwick/api"
)

// decision says in plain words what r decides, all of it: whoever gives the
// passphrase has seen nothing else. What others wrote stands quoted behind a
// label, and each line of it behind a mark, so that no part of it can pass for
// a row of this program, or go back over one.
func decision(r api.OperatorRecord) string {
	o := &out{}
	o.line("")
	o.line("You are asked to sign ONE decision of the operator:")
	o.line("")
	o.line("  " + sentence(r))
	if r.Ceiling != nil {
		o.line("  " + reach(*r.Ceiling))
	}
	o.line("")
	o.fact("verb", string(r.Verb))
	o.fact("principal", string(r.Principal))
	if r.Ceiling != nil {
		o.fact("ceiling", r.Ceiling.String())
	}
	if r.Token != nil {
		o.fact("token", string(r.Token.ID))
		o.fact("expires", moment(r.Token.ExpiresAt))
		o.fact("token's hash", string(r.Token.Hash))
	}
	o.fact("replaces", string(r.Replaces))
	o.fact("stop", r.Stop)
	if r.OAuth != nil {
		o.told("issuer", r.OAuth.Issuer)
		o.told("subject", r.OAuth.Subject)
	}
	o.told("reason", r.Reason)
	o.fact("service", r.Service)
	o.fact("decision no.", fmt.Sprintf("%d, of %s", r.Number, moment(r.At)))
	if r.Previous != "" {
		o.fact("after", string(r.Previous))
	}
	return o.b.String()
}

// sentence is the decision itself. It holds only what has a narrow form: names
// of principals, tiers, ids and times.
func sentence(r api.OperatorRecord) string {
	switch r.Verb {
	case api.VerbPrincipalAdd:
		if r.OAuth != nil {
			return fmt.Sprintf("Make %s known, as whoever comes with tokens of the issuer and subject below.", r.Principal)
		}
		return fmt.Sprintf("Make %s known. It gets no token and no rights by this.", r.Principal)
	case api.VerbPrincipalRemove:
		return fmt.Sprintf("End every token of %s at once, let no issuer's stand for it, and set its ceiling back to OBSERVE.", r.Principal)
	case api.VerbTokenCreate:
		return fmt.Sprintf("Let whoever holds a new token act as %s until %s.", r.Principal, moment(r.Token.ExpiresAt))
	case api.VerbTokenRotate:
		return fmt.Sprintf("Let whoever holds a new token act as %s until %s, and end the token %s.", r.Principal, moment(r.Token.ExpiresAt), r.Replaces)
	case api.VerbTokenRevoke:
		return fmt.Sprintf("End the token %s of %s at once.", r.Replaces, r.Principal)
	case api.VerbCeilingSet:
		return fmt.Sprintf("Consent to %s acting up to the tier %s, where a grant and the target allow that too.", r.Principal, strings.ToUpper(r.Ceiling.String()))
	case api.VerbStopLift:
		return fmt.Sprintf("Lift the emergency stop %s: what it holds may run again.", r.Stop)
	}
	return string(r.Verb)
}

// reach says what a tier means.
func reach(t api.Tier) string {
	switch t {
	case api.Observe:
		return "observe: workers that look and report, and change nothing."
	case api.Reversible:
		return "reversible: workers whose work can be thrown away, such as a patch."
	case api.Stateful:
		return "stateful: workers that change things outside, such as a database, or reach the network."
	case api.Irreversible:
		return "irreversible: workers whose effects CANNOT be taken back."
	}
	return t.String()
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }

// fact is a row whose value has a narrow form; empty ones are left out.
func (o *out) fact(name, value string) {
	if value != "" {
		o.linef("  %-12s %s", name, visible(value))
	}
}

// toldWidth is how much of a text stands on a line: a terminal that breaks
// lines by itself would begin one with whatever comes next.
const toldWidth = 56

// told is a row whose value somebody wrote: quoted, escaped, on marked lines.
func (o *out) told(name, value string) {
	if value == "" {
		return
	}
	// One character at a time, since an escape is wider than what it stands for.
	var line strings.Builder
	width := 0
	flush := func() {
		o.linef("  %-12s | %s", name, line.String())
		name, width = "", 0
		line.Reset()
	}
	for i, r := range value {
		s := shown(r)
		if i == 0 {
			s = `"` + s
		}
		if width+len(s) > toldWidth {
			flush()
		}
		line.WriteString(s)
		width += len(s)
	}
	line.WriteByte('"')
	flush()
}

// shown is r where it is a letter, digit, sign or space that stands by itself,
// and its number otherwise: no mark that is put on or over another, and nothing
// that steers a terminal.
func shown(r rune) string {
	if r == '"' || r == '\\' {
		return `\` + string(r)
	}
	if unicode.IsPrint(r) && !unicode.Is(unicode.M, r) && r != unicode.ReplacementChar && !unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) {
		return string(r)
	}
	if r > 0xffff {
		return fmt.Sprintf(`\U%08x`, r)
	}
	return fmt.Sprintf(`\u%04x`, r)
}
