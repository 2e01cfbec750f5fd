package record

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// ServiceStart is the detail of KindServiceStarted.
type ServiceStart struct {
	Config    *ServiceConfig `json:"config,omitempty"`    // nil: by a version that did not log it
	Isolation []string       `json:"isolation,omitempty"` // layers that this machine supports
	Mode      string         `json:"mode"`                // same-user or system
	PID       int64          `json:"pid"`
	Version   string         `json:"version"`
}

// ServiceConfig is the configuration that a service was started with.
type ServiceConfig struct {
	Digest string `json:"digest,omitempty"` // of the file's content
	File   string `json:"file,omitempty"`   // empty: no file, the defaults
	// Settings are those in force, as key=value in the order of the keys, defaults included.
	// Values of secrets, paths of webhooks and arguments of programs are left out: Digest
	// covers them.
	Settings []string `json:"settings,omitempty"`
}

// maxSettings is how many settings an entry has at most. The anchors come first, and are
// at most 96: the next start compares them.
const maxSettings = 128

func (b *bounds) config(c *ServiceConfig) *ServiceConfig {
	if c == nil {
		return nil
	}
	out := &ServiceConfig{Digest: b.cut(c.Digest), File: b.cut(c.File)}
	kept := min(len(c.Settings), maxSettings)
	for _, s := range c.Settings[:kept] {
		out.Settings = append(out.Settings, b.cut(s))
	}
	if rest := c.Settings[kept:]; len(rest) > 0 {
		out.Settings = append(out.Settings, fmt.Sprintf("...[cut: %d more, %s]", len(rest), api.DigestOf([]byte(strings.Join(rest, "\n")))))
	}
	return out
}

func (d ServiceStart) describe(*Entry) string {
	s := fmt.Sprintf("service started: version %s, mode %s, pid %d", Word(d.Version), Word(d.Mode), d.PID) + withWords(", isolation ", d.Isolation)
	if d.Config != nil && d.Config.File != "" {
		s += fmt.Sprintf(", configuration %s (%s)", Quote(d.Config.File), Word(d.Config.Digest))
	}
	return s
}

// ServiceStop is the detail of KindServiceStopped.
type ServiceStop struct {
	Reason  string `json:"reason"`
	Running int64  `json:"running"` // dispatches whose workers keep running
}

func (d ServiceStop) describe(*Entry) string {
	s := "service stopped: " + Quote(d.Reason)
	if d.Running > 0 {
		s += fmt.Sprintf("; dispatches still running: %d", d.Running)
	}
	return s
}

// KeyRotation is the detail of KindKeyRotated. For the service's own key
// RefRotation names what the old key signed; a key for statements is only what
// the configuration says.
type KeyRotation struct {
	New string `json:"new"`           // id of the key in force: the service's from the next entry on, that for statements from this one on
	Old string `json:"old,omitempty"` // id of the key before it; empty for the first
	Use string `json:"use"`           // service or statements
}

// What a key is for.
const (
	UseService    = "service"
	UseStatements = "statements"
)

func (d KeyRotation) describe(*Entry) string {
	if d.Old == "" {
		return fmt.Sprintf("signing key for %s set to %s", Word(d.Use), Word(d.New))
	}
	return fmt.Sprintf("signing key for %s rotated from %s to %s", Word(d.Use), Word(d.Old), Word(d.New))
}

// RevisionSeen is the detail of KindCatalogRevision; RefRevision names it.
type RevisionSeen struct {
	Author    string   `json:"author"` // as the deploy program saw it
	Keys      []string `json:"keys"`   // whose signatures were verified
	Number    int64    `json:"number"`
	Reason    string   `json:"reason"`
	Threshold int64    `json:"threshold"` // signatures needed
}

func (d RevisionSeen) describe(*Entry) string {
	return fmt.Sprintf("catalog revision %d by %s in force, signed by %s (threshold %d)", d.Number, Word(d.Author), words(d.Keys), d.Threshold) +
		withText(": ", d.Reason)
}

