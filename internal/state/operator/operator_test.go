package operator

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// office is a registry with an operator's key and a fixed clock.
type office struct {
	t        testing.TB
	dir      string
	now      time.Time
	store    *store.Store
	ledger   *audit.Ledger
	registry *Registry
	service  seal.KeyID
	operator seal.Signer
}

func newSigner(t testing.TB) seal.Signer {
	t.Helper()
	s, err := seal.NewEphemeral()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newOffice(t testing.TB) *office {
	t.Helper()
	o := &office{t: t, dir: t.TempDir(), now: time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC), operator: newSigner(t), service: newSigner(t).KeyID()}
	o.root(o.operator)
	var err error
	if o.store, err = store.Create(t.Context(), o.config()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.store.Close() })
	if err := o.open(); err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *office) config() store.Config {
	return store.Config{Dir: filepath.Join(o.dir, "store"), Migrations: []store.Migration{audit.Migration(), Migration()}}
}

func (o *office) rootPath() string { return filepath.Join(o.dir, "operators.json") }

// root makes these signers the operators.
func (o *office) root(keys ...seal.Signer) {
	o.t.Helper()
	var list []seal.Key
	for _, k := range keys {
		list = append(list, seal.KeyOf(k, ""))
	}
	o.replaceRoot(seal.RootOf(list...))
}

func (o *office) open() (err error) {
	if o.ledger, err = audit.Open(o.t.Context(), audit.Config{Store: o.store, Now: o.clock}); err != nil {
		o.t.Fatal(err)
	}
	o.registry, err = Open(o.t.Context(), Config{Root: o.rootPath(), Service: o.service, Store: o.store, Ledger: o.ledger, Now: o.clock})
	return err
}

func (o *office) clock() time.Time { return o.now }

// restart closes and reopens the state.
func (o *office) restart() error {
	o.t.Helper()
	if err := o.store.Close(); err != nil {
		o.t.Fatal(err)
	}
	var err error
	if o.store, err = store.Open(o.t.Context(), o.config()); err != nil {
		o.t.Fatal(err)
	}
	return o.open()
}

// draft returns the next record.
func (o *office) draft(verb api.OperatorVerb, fill func(*api.OperatorRecord)) api.OperatorRecord {
	head := o.registry.Head()
	rec := api.OperatorRecord{V: 1, Service: head.Service, Number: head.Number + 1, Previous: head.Digest, At: o.now.UTC(), Verb: verb}
	if fill != nil {
		fill(&rec)
	}
	return rec
}

func (o *office) sign(rec api.OperatorRecord, kind seal.PayloadType, keys ...seal.Signer) []byte {
	o.t.Helper()
	payload, err := canon.Marshal(rec)
	if err != nil {
		o.t.Fatal(err)
	}
	if len(keys) == 0 {
		keys = []seal.Signer{o.operator}
	}
	envelope, err := seal.Sign(o.t.Context(), kind, payload, keys...)
	if err != nil {
		o.t.Fatal(err)
	}
	return envelope
}

func (o *office) add(rec api.OperatorRecord) error {
	o.t.Helper()
	_, err := o.registry.Add(o.t.Context(), "local:ann", o.sign(rec, seal.Operator), nil)
	return err
}

// must adds a decision.
func (o *office) must(verb api.OperatorVerb, fill func(*api.OperatorRecord)) {
	o.t.Helper()
	if err := o.add(o.draft(verb, fill)); err != nil {
		o.t.Fatalf("%s: %v", verb, err)
	}
}

func (o *office) known(p api.Principal) {
	o.t.Helper()
	o.must(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal = p })
}

func (o *office) ceiling(p api.Principal, tier api.Tier) {
	o.t.Helper()
	o.must(api.VerbCeilingSet, func(r *api.OperatorRecord) { r.Principal, r.Ceiling = p, &tier })
}

