package operator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/softkey"
)

// inviting returns an office whose one operator key belongs to Ann, at the page of the
// software passkeys.
func inviting(t *testing.T) *office {
	t.Helper()
	o := newOffice(t)
	o.replaceRoot(seal.TrustRoot{V: 1, Keys: []seal.Key{keyOf(o.operator, "ann", "human:ann")}, Threshold: 1})
	o.registry.Invited.origin = softkey.Origin
	for _, p := range []api.Principal{"human:ann", "human:bob"} {
		o.must(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal = p })
	}
	return o
}

// invite returns the code of a new invitation.
func (o *office) invite(p api.Principal, synced bool) string {
	o.t.Helper()
	in, err := o.registry.Invited.Add(o.t.Context(), "local:op", api.InvitationRequest{Principal: p, Synced: synced})
	if err != nil {
		o.t.Fatal(err)
	}
	code, ok := strings.CutPrefix(in.Link, softkey.Origin+"/enrol#")
	if !ok || len(code) < 26 || in.State != api.InvitationOpen {
		o.t.Fatalf("invitation %+v", in)
	}
	return code
}

// enrol enrols a passkey with a code. lie changes what its browser says.
func (o *office) enrol(code string, lie func(*softkey.Authenticator)) (*softkey.Authenticator, api.EnrolAnswer, error) {
	o.t.Helper()
	a, err := softkey.New(false)
	if err != nil {
		o.t.Fatal(err)
	}
	challenge := enrolChallenge(code)
	a.Challenge = &challenge
	if lie != nil {
		lie(a)
	}
	e, err := a.Enrol()
	if err != nil {
		o.t.Fatal(err)
	}
	a.Challenge = nil
	shown := api.Enrolment(e)
	answer, err := o.registry.Invited.Enrol(o.t.Context(), api.EnrolRequest{Code: code, Enrolment: &shown})
	return a, answer, err
}

// admitted returns the set in force with the enrolled passkey of a principal.
func (o *office) admitted(p api.Principal) seal.TrustRoot {
	o.t.Helper()
	list, err := o.registry.Invited.List(o.t.Context())
	i := slices.IndexFunc(list, func(in api.Invitation) bool { return in.Principal == p })
	if err != nil || i < 0 || list[i].State != api.InvitationEnrolled || list[i].Link != "" {
		o.t.Fatalf("%+v, %v", list, err)
	}
	var k seal.Key
	if err := canon.DecodeExact(list[i].Key, &k); err != nil {
		o.t.Fatal(err)
	}
	k.Principal = p
	root := o.registry.current.Load().operators.Root()
	root.Keys = append(slices.Clone(root.Keys), k)
	return root
}

// A person enrols a passkey with a link, once. The link, and the passkey that was enrolled
// with it, sign nothing: only the operators' signature makes it a key, of the person who
// was invited, and of no other principal.
//
// proves R-B9
func TestALinkAloneGivesNothing(t *testing.T) {
	o := inviting(t)
	code := o.invite("human:bob", false)
	if about, err := o.registry.Invited.Enrol(o.t.Context(), api.EnrolRequest{Code: code}); err != nil || about.Principal != "human:bob" || about.RPID != softkey.RPID || about.Fingerprint != "" {
		t.Errorf("about the link: %+v, %v", about, err)
	}
	bob, answer, err := o.enrol(code, nil)
	if err != nil || answer.Principal != "human:bob" {
		t.Fatalf("%+v, %v", answer, err)
	}
	k, err := bob.Key("ann")
	if err != nil {
		t.Fatal(err)
	}
	if want := api.Fingerprint(string(k.ID)); answer.Fingerprint != want || len(want) != 24 {
		t.Errorf("fingerprint %q, want %q", answer.Fingerprint, want)
	}
	l := o.submit("local:dev", api.Stateful)
	if _, err := o.assert(bob, l); err == nil || !strings.Contains(err.Error(), "no operator key is this passkey") {
		t.Errorf("a passkey that was only enrolled signs: %v", err)
	}
	root := o.admitted("human:bob")
	if err := o.set(root, newSigner(t)); err == nil {
		t.Error("a key that is no operator's admits it")
	}
	if _, err := o.assert(bob, o.submit("local:dev", api.Stateful)); err == nil {
		t.Error("after a refused admission the passkey signs")
	}
	if err := o.set(root, o.operator); err != nil { // the control
		t.Fatal(err)
	}
	l = o.submit("local:dev", api.Stateful)
	if signed, err := o.assert(bob, l); err != nil {
		t.Errorf("after the operators signed: %v", err)
	} else if _, err := o.record(l, signed); err != nil {
		t.Errorf("after the operators signed: %v", err)
	}
	if list, err := o.registry.Invited.List(t.Context()); err != nil || len(list) != 1 || list[0].State != api.InvitationAdmitted {
		t.Errorf("%+v, %v", list, err)
	}
}