// DeployKeysSeen is the detail of KindCatalogKeys. What follows it must be the same set, or
// one that it leads to.
type DeployKeysSeen struct {
	Digest    string   `json:"digest"`
	First     string   `json:"first"` // digest of the first set of its chain, trust.json
	Keys      []string `json:"keys"`
	Set       int64    `json:"set"`       // its number in the chain; the first is 1
	Threshold int64    `json:"threshold"` // signatures needed
}

func (d DeployKeysSeen) describe(*Entry) string {
	return fmt.Sprintf("set %d of the deploy keys in force: %s (threshold %d)", d.Set, words(d.Keys), d.Threshold)
}

// RevisionRefused is the detail of KindCatalogRefused.
type RevisionRefused struct {
	Cause   string `json:"cause"`   // one word: unsigned, foreign, replayed, mixed, corrupt
	Current int64  `json:"current"` // number of the revision that stays in force; 0 for none
	Message string `json:"message"`
	Number  int64  `json:"number"` // that the refused one claims; 0 if it could not be read
}

func (d RevisionRefused) describe(*Entry) string {
	s, stays := "catalog revision", "no revision is in force"
	if d.Number != 0 {
		s += fmt.Sprintf(" %d", d.Number)
	}
	if d.Current != 0 {
		stays = fmt.Sprintf("revision %d stays in force", d.Current)
	}
	return fmt.Sprintf("%s refused, %s: %s; %s", s, Word(d.Cause), Quote(d.Message), stays)
}

// AuthRefused is the detail of KindAuthRefused.
type AuthRefused struct {
	Claimed string `json:"claimed"` // what the caller or the system said of its identity; never a secret
	Message string `json:"message"`
	Via     string `json:"via"` // unix or http
}

func (d AuthRefused) describe(*Entry) string {
	s := fmt.Sprintf("caller over %s refused: %s", Word(d.Via), Quote(d.Message))
	if d.Claimed != "" {
		s += fmt.Sprintf(" (claimed %s)", Quote(d.Claimed))
	}
	return s
}

// InvalidRequest is the detail of KindRequestInvalid.
type InvalidRequest struct {
	Code      string `json:"code"` // an api.Code
	Message   string `json:"message"`
	Operation string `json:"operation"` // that was called
}

func (d InvalidRequest) describe(e *Entry) string {
	return fmt.Sprintf("%s sent an invalid %s request: %s", e.caller(), Word(d.Operation), Quote(d.Message))
}

// HTTPRequest is the detail of KindHTTPRequested. The entry's principal is the
// account that the program runs under, and the entry is half of the answer: the
// program may serve only once it is durable.
type HTTPRequest struct {
	Token bool `json:"token"` // a client token is valid: the program may serve
}

func (d HTTPRequest) describe(e *Entry) string {
	s := e.caller() + " requested to serve the tools over HTTP"
	if !d.Token {
		s += ": no valid client token"
	}
	return s
}

// Access is the detail of the verbs that start nothing, allowed or denied.
type Access struct {
	Operation string   `json:"operation"`         // that was called, with its object
	Reasons   []string `json:"reasons,omitempty"` // of a denial
}

func (d Access) refused(reasons []string) Detail {
	d.Reasons = slices.Clone(reasons)
	return d
}

func (d Access) describe(e *Entry) string {
	var what string
	switch e.Kind {
	case KindAuditRead:
		what = "requested to read the log: " + Word(d.Operation)
	case KindStopRequested:
		what = "requested to stop the service: " + Word(d.Operation)
	case KindDispatchPinned:
		what = "pinned " + e.dispatch()
	case KindDispatchUnpinned:
		what = "unpinned " + e.dispatch()
	default:
		what = "requested " + Word(d.Operation)
		if op, settled := strings.CutSuffix(d.Operation, ", which is settled"); settled {
			action, run, _ := strings.Cut(op, " ")
			what = "requested " + Word(action) + " of settled run " + Word(run)
		}
	}
	return e.caller() + " " + what + e.verdict(d.Reasons)
}