// newToken creates a token like the front door.
func newToken(expires time.Time) (text string, rec *api.TokenRecord) {
	var b, id [32]byte
	_, _ = rand.Read(b[:])
	_, _ = rand.Read(id[:])
	text = api.TokenText(b)
	name := "t-" + strings.ToLower(base32.StdEncoding.EncodeToString(id[:]))[:12]
	return text, &api.TokenRecord{ID: api.TokenID(name), Hash: api.DigestOf([]byte(text)), ExpiresAt: expires}
}

// token adds a token of p.
func (o *office) token(p api.Principal, good time.Duration) (string, api.TokenID) {
	o.t.Helper()
	text, tok := newToken(o.now.Add(good))
	o.must(api.VerbTokenCreate, func(r *api.OperatorRecord) { r.Principal, r.Token = p, tok })
	return text, tok.ID
}

// authentic fails the test unless a token authenticates p.
func (o *office) authentic(text string, p api.Principal) {
	o.t.Helper()
	if got, _, err := o.registry.Authenticate(text); err != nil || got != p {
		o.t.Errorf("the token is of %q, want %q: %v", got, p, err)
	}
}

// refused fails the test unless a token is refused with these words and this id.
func (o *office) refused(text string, id api.TokenID, words string) {
	o.t.Helper()
	who, got, err := o.registry.Authenticate(text)
	if api.CodeOf(err) != api.CodeUnauthenticated || who != "" || got != id || !strings.Contains(err.Error(), words) {
		o.t.Errorf("token %q of %q: %v, want a refusal of %q that says %q", got, who, err, id, words)
	}
	if err != nil && len(text) > 60 && strings.Contains(err.Error(), text) {
		o.t.Error("the refusal has the token in it")
	}
}

// proves R-T4
func TestATokenIsValidUntilItExpiresIsRevokedOrRotated(t *testing.T) {
	o := newOffice(t)
	o.known("agent:claude")
	text, id := o.token("agent:claude", time.Hour)
	other, otherID := o.token("agent:claude", 2*time.Hour)
	o.authentic(text, "agent:claude")
	if !o.registry.Active(id) || o.registry.Active("t-aaaaaaaaaaaa") {
		t.Error("a token is not active, or one that does not exist is")
	}

	// Rotated: the new token is valid at the moment when the old one ends.
	next, nextRec := newToken(o.now.Add(time.Hour))
	o.must(api.VerbTokenRotate, func(r *api.OperatorRecord) { r.Principal, r.Token, r.Replaces = "agent:claude", nextRec, id })
	o.refused(text, id, "rotated")
	o.authentic(next, "agent:claude")

	// Revoked.
	o.must(api.VerbTokenRevoke, func(r *api.OperatorRecord) { r.Principal, r.Replaces = "agent:claude", otherID })
	o.refused(other, otherID, "revoked")
	if o.registry.Active(otherID) {
		t.Error("a revoked token is active")
	}

	// Expired, to the instant.
	o.now = o.now.Add(time.Hour - 1)
	o.authentic(next, "agent:claude")
	o.now = o.now.Add(1)
	o.refused(next, nextRec.ID, "expired")
	if o.registry.Active(nextRec.ID) {
		t.Error("an expired token is active")
	}

	// Malformed and unknown tokens.
	stranger, _ := newToken(o.now.Add(time.Hour))
	o.refused(stranger, "", "no such token")
	for _, bad := range []string{"", "bwt_", next + "0", next[:len(next)-1], strings.ToUpper(next), " " + next, next + "\n", "Bearer " + next, string(nextRec.Hash)} {
		o.refused(bad, "", "token: want")
	}
	states := map[api.TokenID]api.TokenState{}
	for _, i := range o.registry.Tokens() {
		states[i.ID] = i.State
	}
	if states[id] != api.TokenRotated || states[otherID] != api.TokenRevoked || states[nextRec.ID] != api.TokenExpired || len(states) != 3 {
		t.Errorf("the tokens are %v", states)
	}
}

