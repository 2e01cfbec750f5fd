package operator

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // what an attacker writes the state with

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// replaceRoot changes the operators' trust root.
func (o *office) replaceRoot(root seal.TrustRoot) {
	o.t.Helper()
	if err := os.RemoveAll(o.rootPath()); err != nil {
		o.t.Fatal(err)
	}
	if err := seal.CreateTrustRoot(o.rootPath(), root); err != nil {
		o.t.Fatal(err)
	}
}

// Anything but the next decision, just signed by an operator for this service, is
// refused and changes nothing. The control is the same record unchanged.
//
// proves R-B9
func TestOnlyTheNextSignedRecordIsAccepted(t *testing.T) {
	raise := func(r *api.OperatorRecord) {
		tier := api.Irreversible
		r.Principal, r.Ceiling = "agent:claude", &tier
	}
	for name, c := range map[string]struct {
		code  api.Code
		words string
		forge func(o *office, rec api.OperatorRecord) []byte
	}{
		"as it ought to be": {"", "", func(o *office, rec api.OperatorRecord) []byte { return o.sign(rec, seal.Operator) }},
		"with a signature of a stranger beside the operator's": {"", "", func(o *office, rec api.OperatorRecord) []byte {
			return o.sign(rec, seal.Operator, o.operator, newSigner(o.t))
		}},
		"signed just before it expires": {"", "", func(o *office, rec api.OperatorRecord) []byte {
			rec.At = o.now.Add(-api.OperatorRecordMaxAge)
			return o.sign(rec, seal.Operator)
		}},

		"unsigned": {api.CodeIntegrity, "not signed", func(o *office, rec api.OperatorRecord) []byte {
			return edit(o.t, o.sign(rec, seal.Operator), func(e map[string]any) { e["signatures"] = []any{} })
		}},
		"by a foreign key": {api.CodeIntegrity, "not in the trust root", func(o *office, rec api.OperatorRecord) []byte { return o.sign(rec, seal.Operator, newSigner(o.t)) }},
		"by a foreign key that claims to be the operator's": {api.CodeIntegrity, "does not match", func(o *office, rec api.OperatorRecord) []byte {
			return edit(o.t, o.sign(rec, seal.Operator, newSigner(o.t)), func(e map[string]any) {
				e["signatures"].([]any)[0].(map[string]any)["keyid"] = string(o.operator.KeyID())
			})
		}},
		"signed as a revision of the catalog": {api.CodeIntegrity, "payload type", func(o *office, rec api.OperatorRecord) []byte { return o.sign(rec, seal.Revision) }},
		"signed as a revision and called an operator's": {api.CodeIntegrity, "does not match", func(o *office, rec api.OperatorRecord) []byte {
			return edit(o.t, o.sign(rec, seal.Revision), func(e map[string]any) { e["payloadType"] = string(seal.Operator) })
		}},
		"with another payload": {api.CodeIntegrity, "does not match", func(o *office, rec api.OperatorRecord) []byte {
			tier := api.Observe
			mild := rec
			mild.Ceiling = &tier
			bad, _ := canon.Marshal(rec)
			return edit(o.t, o.sign(mild, seal.Operator), func(e map[string]any) { e["payload"] = base64.StdEncoding.EncodeToString(bad) })
		}},
		"submitted before": {api.CodeConflict, "does not follow", func(o *office, _ api.OperatorRecord) []byte { return o.stored(1) }},
		"for another service": {api.CodeIntegrity, "the record is for service", func(o *office, rec api.OperatorRecord) []byte {
			rec.Service = string(newSigner(o.t).KeyID())
			return o.sign(rec, seal.Operator)
		}},
		"one place too early": {api.CodeConflict, "does not follow", func(o *office, rec api.OperatorRecord) []byte {
			rec.Number = 1
			rec.Previous = ""
			return o.sign(rec, seal.Operator)
		}},
		"one place too late": {api.CodeConflict, "does not follow", func(o *office, rec api.OperatorRecord) []byte {
			rec.Number++
			return o.sign(rec, seal.Operator)
		}},
		"behind another record": {api.CodeConflict, "does not follow", func(o *office, rec api.OperatorRecord) []byte {
			rec.Previous = api.DigestOf(nil)
			return o.sign(rec, seal.Operator)
		}},
		"stale": {api.CodeInvalid, "want one signed in the last", func(o *office, rec api.OperatorRecord) []byte {
			rec.At = o.now.Add(-api.OperatorRecordMaxAge - time.Second)
			return o.sign(rec, seal.Operator)
		}},
		"of the future": {api.CodeInvalid, "want one signed in the last", func(o *office, rec api.OperatorRecord) []byte {
			rec.At = o.now.Add(2 * time.Minute)
			return o.sign(rec, seal.Operator)
		}},
		"of another format": {api.CodeIntegrity, "format 2", func(o *office, rec api.OperatorRecord) []byte {
			rec.V = 2
			return o.sign(rec, seal.Operator)
		}},
		"with an unknown member": {api.CodeIntegrity, "shell", func(o *office, rec api.OperatorRecord) []byte {
			payload, _ := canon.Marshal(rec)
			return o.signBytes([]byte(strings.Replace(string(payload), `"verb"`, `"shell":"x","verb"`, 1)))
		}},
		"not canonical": {api.CodeIntegrity, "canonical", func(o *office, rec api.OperatorRecord) []byte {
			payload, _ := canon.Marshal(rec)
			return o.signBytes(append(payload, ' '))
		}},
		"huge":     {api.CodeIntegrity, "too large", func(*office, api.OperatorRecord) []byte { return make([]byte, 1<<20) }},
		"nothing":  {api.CodeIntegrity, "", func(*office, api.OperatorRecord) []byte { return nil }},
		"not JSON": {api.CodeIntegrity, "", func(*office, api.OperatorRecord) []byte { return []byte("{") }},
		"twice in it": {api.CodeIntegrity, "duplicate", func(o *office, rec api.OperatorRecord) []byte {
			return []byte(strings.Replace(string(o.sign(rec, seal.Operator)), `{`, `{"payload":"",`, 1))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t)
			o.known("agent:claude")
			envelope := c.forge(o, o.draft(api.VerbCeilingSet, raise))
			_, err := o.registry.Add(t.Context(), "local:ann", envelope, nil)
			consent := api.Observe
			if c.code == "" {
				consent = api.Irreversible
				if err != nil {
					t.Errorf("positive control: %v", err)
				}
			} else if api.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%v, want %s that says %q", err, c.code, c.words)
			}
			if got := o.registry.Consent("agent:claude"); got != consent {
				t.Errorf("consent is %s, want %s", got, consent)
			}
			if err := o.restart(); err != nil {
				t.Errorf("the service does not start again: %v", err)
			} else if got := o.registry.Consent("agent:claude"); got != consent {
				t.Errorf("after a restart consent is %s, want %s", got, consent)
			}
		})
	}
}

