package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
)

// planted is a worker that an attacker would like to run.
func planted() subagent { return subagent{name: "planted", script: "echo PLANTED; echo " + agentRan} }

// ofAnAttacker is an installation of somebody else's, who signed a catalog with
// a planted worker and has run it there. It returns the manifest of that run.
func ofAnAttacker(t *testing.T) (*world, record.Manifest) {
	t.Helper()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "true"})
	// Ahead of every other catalog of these tests, so that its number is no
	// reason to refuse it.
	for _, script := range []string{"echo 2", "echo 3"} {
		w.manifest(subagent{name: "edit", script: script}, planted())
		w.must("catalog", "apply", "-f", w.path(manifest))
	}
	w.up()
	d := w.dispatch("planted", "--source", "repo")
	ended(t, d, api.EventFinished, "")
	if log := w.must("dispatch", "logs", string(d.ID)); !strings.Contains(log, "PLANTED") {
		t.Fatalf("the planted worker does not run where it was signed: %q", log)
	}
	envelope, err := os.ReadFile(w.path("state/bailiwick/blobs/blobs/sha256", d.Manifest.Hex()))
	must(t, err)
	payload, err := seal.Payload(envelope, seal.Manifest)
	must(t, err)
	var m record.Manifest
	must(t, canon.Decode(payload, &m))
	return w, m
}

// Somebody has the MCP server's process, and with it its account: the socket,
// and the store, into which they write what they like; at last even the
// service's own key. A worker that no human signed does not run. The control:
// the same worker, asked for in the same words, runs as soon as a human has
// signed it.
//
// proves R-B5
func TestACompromisedMCPServerRunsNothingUnsigned(t *testing.T) {
	t.Parallel()
	attacker, theirs := ofAnAttacker(t)
	b := newBench(t)
	w, store := b.w, b.w.path("data/bailiwick/catalog")
	genuine := t.TempDir()
	copyTree(t, store, genuine)
	mcp := w.mcp(mcpNovember)
	ask := members{"subagent": "planted", "source": members{"name": "repo"}, "wait": 40}

	t.Log("asked for by name, while nobody has planted it: denied, like any name that is not there")
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

	// The worker does not rely on the service: here is one that says of the
	// planted worker what it says of a signed one, with its own key.
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
	// The control of that: where the attacker's trust root holds, it runs.
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
