package e2e

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/bailiwick-dev/bailiwick/api"
)

// In mode same-user one account is caller, service, operator and owner of the trust
// root: a program of it that replaces any of our programs has what each of them has.
// These are the cells of the takeover table in docs/threats.md that say yes; the
// last part is the one that an anchor changes.
//
// takeover same-user, MCP program; a person's account; page; root; service account; worker: until rewrite the log
// takeover same-user, MCP program; a person's account; page; root; service account; worker: yes define, widen, replay, start, read a secret, read work
// takeover same-user, backup: yes read a secret, read work
// takeover same-user, database: yes read work
func TestOneAccountHasEverythingInSameUser(t *testing.T) {
	t.Parallel()
	attacker, _ := attackerWorld(t)
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "mkdir outputs; echo the work of somebody > outputs/work"})
	w.up()
	const value = "correct-horse-battery-staple"
	if d := w.setSecret("token", value); d.status != 0 {
		t.Fatal(d)
	}
	wantEnd(t, w.dispatch("edit", "--source", "repo"), api.EventFinished, "")
	w.must("down")
	w.copyState("before")

	t.Log("reads a secret: value and identity are files of the account")
	identity, err := age.ParseX25519Identity(strings.TrimSpace(w.read("state/bailiwick/secrets/identity")))
	must(t, err)
	files, err := filepath.Glob(w.path("state/bailiwick/secrets/*.age"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files of secrets: %q, %v", files, err)
	}
	content, err := os.ReadFile(files[0])
	must(t, err)
	decrypt := func(i *age.X25519Identity) string {
		r, err := age.Decrypt(bytes.NewReader(content), i)
		if err != nil {
			return ""
		}
		b, _ := io.ReadAll(r)
		return string(b)
	}
	if got := decrypt(identity); got != value {
		t.Errorf("the value is %q", got)
	}
	stranger, err := age.GenerateX25519Identity()
	must(t, err)
	if decrypt(stranger) != "" {
		t.Error("control: another identity reads the value")
	}

	t.Log("reads the work of every principal: contents are files of the account")
	if found := w.filesWith("the work of somebody"); len(found) == 0 {
		t.Error("no file has the output")
	}

	t.Log("defines, widens, consents and starts: with its own trust root, a catalog that it signed, and a state without a past")
	store, trust := w.path("data/bailiwick/catalog"), w.read("data/bailiwick/trust.json")
	genuine := t.TempDir()
	copyTree(t, store, genuine)
	copyTree(t, attacker.path("data/bailiwick/catalog"), store)
	w.up()
	if d := w.try("dispatch", "run", "planted"); d.status == 0 || !strings.Contains(d.stderr, "the catalog is refused") {
		t.Errorf("control: the catalog under the trust root of its people: %s", d)
	}
	w.must("down")
	must(t, os.RemoveAll(w.path("state/bailiwick")))
	w.write("data/bailiwick/trust.json", attacker.read("data/bailiwick/trust.json"), 0o644)
	w.consent(w.me(), "reversible")
	w.up()
	d := w.dispatch("planted")
	wantEnd(t, d, api.EventFinished, "")
	if log := w.must("dispatch", "logs", string(d.ID)); !strings.Contains(log, "PLANTED") {
		t.Errorf("the planted worker wrote %q", log)
	}
	w.must("down")
	w.write("data/bailiwick/trust.json", trust, 0o644)
	copyTree(t, genuine, store)

	t.Log("rewrites the log: an older copy of the whole state, which no anchor contradicts")
	must(t, os.RemoveAll(w.path("state/bailiwick")))
	must(t, os.Rename(w.path("before"), w.path("state/bailiwick")))
	w.up()
	if entries := w.must("audit", "list"); strings.Contains(entries, "planted") || !strings.Contains(entries, "requested edit") {
		t.Errorf("the log still has the planted worker:\n%s", entries)
	}
}