// A code is used once, by its text and for a day, also over a restart. A guess and a code
// that was used, replaced or expired get the same refusal.
func TestACodeIsValidOnce(t *testing.T) {
	o := inviting(t)
	valid := func(code string) bool {
		_, err := o.registry.Invited.Enrol(o.t.Context(), api.EnrolRequest{Code: code})
		if err != nil && api.CodeOf(err) != api.CodeUnauthenticated {
			t.Errorf("%s: %v", code, err)
		}
		return err == nil
	}
	replaced := o.invite("human:bob", false)
	code := o.invite("human:bob", false)
	for name, bad := range map[string]string{"replaced": replaced, "a guess": strings.Repeat("A", 26), "empty": "", "in lower case": strings.ToLower(code), "its hash": hashOf(code), "a pattern": "%", "a statement": "' OR ''='"} {
		if valid(bad) {
			t.Errorf("%s is valid", name)
		}
	}
	o.now = o.now.Add(api.InvitationTime - time.Second)
	for range 2 { // asking does not use it up
		if !valid(code) {
			t.Error("within its time it is not valid")
		}
	}
	if _, _, err := o.enrol(code, nil); err != nil {
		t.Fatal(err)
	}
	if valid(code) {
		t.Error("after its use it is valid")
	}
	if _, _, err := o.enrol(code, nil); api.CodeOf(err) != api.CodeUnauthenticated {
		t.Errorf("a second passkey: %v", err)
	}
	code = o.invite("human:bob", false) // which removes the passkey that waited
	if list, err := o.registry.Invited.List(t.Context()); err != nil || len(list) != 1 || list[0].Key != nil {
		t.Errorf("%+v, %v", list, err)
	}
	o.now = o.now.Add(api.InvitationTime)
	if valid(code) {
		t.Error("after a day it is valid")
	}
	code = o.invite("human:bob", false)
	again := func() {
		t.Helper()
		if err := o.restart(); err != nil {
			t.Fatal(err)
		}
		o.registry.Invited.origin = softkey.Origin
	}
	if again(); !valid(code) {
		t.Error("after a restart it is not valid")
	}
	_, answer, err := o.enrol(code, nil)
	if err != nil {
		t.Fatal(err)
	}
	if again(); valid(code) {
		t.Error("used before a restart, it is valid after it")
	}
	if list, err := o.registry.Invited.List(t.Context()); err != nil || len(list) != 1 || list[0].State != api.InvitationEnrolled || list[0].By != "local:op" || api.Fingerprint(string(o.admitted("human:bob").Keys[1].ID)) != answer.Fingerprint {
		t.Errorf("after a restart: %+v, %v", list, err)
	}
	code = o.invite("human:bob", false)
	again()
	if o.now = o.now.Add(api.InvitationTime); valid(code) {
		t.Error("after a restart it is valid for longer than a day")
	}
}