// Nothing of a removed principal stays valid, across a restart and after another
// principal gets its name.
//
// proves R-T4, R-T5
func TestARemovedPrincipalHasNothingLeft(t *testing.T) {
	o := newOffice(t)
	oauth := api.OAuthSubject{Issuer: "https://id.example", Subject: "42"}
	o.must(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal, r.OAuth = "agent:claude", &oauth })
	o.known("agent:codex")
	text, id := o.token("agent:claude", time.Hour)
	ended, endedID := o.token("agent:claude", time.Hour)
	o.must(api.VerbTokenRevoke, func(r *api.OperatorRecord) { r.Principal, r.Replaces = "agent:claude", endedID })
	other, otherID := o.token("agent:codex", time.Hour)
	o.ceiling("agent:claude", api.Irreversible)
	o.ceiling("agent:codex", api.Stateful)
	if p, ok := o.registry.Subject(oauth); !ok || p != "agent:claude" || !o.registry.Active(id) {
		t.Fatal("positive control: it has nothing")
	}
	o.now = o.now.Add(time.Minute)
	o.must(api.VerbPrincipalRemove, func(r *api.OperatorRecord) { r.Principal = "agent:claude" })
	check := func(when string) {
		t.Helper()
		o.refused(text, id, "revoked")
		o.refused(ended, endedID, "revoked")
		if o.registry.Active(id) || o.registry.Active(endedID) || o.registry.Consent("agent:claude") != api.Observe {
			t.Errorf("%s: a token or the ceiling still counts", when)
		}
		o.authentic(other, "agent:codex")
		if !o.registry.Active(otherID) || o.registry.Consent("agent:codex") != api.Stateful {
			t.Errorf("%s: another principal lost something", when)
		}
	}
	for range 2 {
		check("removed")
		if _, ok := o.registry.Subject(oauth); ok || o.registry.Known("agent:claude") {
			t.Error("it still comes with another issuer's tokens, or is known")
		}
		if err := o.add(o.draft(api.VerbPrincipalRemove, func(r *api.OperatorRecord) { r.Principal = "agent:claude" })); api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("removed twice: %v", err)
		}
		if err := o.restart(); err != nil {
			t.Fatal(err)
		}
	}
	if got := o.registry.Principal("agent:claude"); got.Known || got.OAuth != nil || len(got.Tokens) != 2 || got.Tokens[0].EndedAt == nil {
		t.Errorf("it is %+v", got)
	}
	// A principal added with the same name inherits nothing, and the subject is free.
	o.known("agent:claude")
	check("added again")
	o.must(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal, r.OAuth = "agent:remote", &oauth })
	if p, _ := o.registry.Subject(oauth); p != "agent:remote" {
		t.Errorf("the subject is %q", p)
	}
}

