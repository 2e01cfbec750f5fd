package api

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxReason bounds the reason of a decision or a stop, in bytes.
const MaxReason = 500

var (
	serviceIDPattern = regexp.MustCompile(`^[a-z0-9]{1,20}:[0-9a-f]{32}$`)
	anchorPattern    = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	noncePattern     = regexp.MustCompile(`^[0-9a-f]{32}$`)
	stopIDPattern    = regexp.MustCompile(`^s-[1-9][0-9]{0,18}$`)
)

// ParseAnchorName checks the form of an anchor's name.
func ParseAnchorName(s string) (string, error) {
	if !anchorPattern.MatchString(s) {
		return "", fmt.Errorf("anchor %.80q: want 1 to 63 of a-z, 0-9 and -", s)
	}
	return s, nil
}

// ParseStopID checks the form of a stop's id.
func ParseStopID(s string) (string, error) {
	if !stopIDPattern.MatchString(s) {
		return "", fmt.Errorf("stop id %.40q: want s- and a number", s)
	}
	return s, nil
}

// Check validates the form of a record: all members that its verb needs and no
// others. Whether the principals, tokens and stops exist is for the service to
// check.
func (r OperatorRecord) Check() error {
	if err := r.checkPlace(); err != nil {
		return fmt.Errorf("operator record: %w", err)
	}
	if err := r.checkVerb(); err != nil {
		return fmt.Errorf("operator record %q: %w", string(r.Verb), err)
	}
	return nil
}

// passkeyPrefix begins the id of a passkey.
const passkeyPrefix = "passkey:"

// CheckSigners refuses a record that the keys with these ids must not sign alone. A touch
// of a passkey proves presence, not reading: so a passkey signs only
// what was submitted first, and never alone what cannot be taken back.
func (r OperatorRecord) CheckSigners(keys []string) error {
	passkey := func(id string) bool { return strings.HasPrefix(id, passkeyPrefix) }
	if !slices.ContainsFunc(keys, passkey) {
		return nil
	}
	if r.Nonce == "" {
		return errors.New("operator record: signed with a passkey, but it was not submitted first: it has no nonce")
	}
	if final := r.Verb == VerbOperatorSet || r.Verb == VerbCeilingSet && *r.Ceiling >= Irreversible; final && len(keys) < 2 {
		return fmt.Errorf("operator record %q: one passkey alone signs neither this ceiling nor other operator keys: want a second key, or one with a passphrase", string(r.Verb))
	}
	return nil
}

func (r OperatorRecord) checkPlace() error {
	switch {
	case r.V != 1:
		return fmt.Errorf("format %d: this program reads 1", r.V)
	case !r.Verb.Known():
		return fmt.Errorf("verb %.40q: want one of %s", string(r.Verb), OneOf(OperatorVerbs()))
	case !serviceIDPattern.MatchString(r.Service):
		return fmt.Errorf("service %.80q: want a key id", r.Service)
	case r.Number == 0:
		return errors.New("number: want 1 or more")
	case (r.Number == 1) != (r.Previous == ""):
		return errors.New("previous: every record but the first needs it")
	case r.At.IsZero():
		return errors.New("at: missing")
	case len(r.Reason) > MaxReason || !utf8.ValidString(r.Reason):
		return fmt.Errorf("reason: want text of at most %d bytes", MaxReason)
	case r.Nonce != "" && !noncePattern.MatchString(r.Nonce):
		return fmt.Errorf("nonce %.40q: want 32 lower-case hexadecimal digits", r.Nonce)
	}
	return nil
}

// checkVerb compares the members with those of the verb.
func (r OperatorRecord) checkVerb() error {
	var wants string
	switch r.Verb {
	case VerbPrincipalAdd:
		wants = "principal oauth?"
	case VerbPrincipalRemove:
		wants = "principal"
	case VerbTokenCreate:
		wants = "principal token"
	case VerbTokenRotate:
		wants = "principal token replaces"
	case VerbTokenRevoke:
		wants = "principal replaces"
	case VerbCeilingSet:
		wants = "principal ceiling"
	case VerbStopLift:
		wants = "stop"
	case VerbAnchorLost:
		wants = "anchor found"
	case VerbSecretSet:
		wants = "secret content"
	case VerbSecretRemove:
		wants = "secret"
	case VerbApprove, VerbDeny:
		wants = "principal approval content"
	case VerbOperatorSet:
		wants = "set"
	}
	for _, m := range []struct {
		name  string
		there bool
	}{
		{"principal", r.Principal != ""},
		{"ceiling", r.Ceiling != nil},
		{"token", r.Token != nil},
		{"replaces", r.Replaces != ""},
		{"stop", r.Stop != ""},
		{"anchor", r.Anchor != ""},
		{"found", r.Found != ""},
		{"oauth", r.OAuth != nil},
		{"secret", r.Secret != ""},
		{"content", r.Content != ""},
		{"approval", r.Approval != ""},
		{"set", r.Set != nil},
	} {
		fields := strings.Fields(wants)
		want, may := slices.Contains(fields, m.name), slices.Contains(fields, m.name+"?")
		if m.there && !want && !may {
			return fmt.Errorf("%s: not allowed with this verb", m.name)
		}
		if !m.there && want {
			return fmt.Errorf("%s: missing", m.name)
		}
	}
	return r.checkMembers()
}