// Removal is the detail of KindRetentionRemoved. The entry has a principal only
// if a caller requested the removal.
type Removal struct {
	Bytes      int64    `json:"bytes"`                // freed by it
	Class      string   `json:"class"`                // content, evidence, runs, unreferenced
	Dispatches []string `json:"dispatches,omitempty"` // whose
	Items      int64    `json:"items"`                // dispatches, runs, or unreferenced blobs
	Rule       string   `json:"rule"`                 // of retention that allows it
	Runs       []string `json:"runs,omitempty"`       // whose rows and plan
}

func (d Removal) describe(e *Entry) string {
	what := Word(d.Class) + " of " + Plural(d.Items, "dispatch")
	switch {
	case len(d.Runs) > 0:
		what = "rows and plan of " + Plural(d.Items, "settled run")
	case len(d.Dispatches) == 0:
		what = Plural(d.Items, Word(d.Class)+" blob")
	}
	caller := "retention"
	if e.Principal != "" {
		caller = e.caller()
	}
	return fmt.Sprintf("%s removes %s (%d bytes) by rule %s", caller, what, d.Bytes, Quote(d.Rule)) + withWords(": ", append(d.Dispatches, d.Runs...))
}

// EvidenceRefused is the detail of KindEvidenceRefused: the evidence about a
// settled run or an ended dispatch, as the service would export it, does not
// verify. The entry belongs to neither run nor dispatch, so that it is no part
// of that evidence.
type EvidenceRefused struct {
	Dispatch string   `json:"dispatch,omitempty"` // what it is about: this,
	Message  string   `json:"message"`            // why, in plain words
	Rows     []string `json:"rows"`               // that fail; empty if the evidence could not be exported
	Run      string   `json:"run,omitempty"`      // or this
}

func (d EvidenceRefused) describe(*Entry) string {
	about := "run " + Word(d.Run)
	if d.Dispatch != "" {
		about = "dispatch " + Word(d.Dispatch)
	}
	return fmt.Sprintf("evidence of %s does not verify: %s", about, Quote(d.Message))
}

// OperatorDecision is the detail of KindOperatorRecorded; RefRecord names what
// was signed, and the entry's principal submitted it. Members that the verb does
// not use are empty.
type OperatorDecision struct {
	Anchor    string   `json:"anchor,omitempty"`   // that is lost
	Approval  string   `json:"approval,omitempty"` // that it approves or denies
	Ceiling   string   `json:"ceiling,omitempty"`
	Content   string   `json:"content,omitempty"`   // digest of the encrypted value of the secret, or of the action that is approved
	ExpiresAt string   `json:"expiresAt,omitempty"` // of the token
	Found     string   `json:"found,omitempty"`     // identifies the state of the anchor
	Issuer    string   `json:"issuer,omitempty"`    // of tokens that authenticate the principal
	Keys      []string `json:"keys"`                // whose signatures were verified
	Number    int64    `json:"number"`              // in the chain of records, from 1
	Operators []string `json:"operators,omitempty"` // ids of the keys of the set
	Reason    string   `json:"reason,omitempty"`
	Replaces  string   `json:"replaces,omitempty"`  // id of the token that it revokes
	Secret    string   `json:"secret,omitempty"`    // the name in file:NAME
	Set       int64    `json:"set,omitempty"`       // number of the set of operator keys that it puts in force
	Stop      string   `json:"stop,omitempty"`      // id of the stop that it lifts
	Subject   string   `json:"subject,omitempty"`   // the principal that it is about
	Threshold int64    `json:"threshold,omitempty"` // of the set: how many of its keys sign a decision
	Token     string   `json:"token,omitempty"`     // id of the token that it creates
	Verb      string   `json:"verb"`
}