func (o *office) signBytes(payload []byte) []byte {
	o.t.Helper()
	envelope, err := seal.Sign(o.t.Context(), seal.Operator, payload, o.operator)
	if err != nil {
		o.t.Fatal(err)
	}
	return envelope
}

// edit changes an envelope and keeps it in canonical form.
func edit(t testing.TB, envelope []byte, change func(map[string]any)) []byte {
	t.Helper()
	var e map[string]any
	if err := json.Unmarshal(envelope, &e); err != nil {
		t.Fatal(err)
	}
	change(e)
	b, err := canon.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// An inapplicable decision is refused and changes nothing. The controls are the tests
// of each verb.
//
// proves R-T4
func TestAnInapplicableDecisionIsRefused(t *testing.T) {
	o := newOffice(t)
	o.known("agent:claude")
	o.known("agent:codex")
	_, id := o.token("agent:claude", time.Hour)
	_, gone := o.token("agent:claude", time.Hour)
	o.must(api.VerbTokenRevoke, func(r *api.OperatorRecord) { r.Principal, r.Replaces = "agent:claude", gone })
	oauth := api.OAuthSubject{Issuer: "https://id.example", Subject: "1"}
	o.must(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal, r.OAuth = "agent:remote", &oauth })
	tier := api.Irreversible
	_, fresh := newToken(o.now.Add(time.Hour))
	used := *fresh
	used.ID = id
	dead := *fresh
	dead.ExpiresAt = o.now
	eternal := *fresh
	eternal.ExpiresAt = o.now.AddDate(3, 0, 0)
	for name, c := range map[string]struct {
		verb  api.OperatorVerb
		words string
		fill  func(*api.OperatorRecord)
	}{
		"a principal twice": {api.VerbPrincipalAdd, "already exists", func(r *api.OperatorRecord) { r.Principal = "agent:claude" }},
		"one subject for two principals": {api.VerbPrincipalAdd, "already belongs to principal agent:remote", func(r *api.OperatorRecord) {
			r.Principal, r.OAuth = "agent:other", &oauth
		}},
		"an account as a principal":           {api.VerbPrincipalAdd, "operating system", func(r *api.OperatorRecord) { r.Principal = "local:root" }},
		"a token for an account":              {api.VerbTokenCreate, "operating system", func(r *api.OperatorRecord) { r.Principal, r.Token = "local:root", fresh }},
		"a token for an unknown principal":    {api.VerbTokenCreate, "unknown principal", func(r *api.OperatorRecord) { r.Principal, r.Token = "agent:cluade", fresh }},
		"a ceiling for an unknown principal":  {api.VerbCeilingSet, "unknown principal", func(r *api.OperatorRecord) { r.Principal, r.Ceiling = "agent:cluade", &tier }},
		"a token's id again":                  {api.VerbTokenCreate, "duplicate token id", func(r *api.OperatorRecord) { r.Principal, r.Token = "agent:claude", &used }},
		"a token that has expired":            {api.VerbTokenCreate, "want a time after", func(r *api.OperatorRecord) { r.Principal, r.Token = "agent:claude", &dead }},
		"a token for ever":                    {api.VerbTokenCreate, "at most", func(r *api.OperatorRecord) { r.Principal, r.Token = "agent:claude", &eternal }},
		"the removal of an unknown principal": {api.VerbPrincipalRemove, "unknown principal", func(r *api.OperatorRecord) { r.Principal = "agent:cluade" }},
		"the removal of an account":           {api.VerbPrincipalRemove, "operating system", func(r *api.OperatorRecord) { r.Principal = "local:root" }},
		"the end of an unknown token":         {api.VerbTokenRevoke, "no such token", func(r *api.OperatorRecord) { r.Principal, r.Replaces = "agent:claude", "t-aaaaaaaaaaaa" }},
		"an end of another's token":           {api.VerbTokenRevoke, "belongs to agent:claude", func(r *api.OperatorRecord) { r.Principal, r.Replaces = "agent:codex", id }},
		"an end of a token that has ended":    {api.VerbTokenRevoke, "was revoked", func(r *api.OperatorRecord) { r.Principal, r.Replaces = "agent:claude", gone }},
		"a rotation of a revoked token":       {api.VerbTokenRotate, "was revoked", func(r *api.OperatorRecord) { r.Principal, r.Replaces, r.Token = "agent:claude", gone, fresh }},
		"a rotation into another's hands":     {api.VerbTokenRotate, "belongs to agent:claude", func(r *api.OperatorRecord) { r.Principal, r.Replaces, r.Token = "agent:codex", id, fresh }},
		"lifting a stop that is not there":    {api.VerbStopLift, "stop s-99", func(r *api.OperatorRecord) { r.Stop = "s-99" }},
		"a member that the verb does not have": {api.VerbTokenRevoke, "not allowed with this verb", func(r *api.OperatorRecord) {
			r.Principal, r.Replaces, r.Ceiling = "agent:claude", id, &tier
		}},
	} {
		before := o.registry.Head()
		err := o.add(o.draft(c.verb, c.fill))
		if err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want a refusal that says %q", name, err, c.words)
		}
		if o.registry.Head() != before || !o.registry.Active(id) || o.registry.Consent("local:root") != api.Observe {
			t.Errorf("%s: changed something", name)
		}
	}
	if err := o.restart(); err != nil {
		t.Fatal(err)
	}
}

