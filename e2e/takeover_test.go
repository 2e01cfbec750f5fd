package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// planted is a worker that an attacker wants to run.
func planted() subagent { return subagent{name: "planted", script: "echo PLANTED; echo " + agentRan} }

// attackerWorld is the attacker's own installation, with a signed catalog that has
// the planted worker. It returns the manifest of a run of it there.
func attackerWorld(t *testing.T) (*world, record.Manifest) {
	t.Helper()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "true"})
	// Newer than every other catalog of these tests, so that its number is not
	// the reason for a refusal.
	for _, script := range []string{"echo 2", "echo 3"} {
		w.manifest(subagent{name: "edit", script: script}, planted())
		w.must("catalog", "apply", "-f", w.path(manifest))
	}
	w.up()
	d := w.dispatch("planted", "--source", "repo")
	wantEnd(t, d, api.EventFinished, "")
	if log := w.must("dispatch", "logs", string(d.ID)); !strings.Contains(log, "PLANTED") {
		t.Fatalf("control: the planted worker does not run where it is signed: %q", log)
	}
	envelope, err := os.ReadFile(w.path("state/bailiwick/blobs/blobs/sha256", d.Manifest.Hex()))
	must(t, err)
	payload, err := seal.Payload(envelope, seal.Manifest)
	must(t, err)
	var m record.Manifest
	must(t, canon.Decode(payload, &m))
	return w, m
}

// An attacker has the process of the MCP server and its account: the socket, the
// store with write access, and finally the service's own key. A worker that no
// human signed does not run. Control: the same request succeeds as soon as a
// human has signed that worker.
//
// proves R-B5
func TestACompromisedMCPServerRunsNothingUnsigned(t *testing.T) {
	t.Parallel()
	attacker, theirs := attackerWorld(t)
	b := newBench(t)
	w, store := b.w, b.w.path("data/bailiwick/catalog")
	genuine := t.TempDir()
	copyTree(t, store, genuine)
	mcp := w.mcp(mcpNovember)
	ask := members{"subagent": "planted", "source": members{"name": "repo"}, "wait": 40}

	t.Log("requested by name before it is planted: denied, like any unknown name")
	mcp.refused(api.CodeDenied, []string{`no grant lets local:root dispatch subagent "planted"`}, "bailiwick_dispatch", ask)

	for _, a := range []struct {
		what string
		do   func()
	}{
		{"the store replaced by a catalog that the attacker signed", func() { copyTree(t, attacker.path("data/bailiwick/catalog"), store) }},
		{"the planted worker's definition put in the place of a signed one, and every digest that names it", func() {
			digest, definition := blobWith(t, store, `"command":["./edit.sh"]`)
			substitute(t, store, digest, []byte(strings.ReplaceAll(string(definition), `"edit"`, `"planted"`)))
		}},
		{"a signed worker's script replaced, and every digest that names it", func() {
			digest, _ := blobWith(t, store, "cat inputs/input.json")
			substitute(t, store, digest, []byte("#!/bin/sh\necho PLANTED\n"))
		}},
	} {
		a.do()
		e := mcp.refused(api.CodeIntegrity, []string{"the catalog is refused"}, "bailiwick_dispatch", ask)
		t.Logf("%s: %s (%s)", a.what, e.Code, e.Message)
		mcp.refused(api.CodeIntegrity, []string{"the catalog is refused"}, "bailiwick_dispatch", members{"subagent": "edit", "source": members{"name": "repo"}, "wait": 40})
		copyTree(t, genuine, store)
	}

	// The worker does not rely on the service: this one signs a manifest of the
	// planted worker with its own key.
	forged := b.manifest
	forged.Subagent, forged.Role, forged.Tier, forged.Capabilities = theirs.Subagent, theirs.Role, theirs.Tier, theirs.Capabilities
	forged.Artifacts, forged.Revision, forged.RevisionDigest = theirs.Artifacts, theirs.Revision, theirs.RevisionDigest
	forged.Source, forged.Limits, forged.Envs, forged.Input = theirs.Source, theirs.Limits, theirs.Envs, theirs.Input
	for what, put := range map[string]func(){
		"and the attacker's catalog in the store": func() { copyTree(t, attacker.path("data/bailiwick/catalog"), store) },
		"and the signed catalog in the store":     func() {},
	} {
		put()
		r, log := b.fire(b.sign(forged, b.key), "{}", nil)
		if r.Outcome != api.EventFailed || r.Reason != api.ReasonIntegrity || strings.Contains(log, "PLANTED") {
			t.Errorf("%s: %s %s %s; log %q", what, r.Outcome, r.Reason, r.Message, log)
		}
		t.Logf("a manifest for it under the service's own signature, %s: the worker refuses (%s)", what, r.Message)
		copyTree(t, genuine, store)
	}
	// Control: under the attacker's trust root it runs.
	trust := w.read("data/bailiwick/trust.json")
	copyTree(t, attacker.path("data/bailiwick/catalog"), store)
	w.write("data/bailiwick/trust.json", attacker.read("data/bailiwick/trust.json"), 0o644)
	if r, log := b.fire(b.sign(forged, b.key), "{}", nil); r.Outcome != api.EventFinished || !strings.Contains(log, "PLANTED") {
		t.Errorf("under the attacker's trust root: %s %s %s; log %q", r.Outcome, r.Reason, r.Message, log)
	}
	w.write("data/bailiwick/trust.json", trust, 0o644)
	copyTree(t, genuine, store)

	t.Log("a human signs it: the same request runs it")
	w.manifest(subagent{name: "edit", script: "true"}, planted())
	w.must("catalog", "apply", "-f", w.path(manifest))
	var d struct {
		DispatchID string    `json:"dispatchId"`
		State      api.Event `json:"state"`
	}
	mcp.ok("bailiwick_dispatch", ask, &d)
	if d.State != api.EventFinished {
		t.Errorf("signed, it ended as %+v", d)
	}
	if log := w.must("dispatch", "logs", d.DispatchID); !strings.Contains(log, "PLANTED") {
		t.Errorf("signed, it says %q", log)
	}
}
