package api

import (
	"strings"
	"testing"
	"time"
)

func goodRecord(verb OperatorVerb) OperatorRecord {
	stateful := Stateful
	r := OperatorRecord{
		V: 1, Service: "ed25519:" + strings.Repeat("0a", 16), Number: 2, Previous: DigestOf([]byte("1")),
		At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Verb: verb, Principal: "agent:claude",
	}
	token := &TokenRecord{ID: "t-aaaaaaaaaaaa", Hash: DigestOf([]byte("x")), ExpiresAt: r.At.Add(time.Hour)}
	switch verb {
	case VerbPrincipalAdd, VerbPrincipalRemove:
	case VerbTokenCreate:
		r.Token = token
	case VerbTokenRotate:
		r.Token, r.Replaces = token, "t-bbbbbbbbbbbb"
	case VerbTokenRevoke:
		r.Replaces = "t-bbbbbbbbbbbb"
	case VerbCeilingSet:
		r.Ceiling = &stateful
	case VerbStopLift:
		r.Principal, r.Stop = "", "s-7"
	case VerbAnchorLost:
		r.Principal, r.Anchor, r.Found = "", "disk", DigestOf([]byte("found"))
	case VerbSecretSet:
		r.Principal, r.Secret, r.Content = "", "anthropic", DigestOf([]byte("encrypted"))
	case VerbSecretRemove:
		r.Principal, r.Secret = "", "anthropic"
	case VerbApprove, VerbDeny:
		r.Approval, r.Content = "a-aaaaaaaaaaaa", DigestOf([]byte("action"))
	case VerbOperatorSet:
		r.Principal, r.Set = "", &OperatorSet{Number: 2, Previous: DigestOf([]byte("set 1")), Root: []byte("{}")}
	}
	return r
}