// write changes the state database as an attacker can while the service is stopped:
// it removes the triggers first.
func (o *office) write(statements ...string) {
	o.t.Helper()
	if err := o.store.Close(); err != nil {
		o.t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(o.dir, "store", "*.db"))
	if err != nil || len(files) != 1 {
		o.t.Fatalf("the state is in %v: %v", files, err)
	}
	db, err := sql.Open("sqlite", files[0])
	if err != nil {
		o.t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // the test's
	all := append([]string{
		"DROP TRIGGER operator_record_update", "DROP TRIGGER operator_record_delete", "DROP TRIGGER audit_entry_update", "DROP TRIGGER audit_entry_delete",
	}, statements...)
	for _, s := range all {
		if _, err := db.ExecContext(context.Background(), s); err != nil {
			o.t.Fatalf("%s: %v", s, err)
		}
	}
}

// stored returns the envelope of a record.
func (o *office) stored(number uint64) (envelope []byte) {
	o.t.Helper()
	if err := o.registry.Chain.stored(o.t.Context(), func(n uint64, e []byte) error {
		if n == number {
			envelope = e
		}
		return nil
	}); err != nil {
		o.t.Fatal(err)
	}
	return envelope
}

func quoted(envelope []byte) string {
	return "'" + strings.ReplaceAll(string(envelope), "'", "''") + "'"
}

// A chain with a gap, or one that differs from the log, refuses the start with an
// error that names the record.
//
// takeover both modes, database: no widen
//
// proves R-B9, R-T5
func TestATamperedChainRefusesTheStart(t *testing.T) {
	for name, c := range map[string]struct {
		words  string
		tamper func(o *office)
	}{
		"nothing": {"", func(o *office) { o.write() }},
		"a record removed from the middle": {"record 2 is missing", func(o *office) {
			o.write("DELETE FROM operator_record WHERE number = 2")
		}},
		"the first removed":  {"record 1 is missing", func(o *office) { o.write("DELETE FROM operator_record WHERE number = 1") }},
		"the newest removed": {"record 4 is missing: log entry #3", func(o *office) { o.write("DELETE FROM operator_record WHERE number = 4") }},
		"all removed":        {"record 1 is missing: log entry #0", func(o *office) { o.write("DELETE FROM operator_record") }},
		"two exchanged": {"record 2", func(o *office) {
			o.write(fmt.Sprintf("UPDATE operator_record SET envelope = %s WHERE number = 2", quoted(o.stored(3))))
		}},
		"the newest replaced by an earlier one": {"record 4", func(o *office) {
			o.write(fmt.Sprintf("UPDATE operator_record SET envelope = %s WHERE number = 4", quoted(o.stored(3))))
		}},
		"the newest replaced by another that is signed": {"record 4 differs from the one recorded", func(o *office) {
			o.write(fmt.Sprintf("UPDATE operator_record SET envelope = %s WHERE number = 4", quoted(o.sibling(o.operator))))
		}},
		"the newest replaced by a stranger's": {"record 4", func(o *office) {
			o.write(fmt.Sprintf("UPDATE operator_record SET envelope = %s WHERE number = 4", quoted(o.sibling(newSigner(o.t)))))
		}},
		"one added without a log entry": {"record 5 has no log entry", func(o *office) {
			envelope := o.sign(o.draft(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal = "agent:sneaky" }), seal.Operator)
			o.write(fmt.Sprintf("INSERT INTO operator_record VALUES (5, %s)", quoted(envelope)))
		}},
		"a flipped bit in a payload": {"record 3", func(o *office) {
			bad := edit(o.t, o.stored(3), func(e map[string]any) {
				payload := []byte(e["payload"].(string))
				payload[40] ^= 1
				e["payload"] = string(payload)
			})
			o.write(fmt.Sprintf("UPDATE operator_record SET envelope = %s WHERE number = 3", quoted(bad)))
		}},
		"an empty envelope": {"record 3", func(o *office) { o.write("UPDATE operator_record SET envelope = '' WHERE number = 3") }},
		"the operator's key exchanged": {"record 1", func(o *office) {
			o.write()
			o.root(newSigner(o.t))
		}},
		"no operator any more": {"record 1: this installation has no operator key", func(o *office) {
			o.write()
			if err := os.Remove(o.rootPath()); err != nil {
				o.t.Fatal(err)
			}
		}},
		"keys that others can write": {"chmod go-w", func(o *office) {
			o.write()
			if err := os.Chmod(o.rootPath(), 0o666); err != nil {
				o.t.Fatal(err)
			}
		}},
		"invalid keys": {"trust root", func(o *office) {
			o.write()
			if err := os.WriteFile(o.rootPath(), []byte("{}"), 0o644); err != nil {
				o.t.Fatal(err)
			}
		}},
		"a second key beside the first": {"", func(o *office) {
			o.write()
			o.root(o.operator, newSigner(o.t))
		}},
		"more signatures wanted than there are": {"record 1", func(o *office) {
			o.write()
			root := seal.RootOf(seal.KeyOf(o.operator, ""), seal.KeyOf(newSigner(o.t), ""))
			root.Threshold = 2
			o.replaceRoot(root)
		}},
		"the key of the service exchanged": {"the record is for service", func(o *office) {
			o.write()
			o.service = newSigner(o.t).KeyID()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t)
			o.known("agent:claude")
			o.ceiling("agent:claude", api.Irreversible)
			o.token("agent:claude", time.Hour)
			o.ceiling("agent:claude", api.Observe) // what somebody may want to be without
			c.tamper(o)
			err := o.restart()
			if c.words == "" {
				if err != nil || o.registry.Consent("agent:claude") != api.Observe {
					t.Errorf("positive control: %v", err)
				}
				return
			}
			if api.CodeOf(err) != api.CodeIntegrity || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%v, want a refusal that says %q", err, c.words)
			}
			if o.registry != nil {
				t.Error("there is a registry all the same")
			}
		})
	}
}