// The state holds the hash of a token, never the token.
//
// proves R-T4
func TestNoTokenIsStored(t *testing.T) {
	o := newOffice(t)
	o.known("agent:claude")
	text, tok := newToken(o.now.Add(time.Hour))
	o.must(api.VerbTokenCreate, func(r *api.OperatorRecord) { r.Principal, r.Token, r.Reason = "agent:claude", tok, "for the laptop" })
	found := func(needle string) bool {
		all := ""
		if err := o.store.Read(t.Context(), func(v *store.View) error {
			for _, q := range []string{"SELECT envelope FROM operator_record", "SELECT leaf FROM audit_entry"} {
				if err := v.Each(q, nil, func(scan store.Scan) error {
					var s string
					err := scan(&s)
					if payload, perr := seal.Payload([]byte(s), seal.Operator); perr == nil {
						s += string(payload)
					}
					all += s
					return err
				}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(all, needle)
	}
	if !found(string(tok.Hash)) || !found("for the laptop") {
		t.Fatal("positive control: the sweep does not see what is stored")
	}
	if found(text) || found(strings.TrimPrefix(text, api.TokenPrefix)) {
		t.Error("the token is stored")
	}
}

// proves R-T5
func TestConsentIsObserveUntilAnOperatorRaisesItAndSurvivesARestart(t *testing.T) {
	o := newOffice(t)
	for _, p := range []api.Principal{"agent:claude", "local:root", "human:nobody", ""} {
		if got := o.registry.Consent(p); got != api.Observe {
			t.Errorf("%q may go up to %s before anybody said so", p, got)
		}
	}
	o.known("agent:claude")
	o.ceiling("agent:claude", api.Irreversible)
	o.ceiling("local:ann", api.Reversible) // the operating system says who that is
	check := func(when string, claude api.Tier) {
		t.Helper()
		if a, b := o.registry.Consent("agent:claude"), o.registry.Consent("local:ann"); a != claude || b != api.Reversible {
			t.Errorf("%s: %s and %s", when, a, b)
		}
	}
	check("set", api.Irreversible)
	o.ceiling("agent:claude", api.Stateful)
	check("lowered", api.Stateful)
	if err := o.restart(); err != nil {
		t.Fatal(err)
	}
	check("after a restart", api.Stateful)
	if got := o.registry.Consent("agent:claude2"); got != api.Observe {
		t.Errorf("another principal may go up to %s", got)
	}
}

// proves R-T4, R-B9
func TestARestartKeepsEverything(t *testing.T) {
	o := newOffice(t)
	oauth := api.OAuthSubject{Issuer: "https://id.example", Subject: "42"}
	o.known("agent:claude")
	o.must(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal, r.OAuth = "agent:remote", &oauth })
	good, _ := o.token("agent:claude", time.Hour)
	bad, badID := o.token("agent:claude", time.Hour)
	o.must(api.VerbTokenRevoke, func(r *api.OperatorRecord) { r.Principal, r.Replaces = "agent:claude", badID })
	o.ceiling("agent:claude", api.Stateful)
	head, tokens, principals := o.registry.Head(), o.registry.Tokens(), o.registry.Principals()
	if err := o.restart(); err != nil {
		t.Fatal(err)
	}
	o.authentic(good, "agent:claude")
	o.refused(bad, badID, "revoked")
	if p, ok := o.registry.Subject(oauth); !ok || p != "agent:remote" {
		t.Errorf("tokens of another issuer stand for %q", p)
	}
	if _, ok := o.registry.Subject(api.OAuthSubject{Issuer: "https://id.example/", Subject: "42"}); ok {
		t.Error("another issuer's tokens stand for somebody")
	}
	if got := o.registry.Head(); got != head || got.Number != 6 {
		t.Errorf("the head is %+v, was %+v", got, head)
	}
	if got := o.registry.Tokens(); len(got) != 2 || got[0].ID != tokens[0].ID || got[1].State != tokens[1].State {
		t.Errorf("the tokens are %+v, were %+v", got, tokens)
	}
	if got := o.registry.Principals(); len(got) != len(principals) || got[0].Principal != "agent:claude" || !got[0].Known || got[0].Ceiling != api.Stateful || len(got[0].Tokens) != 2 {
		t.Errorf("the principals are %+v, were %+v", got, principals)
	}
	o.known("agent:later") // the chain continues
}

// A record and its log entry are durable together, and the entry names the decision
// and the key.
//
// proves R-A3
func TestEveryRecordIsAnEntry(t *testing.T) {
	o := newOffice(t)
	o.known("agent:claude")
	o.ceiling("agent:claude", api.Stateful)
	rec := o.draft(api.VerbCeilingSet, func(r *api.OperatorRecord) {
		tier := api.Observe
		r.Principal, r.Ceiling, r.Reason = "agent:claude", &tier, "on leave"
	})
	receipt, err := o.registry.Add(t.Context(), "local:ann", o.sign(rec, seal.Operator), nil)
	if err != nil || receipt.Number != 3 {
		t.Fatalf("%+v, %v", receipt, err)
	}
	list, err := o.ledger.List(t.Context(), audit.Query{Kind: record.KindOperatorRecorded})
	if err != nil || len(list) != 3 || list[2].Seq != receipt.AuditEntry {
		t.Fatalf("%d entries, the receipt names #%d: %v", len(list), receipt.AuditEntry, err)
	}
	line := list[2].Line().Text
	for _, want := range []string{"operator record 3", "ceiling of agent:claude set to observe", string(o.operator.KeyID()), "local:ann", `"on leave"`} {
		if !strings.Contains(line, want) {
			t.Errorf("%q does not say %q", line, want)
		}
	}
	if payload, _ := canon.Marshal(rec); list[2].Entry.Refs[record.RefRecord] != api.DigestOf(payload) || o.registry.Head().Digest != api.DigestOf(payload) {
		t.Error("the entry does not name what was signed")
	}
}

// Of two records with the same number one is accepted; the other is a conflict.
func TestOfConcurrentRecordsOneIsAccepted(t *testing.T) {
	o := newOffice(t)
	const n = 8
	errs := make(chan error, n)
	var envelopes [n][]byte // each made before any is taken
	for i := range envelopes {
		envelopes[i] = o.sign(o.draft(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal = api.Principal("agent:a" + string(rune('a'+i))) }), seal.Operator)
	}
	for _, envelope := range envelopes {
		go func() {
			_, err := o.registry.Add(t.Context(), "local:ann", envelope, nil)
			errs <- err
		}()
	}
	good := 0
	for range n {
		switch err := <-errs; {
		case err == nil:
			good++
		case api.CodeOf(err) != api.CodeConflict:
			t.Error(err)
		}
	}
	if good != 1 || len(o.registry.Principals()) != 1 || o.registry.Head().Number != 1 {
		t.Errorf("%d were taken, there are %d", good, len(o.registry.Principals()))
	}
}

// A failing disk leaves the decisions unchanged.
func TestARecordThatCannotBeWrittenIsNotInForce(t *testing.T) {
	o := newOffice(t)
	o.known("agent:claude")
	rec := o.draft(api.VerbCeilingSet, func(r *api.OperatorRecord) {
		tier := api.Irreversible
		r.Principal, r.Ceiling = "agent:claude", &tier
	})
	if err := o.store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := o.add(rec); err == nil {
		t.Error("it was taken")
	}
	if got := o.registry.Consent("agent:claude"); got != api.Observe {
		t.Errorf("consent is %s although nothing was written", got)
	}
	if got := o.registry.Head().Number; got != 1 {
		t.Errorf("the head is %d", got)
	}
}

// In a transaction, consent includes every durable record, even between a record's
// commit and the end of Add.
//
// proves R-T5
func TestConsentInATransactionIsThatOfTheRecordsBeforeIt(t *testing.T) {
	o := newOffice(t)
	tierOf := func(number uint64) api.Tier { return api.Tier(number % 3) }
	done := make(chan struct{})
	looks := make(chan int)
	go func() {
		n := 0
		defer func() { looks <- n }()
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := o.store.Update(context.Background(), func(tx *store.Tx) error {
				var newest uint64
				if err := tx.Get("SELECT coalesce(max(number), 0) FROM operator_record", nil, &newest); err != nil {
					return err
				}
				got, err := o.registry.ConsentIn(tx, "local:ann")
				if want := tierOf(newest); err == nil && got != want {
					t.Errorf("behind record %d consent is %s, want %s", newest, got, want)
				}
				n++
				return err
			}); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for range 300 {
		o.ceiling("local:ann", tierOf(o.registry.Head().Number+1))
	}
	close(done)
	if n := <-looks; n < 100 {
		t.Errorf("positive control: only %d looks", n)
	}
}