func (r OperatorRecord) checkMembers() error {
	if r.Principal != "" {
		if _, err := ParsePrincipal(string(r.Principal)); err != nil {
			return err
		}
		if r.Verb != VerbCeilingSet && r.Verb != VerbApprove && r.Verb != VerbDeny && strings.HasPrefix(string(r.Principal), "local:") {
			return fmt.Errorf("principal %s: the operating system authenticates local: accounts; they have no tokens and are not added", r.Principal)
		}
	}
	if r.Stop != "" {
		if _, err := ParseStopID(r.Stop); err != nil {
			return err
		}
	}
	if r.Approval != "" {
		if err := new(ApprovalID).UnmarshalText([]byte(r.Approval)); err != nil {
			return err
		}
	}
	if r.Anchor != "" {
		if _, err := ParseAnchorName(r.Anchor); err != nil {
			return err
		}
		if _, err := ParseDigest(string(r.Found)); err != nil {
			return fmt.Errorf("found: %w", err)
		}
	}
	if err := r.checkSecret(); err != nil {
		return err
	}
	if r.Set != nil {
		if err := r.Set.check(); err != nil {
			return err
		}
	}
	if r.Replaces != "" {
		if err := new(TokenID).UnmarshalText([]byte(r.Replaces)); err != nil {
			return err
		}
	}
	if r.Ceiling != nil {
		if _, err := r.Ceiling.MarshalText(); err != nil {
			return err
		}
	}
	if t := r.Token; t != nil {
		if err := t.check(); err != nil {
			return err
		}
		if t.ID == r.Replaces {
			return fmt.Errorf("token %s: cannot replace itself", t.ID)
		}
	}
	if r.OAuth != nil {
		return r.OAuth.check()
	}
	return nil
}

func (r OperatorRecord) checkSecret() error {
	if r.Secret != "" {
		if _, err := ParseName(string(r.Secret)); err != nil {
			return err
		}
	}
	if r.Content != "" {
		if _, err := ParseDigest(string(r.Content)); err != nil {
			return fmt.Errorf("content: %w", err)
		}
	}
	return nil
}

// check validates the form of a set, except that of its root.
func (s OperatorSet) check() error {
	if s.Number < 2 {
		return fmt.Errorf("set: number %d: want 2 or more; set 1 is operators.json", s.Number)
	}
	if _, err := ParseDigest(string(s.Previous)); err != nil {
		return fmt.Errorf("set: previous: %w", err)
	}
	if len(s.Root) == 0 || len(s.Root) > MaxOperatorSet {
		return fmt.Errorf("set: root of %d bytes, want 1 to %d", len(s.Root), MaxOperatorSet)
	}
	return nil
}

func (t TokenRecord) check() error {
	if err := new(TokenID).UnmarshalText([]byte(t.ID)); err != nil {
		return err
	}
	if _, err := ParseDigest(string(t.Hash)); err != nil {
		return fmt.Errorf("token %s: hash: %w", t.ID, err)
	}
	if t.ExpiresAt.IsZero() {
		return fmt.Errorf("token %s: expiresAt: missing", t.ID)
	}
	return nil
}

func (s OAuthSubject) check() error {
	u, err := url.Parse(s.Issuer)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || len(s.Issuer) > 500 {
		return fmt.Errorf("oauth: issuer %.80q: want an https URL without query", s.Issuer)
	}
	if s.Subject == "" || len(s.Subject) > 255 || !utf8.ValidString(s.Subject) {
		return errors.New("oauth: subject: want 1 to 255 bytes of text")
	}
	return nil
}