// A record has the members of its verb and no others: people must not sign members
// that they are not shown.
func TestARecordHasExactlyTheMembersOfItsVerb(t *testing.T) {
	observe, beyond := Observe, Tier(9)
	for _, verb := range OperatorVerbs() {
		good := goodRecord(verb)
		if err := good.Check(); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
		for name, change := range map[string]func(*OperatorRecord){
			"another format":        func(r *OperatorRecord) { r.V = 2 },
			"no service":            func(r *OperatorRecord) { r.Service = "" },
			"a service of two rows": func(r *OperatorRecord) { r.Service += "\n" },
			"no number":             func(r *OperatorRecord) { r.Number = 0 },
			"a first that follows":  func(r *OperatorRecord) { r.Number = 1 },
			"one that follows none": func(r *OperatorRecord) { r.Previous = "" },
			"no time":               func(r *OperatorRecord) { r.At = time.Time{} },
			"a long reason":         func(r *OperatorRecord) { r.Reason = strings.Repeat("a", MaxReason+1) },
			"a short nonce":         func(r *OperatorRecord) { r.Nonce = "00" },
			"a nonce of words":      func(r *OperatorRecord) { r.Nonce = strings.Repeat("x", 32) },
			"a reason of bytes":     func(r *OperatorRecord) { r.Reason = "\xff" },
			"an unknown verb":       func(r *OperatorRecord) { r.Verb = "catalog.apply" },
			"a ceiling beyond":      func(r *OperatorRecord) { r.Ceiling = &beyond },
			"an alien principal":    func(r *OperatorRecord) { r.Principal = "agent:a b" },
			"a hostile anchor":      func(r *OperatorRecord) { r.Anchor = "disk\u202e" },
			"a finding of words":    func(r *OperatorRecord) { r.Found = "all" },
			"a hostile stop":        func(r *OperatorRecord) { r.Stop = "s-1\u202e" },
			"a token without end":   func(r *OperatorRecord) { r.Token = &TokenRecord{ID: "t-cccccccccccc", Hash: DigestOf(nil)} },
			"a token without hash":  func(r *OperatorRecord) { r.Token = &TokenRecord{ID: "t-cccccccccccc", ExpiresAt: r.At} },
			"a plain issuer":        func(r *OperatorRecord) { r.OAuth = &OAuthSubject{Issuer: "http://idp.example", Subject: "s"} },
			"a hostile secret":      func(r *OperatorRecord) { r.Secret = "../x" },
			"a hostile approval":    func(r *OperatorRecord) { r.Approval = "a-\u202eaaaaaaaaaa" },
			"a content of words":    func(r *OperatorRecord) { r.Content = "all" },
			"a first set":           func(r *OperatorRecord) { r.Set = &OperatorSet{Number: 1, Previous: DigestOf(nil), Root: []byte("{}")} },
			"a set after none":      func(r *OperatorRecord) { r.Set = &OperatorSet{Number: 2, Root: []byte("{}")} },
			"a set without keys":    func(r *OperatorRecord) { r.Set = &OperatorSet{Number: 2, Previous: DigestOf(nil)} },
			"a huge set": func(r *OperatorRecord) {
				r.Set = &OperatorSet{Number: 2, Previous: DigestOf(nil), Root: make([]byte, MaxOperatorSet+1)}
			},
			"an issuer's nobody": func(r *OperatorRecord) { r.OAuth = &OAuthSubject{Issuer: "https://idp.example"} },
		} {
			r := goodRecord(verb)
			if change(&r); r.Check() == nil {
				t.Errorf("%s: %s is taken", verb, name)
			}
		}
		for member, add := range map[string]func(*OperatorRecord){
			"principal": func(r *OperatorRecord) { r.Principal = "agent:claude" },
			"ceiling":   func(r *OperatorRecord) { r.Ceiling = &observe },
			"token":     func(r *OperatorRecord) { r.Token = goodRecord(VerbTokenCreate).Token },
			"replaces":  func(r *OperatorRecord) { r.Replaces = "t-bbbbbbbbbbbb" },
			"stop":      func(r *OperatorRecord) { r.Stop = "s-1" },
			"anchor":    func(r *OperatorRecord) { r.Anchor = "disk" },
			"found":     func(r *OperatorRecord) { r.Found = DigestOf([]byte("found")) },
			"oauth":     func(r *OperatorRecord) { r.OAuth = &OAuthSubject{Issuer: "https://idp.example/a", Subject: "s"} },
			"secret":    func(r *OperatorRecord) { r.Secret = "anthropic" },
			"content":   func(r *OperatorRecord) { r.Content = DigestOf([]byte("encrypted")) },
			"approval":  func(r *OperatorRecord) { r.Approval = "a-bbbbbbbbbbbb" },
			"set":       func(r *OperatorRecord) { r.Set = goodRecord(VerbOperatorSet).Set },
		} {
			r := goodRecord(verb)
			before := r
			if add(&r); r == before || member == "principal" && before.Principal != "" || member == "oauth" && verb == VerbPrincipalAdd ||
				member == "ceiling" && before.Ceiling != nil || member == "token" && before.Token != nil || member == "replaces" && before.Replaces != "" ||
				member == "stop" && before.Stop != "" || member == "set" && before.Set != nil || member == "content" && before.Content != "" || member == "approval" && before.Approval != "" {
				continue
			}
			if err := r.Check(); err == nil || !strings.Contains(err.Error(), member+": not allowed with this verb") {
				t.Errorf("%s with %s: %v", verb, member, err)
			}
		}
	}
}

func TestNoTokenIsCreatedForALocalAccount(t *testing.T) {
	for _, verb := range OperatorVerbs() {
		r := goodRecord(verb)
		if r.Principal == "" {
			continue
		}
		r.Principal = "local:ann"
		if err := r.Check(); (err == nil) != (verb == VerbCeilingSet || verb == VerbApprove || verb == VerbDeny) {
			t.Errorf("%s of local:ann: %v", verb, err)
		}
	}
}

func TestAStopHasANameUnlessItsScopeIsAll(t *testing.T) {
	for _, c := range []struct {
		r  StopRequest
		ok bool
	}{
		{StopRequest{Scope: StopAll}, true},
		{StopRequest{Scope: StopAll, Name: "x"}, false},
		{StopRequest{}, false},
		{StopRequest{Scope: "everything"}, false},
		{StopRequest{Scope: StopPrincipal, Name: "agent:claude"}, true},
		{StopRequest{Scope: StopPrincipal}, false},
		{StopRequest{Scope: StopPrincipal, Name: "claude"}, false},
		{StopRequest{Scope: StopTarget, Name: "local"}, true},
		{StopRequest{Scope: StopTarget, Name: "Local"}, false},
		{StopRequest{Scope: StopDispatch, Name: "d-1234"}, true},
		{StopRequest{Scope: StopDispatch, Name: "d 1234"}, false},
		{StopRequest{Scope: StopAll, Reason: strings.Repeat("x", MaxReason)}, true},
		{StopRequest{Scope: StopAll, Reason: strings.Repeat("x", MaxReason+1)}, false},
		{StopRequest{Scope: StopAll, Reason: "\xff"}, false},
	} {
		if err := c.r.Check(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.r, err)
		}
	}
}