// sibling returns another record with the number of the newest, signed by a key.
func (o *office) sibling(key seal.Signer) []byte {
	o.t.Helper()
	payload, err := seal.Payload(o.stored(4), seal.Operator)
	if err != nil {
		o.t.Fatal(err)
	}
	var rec api.OperatorRecord
	if err := json.Unmarshal(payload, &rec); err != nil {
		o.t.Fatal(err)
	}
	tier := api.Irreversible
	rec.Ceiling = &tier
	return o.sign(rec, seal.Operator, key)
}

// The keys are read again for every record: a removed key signs nothing more, and a
// chain that the new keys do not verify does not grow.
//
// proves R-B9
func TestChangedOperatorKeysTakeEffectAtOnce(t *testing.T) {
	o := newOffice(t)
	first, second := o.operator, newSigner(t)
	o.known("agent:a")
	rec := o.draft(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal = "agent:b" })
	if _, err := o.registry.Add(t.Context(), "local:ann", o.sign(rec, seal.Operator, second), nil); api.CodeOf(err) != api.CodeIntegrity {
		t.Errorf("a key that is not listed: %v", err)
	}
	o.root(first, second)
	if _, err := o.registry.Add(t.Context(), "local:ann", o.sign(rec, seal.Operator, second), nil); err != nil {
		t.Errorf("positive control: a key that is listed now: %v", err)
	}
	o.root(second)
	rec = o.draft(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal = "agent:c" })
	if _, err := o.registry.Add(t.Context(), "local:ann", o.sign(rec, seal.Operator, second), nil); api.CodeOf(err) != api.CodeIntegrity || !strings.Contains(err.Error(), "record 1") {
		t.Errorf("a chain that does not verify grows: %v", err)
	}
	if err := os.Remove(o.rootPath()); err != nil {
		t.Fatal(err)
	}
	if _, err := o.registry.Add(t.Context(), "local:ann", o.sign(rec, seal.Operator, second), nil); err == nil || !strings.Contains(err.Error(), "no operator key") {
		t.Errorf("without keys: %v", err)
	} else if e, ok := errors.AsType[*api.Error](err); !ok || !strings.Contains(e.Hint, "restore ") || strings.Contains(e.Hint, "init") {
		t.Errorf("new keys would not verify what was signed, and the hint is %v", err)
	}
	o.root(first, second)
	if err := o.restart(); err != nil {
		t.Error(err)
	}
}