// DecisionOf returns the detail of the entry of r, which these keys are verified to
// have signed.
func DecisionOf(r *api.OperatorRecord, keys []string) OperatorDecision {
	d := OperatorDecision{
		Approval: string(r.Approval), Anchor: r.Anchor, Found: string(r.Found), Keys: keys, Number: int64(r.Number), Reason: r.Reason, Replaces: string(r.Replaces), Secret: string(r.Secret), Content: string(r.Content), Stop: r.Stop, Subject: string(r.Principal), Verb: string(r.Verb), //nolint:gosec // G115: numbers count up from 1
	}
	if r.Ceiling != nil {
		d.Ceiling = r.Ceiling.String()
	}
	if r.Token != nil {
		d.Token, d.ExpiresAt = string(r.Token.ID), r.Token.ExpiresAt.UTC().Format(time.RFC3339)
	}
	if r.OAuth != nil {
		d.Issuer = r.OAuth.Issuer
	}
	if r.Set != nil {
		d.Set = int64(r.Set.Number) //nolint:gosec // G115: counts up from 1
		var root struct {
			Keys      []struct{ ID string }
			Threshold int64
		}
		if json.Unmarshal(r.Set.Root, &root) == nil { // else nobody puts the set in force
			d.Threshold = root.Threshold
			for _, k := range root.Keys {
				d.Operators = append(d.Operators, k.ID)
			}
		}
	}
	return d
}

func (d OperatorDecision) describe(e *Entry) string {
	return fmt.Sprintf("operator record %d: %s, signed by %s, submitted by %s", d.Number, d.decision(), words(d.Keys), e.caller()) + withText(": ", d.Reason)
}

// decision says what was decided. The verbs are those of api.OperatorVerbs.
func (d OperatorDecision) decision() string {
	switch d.Verb {
	case "principal.add":
		return fmt.Sprintf("principal %s added", Word(d.Subject)) + withText(", authenticated by tokens of ", d.Issuer)
	case "principal.remove":
		return fmt.Sprintf("principal %s removed with its tokens and its ceiling", Word(d.Subject))
	case "token.create":
		return fmt.Sprintf("token %s created for %s, expires %s", Word(d.Token), Word(d.Subject), Word(d.ExpiresAt))
	case "token.rotate":
		return fmt.Sprintf("token %s created for %s, expires %s, replaces token %s", Word(d.Token), Word(d.Subject), Word(d.ExpiresAt), Word(d.Replaces))
	case "token.revoke":
		return fmt.Sprintf("token %s of %s revoked", Word(d.Replaces), Word(d.Subject))
	case "ceiling.set":
		return fmt.Sprintf("ceiling of %s set to %s", Word(d.Subject), Word(d.Ceiling))
	case "stop.lift":
		return fmt.Sprintf("stop %s lifted", Word(d.Stop))
	case "anchor.lost":
		return fmt.Sprintf("anchor %s named as lost, in state %s", Word(d.Anchor), Word(d.Found))
	case "secret.set":
		return fmt.Sprintf("secret %s set", Word(d.Secret))
	case "secret.remove":
		return fmt.Sprintf("secret %s removed", Word(d.Secret))
	case "approval.approve":
		return fmt.Sprintf("%s approves %s", Word(d.Subject), Word(d.Approval))
	case "approval.deny":
		return fmt.Sprintf("%s denies %s", Word(d.Subject), Word(d.Approval))
	case "operators.set":
		return fmt.Sprintf("set %d of the operator keys in force: %s, %d must sign", d.Set, words(d.Operators), d.Threshold)
	}
	return "verb " + Word(d.Verb)
}

// StopEngaged is the detail of KindStopEngaged. The entry's principal engaged
// it. Each dispatch that it cancels gets an entry of its own when it has ended.
type StopEngaged struct {
	Name   string `json:"name,omitempty"`   // of the principal, target or dispatch
	Reason string `json:"reason,omitempty"` // for people
	Scope  string `json:"scope"`            // an api.StopScope
	Stop   string `json:"stop"`             // its id
}

func (d StopEngaged) describe(e *Entry) string {
	return fmt.Sprintf("%s engaged stop %s on %s", e.caller(), Word(d.Stop), Word(d.Scope)) + withWord(" ", d.Name) +
		"; its dispatches in flight are cancelled" + withText(": ", d.Reason)
}
