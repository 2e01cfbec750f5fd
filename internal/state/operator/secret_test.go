package operator

import (
	"errors"
	"slices"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// drawer keeps contents in memory.
type drawer struct {
	held map[api.Digest]bool
	full bool
}

func (d *drawer) Put(content []byte) error {
	if d.full {
		return errors.New("full")
	}
	d.held[api.DigestOf(content)] = true
	return nil
}

func (d *drawer) Keep(keep func(api.Digest) bool) error {
	for h := range d.held {
		if !keep(h) {
			delete(d.held, h)
		}
	}
	return nil
}

// A value is in force once its record is durable, and only with the signed content;
// what no record in force names is removed, also at the next start.
//
// proves R-C3, R-B9
func TestAValueIsInForceWithItsRecord(t *testing.T) {
	o, keeper := newOffice(t), &drawer{held: map[api.Digest]bool{}}
	o.registry.cfg.Secrets = keeper
	set := func(name api.Name, signed, sent string) error {
		rec := o.draft(api.VerbSecretSet, func(r *api.OperatorRecord) { r.Secret, r.Content = name, api.DigestOf([]byte(signed)) })
		_, err := o.registry.Add(t.Context(), "local:ann", o.sign(rec, seal.Operator), []byte(sent))
		return err
	}
	inForce := func(name api.Name, want string) {
		t.Helper()
		d, ok := o.registry.Secret(name)
		if ok != (want != "") || ok && d != api.DigestOf([]byte(want)) || ok && !keeper.held[d] {
			t.Errorf("%s: %s %v, want %q", name, d, ok, want)
		}
	}
	if err := set("key", "one", "two"); api.CodeOf(err) != api.CodeIntegrity {
		t.Errorf("another content than the signed one: %v", err)
	}
	if err := set("key", "one", ""); err == nil {
		t.Error("no content is accepted")
	}
	keeper.full = true
	if err := set("key", "one", "one"); err == nil {
		t.Error("a content that cannot be stored is accepted")
	}
	keeper.full = false
	if inForce("key", ""); o.registry.Head().Number != 0 || len(keeper.held) != 0 {
		t.Fatal("a refused record left something")
	}
	for _, content := range []string{"one", "two"} {
		if err := set("key", content, content); err != nil {
			t.Fatal(err)
		}
		inForce("key", content)
	}
	if len(keeper.held) != 1 {
		t.Errorf("the old value is kept: %v", keeper.held)
	}
	rec := o.draft(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal = "agent:a" })
	if _, err := o.registry.Add(t.Context(), "local:ann", o.sign(rec, seal.Operator), []byte("one")); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("content with another verb: %v", err)
	}
	if err := o.restart(); err != nil {
		t.Fatal(err)
	}
	inForce("key", "two")
	if got := o.registry.Secrets(); !slices.Equal(got, []api.Name{"key"}) {
		t.Errorf("set are %v", got)
	}
	if err := set("key", "three", "three"); api.CodeOf(err) != api.CodeUnavailable { // this registry has no keeper
		t.Errorf("without a keeper: %v", err)
	}
	keeper.held[api.DigestOf([]byte("left by a crash"))] = true
	o.registry.cfg.Secrets = keeper
	var err error
	if o.registry, err = Open(t.Context(), o.registry.cfg); err != nil || len(keeper.held) != 1 {
		t.Errorf("after a crash: %v, %v", keeper.held, err)
	}
	o.must(api.VerbSecretRemove, func(r *api.OperatorRecord) { r.Secret = "key" })
	if inForce("key", ""); len(keeper.held) != 0 {
		t.Errorf("the removed value is kept: %v", keeper.held)
	}
	if err := o.add(o.draft(api.VerbSecretRemove, func(r *api.OperatorRecord) { r.Secret = "key" })); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("removed twice: %v", err)
	}
}