// Of two devices that enrol at once with one code, one succeeds, and its passkey is the
// one that waits.
func TestTwoDevicesRaceForOneLink(t *testing.T) {
	o := inviting(t)
	for range 5 {
		code := o.invite("human:bob", false)
		const devices = 8
		var made [devices]api.Enrolment
		for n := range made {
			a, err := softkey.New(false)
			if err != nil {
				t.Fatal(err)
			}
			challenge := enrolChallenge(code)
			a.Challenge = &challenge
			e, err := a.Enrol()
			if err != nil {
				t.Fatal(err)
			}
			made[n] = api.Enrolment(e)
		}
		var all sync.WaitGroup
		won := make(chan string, devices)
		for n := range made {
			all.Go(func() {
				answer, err := o.registry.Invited.Enrol(t.Context(), api.EnrolRequest{Code: code, Enrolment: &made[n]})
				if err == nil {
					won <- answer.Fingerprint
				} else if api.CodeOf(err) != api.CodeUnauthenticated {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if len(won) != 1 {
			t.Fatalf("%d of %d devices enrolled", len(won), devices)
		}
		root := o.admitted("human:bob")
		if got := api.Fingerprint(string(root.Keys[len(root.Keys)-1].ID)); got != <-won {
			t.Errorf("another passkey waits: %s", got)
		}
	}
}

// An invitation ends with the last operator key of its inviter, open or enrolled, and when
// the page gets another address. Controls: the one of another operator; the same one before.
func TestAnInvitationEndsWithItsInviter(t *testing.T) {
	o := inviting(t)
	second := newSigner(t)
	ann, carol := keyOf(o.operator, "ann", "human:ann"), keyOf(second, "carol", "human:carol")
	o.must(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal = "human:carol" })
	if err := o.set(seal.TrustRoot{V: 1, Keys: []seal.Key{ann, carol}, Threshold: 1}, o.operator); err != nil {
		t.Fatal(err)
	}
	invite := func(by, p api.Principal) string {
		t.Helper()
		in, err := o.registry.Invited.Add(t.Context(), by, api.InvitationRequest{Principal: p})
		if err != nil {
			t.Fatal(err)
		}
		_, code, _ := strings.Cut(in.Link, "#")
		return code
	}
	open, enrolled, other := invite("human:carol", "human:bob"), invite("human:carol", "local:dan"), invite("human:ann", "local:eve")
	if _, _, err := o.enrol(enrolled, nil); err != nil {
		t.Fatal(err)
	}
	state := func(code string) error {
		_, err := o.registry.Invited.Enrol(t.Context(), api.EnrolRequest{Code: code})
		return err
	}
	listed := func() (who []api.Principal) {
		t.Helper()
		list, err := o.registry.Invited.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, in := range list {
			who = append(who, in.Principal)
		}
		return who
	}
	if err := errors.Join(state(open), state(other)); err != nil || len(listed()) != 3 {
		t.Fatalf("before: %v, %v", err, listed())
	}
	o.registry.Invited.origin = "https://elsewhere.example.com"
	if state(other) == nil || len(listed()) != 0 {
		t.Error("invitations for another page count")
	}
	o.registry.Invited.origin = softkey.Origin
	if err := o.set(seal.TrustRoot{V: 1, Keys: []seal.Key{ann}, Threshold: 1}, o.operator); err != nil {
		t.Fatal(err)
	}
	if err := state(open); api.CodeOf(err) != api.CodeUnauthenticated {
		t.Errorf("after the inviter was retired: %v", err)
	}
	if _, _, err := o.enrol(open, nil); api.CodeOf(err) != api.CodeUnauthenticated {
		t.Errorf("a passkey after the inviter was retired: %v", err)
	}
	if err := state(other); err != nil || !slices.Equal(listed(), []api.Principal{"local:eve"}) {
		t.Errorf("of another operator: %v, %v", err, listed())
	}
}

// What a browser shows must be of the page of the team, for this link, with a user who was
// verified; each refusal leaves the link valid. A passkey that is copied to other devices
// takes an invitation that says so.
func TestAnEnrolmentAnswersItsLink(t *testing.T) {
	o := inviting(t)
	for name, c := range map[string]struct {
		lie    func(*softkey.Authenticator)
		synced bool
		want   string
	}{
		"honest":                    {},
		"honest, copies allowed":    {synced: true},
		"copied, allowed":           {lie: func(a *softkey.Authenticator) { a.Flags = 0x1d }, synced: true},
		"copied":                    {lie: func(a *softkey.Authenticator) { a.Flags = 0x1d }, want: "--synced"},
		"at another page":           {lie: func(a *softkey.Authenticator) { a.Origin = "https://evil.example" }, want: "want sign.bailiwick.localhost at"},
		"at another port":           {lie: func(a *softkey.Authenticator) { a.Origin = "http://sign.bailiwick.localhost:1" }, want: "want sign.bailiwick.localhost at"},
		"with another link":         {lie: func(a *softkey.Authenticator) { c := enrolChallenge("other"); a.Challenge = &c }, want: "another challenge"},
		"without a link":            {lie: func(a *softkey.Authenticator) { a.Challenge = nil }, want: "another challenge"},
		"without verification":      {lie: func(a *softkey.Authenticator) { a.Flags = 0x01 }, want: "not verified"},
		"for another relying party": {lie: func(a *softkey.Authenticator) { a.RPID = "bailiwick.localhost" }, want: "another relying party"},
	} {
		code := o.invite("human:bob", c.synced)
		_, _, err := o.enrol(code, c.lie)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if _, open := o.registry.Invited.Enrol(o.t.Context(), api.EnrolRequest{Code: code}); (open == nil) != (c.want != "") {
			t.Errorf("%s: the link afterwards: %v", name, open)
		}
	}
}

// Invitations are for known persons, at a configured page, once keys have principals, and
// of a bounded number.
func TestWhoIsInvited(t *testing.T) {
	o := inviting(t)
	refused := func(name, want string, p api.Principal) {
		t.Helper()
		if _, err := o.registry.Invited.Add(t.Context(), "local:op", api.InvitationRequest{Principal: p}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	refused("an AI", "not a person", "agent:claude")
	refused("a program", "not a person", "ci:main")
	refused("nobody", "not a person", "")
	refused("a stranger", "principal add human:eve", "human:eve")
	if err := o.store.Update(t.Context(), func(tx *store.Tx) error {
		for n := range maxInvitations {
			in := invitation{Invitation: api.Invitation{Principal: api.Principal(fmt.Sprintf("human:x%d", n)), Expires: o.now.Add(time.Hour)}}
			if err := in.put(tx, hashOf(fmt.Sprint(n))); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	refused("too many", "the limit", "human:bob")
	o.now = o.now.Add(time.Hour)
	o.invite("human:bob", false) // the others expired
	o.registry.Invited.origin = ""
	refused("without a page", "web.origin", "human:bob")
	o.registry.Invited.origin = softkey.Origin
	o.replaceRoot(seal.TrustRoot{V: 1, Keys: []seal.Key{seal.KeyOf(o.operator, "ann")}, Threshold: 1})
	refused("keys without principals", "operators assign", "human:bob")
}
