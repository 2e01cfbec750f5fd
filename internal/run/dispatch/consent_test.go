package dispatch

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/operator"
)

const consentManifest = `version: 1
subagents:
  - {name: edit, agent: command, command: ["true"], role: transform, tier: reversible, target: local}
targets:
  - {name: local, executor: jail, level: full, mode: guarded}
roles: [transform]
grants:
  - {principal: "local:ann", subagents: [edit], targets: [local], ceiling: irreversible}
`

// operators makes a key an operator's, and returns what sets ceilings with it.
func (g gate) operators(t *testing.T) (set func(api.Principal, api.Tier)) {
	t.Helper()
	key, err := seal.NewEphemeral()
	if err != nil {
		t.Fatal(err)
	}
	if err := seal.CreateTrustRoot(filepath.Join(g.cfg.Dirs.State, "operators.json"), seal.RootOf(seal.KeyOf(key, ""))); err != nil {
		t.Fatal(err)
	}
	registry := g.cfg.Registry.(*operator.Registry)
	return func(p api.Principal, tier api.Tier) {
		t.Helper()
		head := registry.Head()
		payload, err := canon.Marshal(api.OperatorRecord{
			V: 1, Service: head.Service, Number: head.Number + 1, Previous: head.Digest, At: time.Now().UTC(), Verb: api.VerbCeilingSet, Principal: p, Ceiling: &tier,
		})
		if err != nil {
			t.Fatal(err)
		}
		envelope, err := seal.Sign(t.Context(), seal.Operator, payload, key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := registry.Add(t.Context(), "local:ann", envelope, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// Consent that is lowered after a request was allowed and before that is
// durable counts.
//
// proves R-T5, R-A2
func TestConsentLoweredDuringAdmissionCounts(t *testing.T) {
	for name, c := range map[string]struct {
		whose api.Principal
		tier  api.Tier
		code  api.Code
		words string
	}{
		"raised":                     {"local:ann", api.Irreversible, "", ""},
		"another's":                  {"local:bob", api.Observe, "", ""},
		"taken back":                 {"local:ann", api.Observe, api.CodeDenied, "ceiling set local:ann reversible"},
		"lowered below the manifest": {"local:ann", api.Reversible, api.CodeConflict, "retry"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newCatalogGate(t, consentManifest)
			set := g.operators(t)
			set("local:ann", api.Stateful)
			g.overtake(func() { set(c.whose, c.tier) })
			d, err := g.Submit(t.Context(), ann, api.DispatchRequest{Subagent: "edit"})
			if c.code == "" {
				if err != nil || !g.started(t) {
					t.Fatalf("positive control: %v", err)
				}
				m, err := g.manifest(t.Context(), d.Manifest)
				if err != nil || m.Ceiling != api.Stateful {
					t.Errorf("its ceiling is %s, want what was consented to when it was decided: %v", m.Ceiling, err)
				}
				return
			}
			if api.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.words) || g.started(t) {
				t.Errorf("%v, want %s that says %q", err, c.code, c.words)
			}
			if slices.Contains(g.kinds(t), record.KindDispatchAccepted) {
				t.Errorf("the log has %v", g.kinds(t))
			}
			// The next request is decided by what holds now.
			_, err = g.Submit(t.Context(), ann, api.DispatchRequest{Subagent: "edit"})
			if (err == nil) != (c.tier >= api.Reversible) || g.started(t) != (err == nil) {
				t.Errorf("asked again: %v", err)
			}
		})
	}
}

// A request that does not say how far it goes goes nowhere.
//
// proves R-T5
func TestCallerWithoutCeilingMayOnlyObserve(t *testing.T) {
	g := newCatalogGate(t, consentManifest)
	g.operators(t)("local:ann", api.Irreversible)
	if _, err := g.Submit(t.Context(), Caller{Principal: "local:ann"}, api.DispatchRequest{Subagent: "edit"}); api.CodeOf(err) != api.CodeDenied {
		t.Errorf("the zero ceiling: %v", err)
	}
	if _, err := g.Submit(t.Context(), ann, api.DispatchRequest{Subagent: "edit"}); err != nil || !g.started(t) {
		t.Errorf("positive control: %v", err)
	}
}

// A token that is revoked after its request was allowed and before that is
// durable counts.
//
// proves R-T4
func TestTokenRevokedDuringAdmissionCounts(t *testing.T) {
	for name, ends := range map[string]bool{"ends": true, "positive control": false} {
		t.Run(name, func(t *testing.T) {
			g := newCatalogGate(t, consentManifest)
			g.operators(t)("local:ann", api.Stateful)
			good := true
			g.overtake(func() { good = !ends })
			by := ann
			by.TokenValid = func() bool { return good }
			_, err := g.Submit(t.Context(), by, api.DispatchRequest{Subagent: "edit"})
			if !ends {
				if err != nil || !g.started(t) {
					t.Fatal(err)
				}
				return
			}
			if api.CodeOf(err) != api.CodeUnauthenticated || g.started(t) || slices.Contains(g.kinds(t), record.KindDispatchAccepted) {
				t.Errorf("%v, the log has %v", err, g.kinds(t))
			}
		})
	}
}

// proves R-T4
func TestTokenRevokedDuringAnswerCounts(t *testing.T) {
	g := newStopGate(t)
	r := g.asked(t)
	good := true
	g.overtake(func() { good = false })
	by := ann
	by.TokenValid = func() bool { return good }
	_, err := g.Answer(t.Context(), by, r.record.ID, api.AnswerRequest{Text: "this one"})
	got, _, rowErr := g.row(t.Context(), r.record.ID)
	if api.CodeOf(err) != api.CodeUnauthenticated || rowErr != nil || got.record.State != api.EventNeedsInput || got.record.Attempt != 1 || g.started(t) {
		t.Errorf("%v, %+v, %v", err, got.record, rowErr)
	}
	if _, err := g.Answer(t.Context(), ann, r.record.ID, api.AnswerRequest{Text: "this one"}); err != nil || !g.started(t) {
		t.Errorf("positive control: %v", err)
	}
}