// With a threshold of two, one operator alone decides nothing.
//
// takeover both modes, one operator key: until widen
//
// proves R-B9
func TestAThresholdNeedsSeveralOperators(t *testing.T) {
	o := newOffice(t)
	second := newSigner(t)
	root := seal.RootOf(seal.KeyOf(o.operator, ""), seal.KeyOf(second, ""))
	root.Threshold = 2
	o.replaceRoot(root)
	rec := o.draft(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal = "agent:b" })
	for name, keys := range map[string][]seal.Signer{"one": {o.operator}, "one and a stranger": {o.operator, newSigner(t)}} {
		if _, err := o.registry.Add(t.Context(), "local:ann", o.sign(rec, seal.Operator, keys...), nil); api.CodeOf(err) != api.CodeIntegrity {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := o.registry.Add(t.Context(), "local:ann", o.sign(rec, seal.Operator, o.operator, second), nil); err != nil {
		t.Errorf("positive control: %v", err)
	}
}

// FuzzAdd: nothing unsigned is accepted, and every failure is a refusal.
func FuzzAdd(f *testing.F) {
	f.Add([]byte(`{"payload":"e30=","payloadType":"application/vnd.bailiwick.operator.v1+json","signatures":[]}`))
	f.Add([]byte(`{"v":1}`))
	f.Fuzz(func(t *testing.T, envelope []byte) {
		c := &Chain{Config{Service: "ed25519:00000000000000000000000000000000"}}
		signer, err := seal.NewEphemeral()
		if err != nil {
			t.Fatal(err)
		}
		operators, err := seal.NewOperators(seal.RootOf(seal.KeyOf(signer, "")))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.verify(envelope, operators); err == nil {
			t.Errorf("%q was taken", envelope)
		}
		// An envelope that an operator signed is parsed.
		signed, err := seal.Sign(t.Context(), seal.Operator, envelope, signer)
		if err != nil {
			return
		}
		v, err := c.verify(signed, operators)
		if err != nil {
			return
		}
		s := newState()
		s.start(operators)
		_ = s.apply(verified{record: v.record, digest: v.digest})
	})
}
