package e2e

import (
	"encoding/base64"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// cosignProgram is the path of the cosign that make setup builds.
var cosignProgram = toolProgram("cosign-3.1.3")

// cosign runs cosign verify-blob-attestation in a network namespace without
// interfaces, not even loopback.
func (w *world) cosign(args ...string) (said string, ok bool) {
	w.t.Helper()
	program, err := cosignProgram()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(program, append([]string{"verify-blob-attestation"}, args...)...)
	cmd.Dir, cmd.Env = w.dir, []string{"HOME=" + w.path("home"), "TMPDIR=" + w.path("tmp")}
	cmd.SysProcAttr = ownNetwork()
	out, err := cmd.CombinedOutput()
	if ok = err == nil; ok && !strings.Contains(string(out), "Verified OK") {
		w.t.Errorf("cosign does not report success: %s", out)
	}
	return string(out), ok
}

// ownNetwork starts a process in a new network namespace.
func ownNetwork() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Getuid() != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return a
}

// daemon runs bailiwickd and fails the test unless it succeeds.
func (w *world) daemon(args ...string) string {
	w.t.Helper()
	d := w.exec(filepath.Join(bin, "bailiwickd"), args...)
	if d.status != 0 {
		w.t.Fatalf("bailiwickd %s: %s", strings.Join(args, " "), d)
	}
	return d.stdout
}

// attestation returns the attestation of a dispatch, which key must have signed.
func (w *world) attestation(id api.DispatchID, key string) record.Statement {
	w.t.Helper()
	envelope := []byte(w.must("dispatch", "attestation", string(id)))
	ids, err := seal.Signers(envelope, seal.Statement)
	if err != nil || len(ids) != 1 || key != "" && string(ids[0]) != key {
		w.t.Fatalf("dispatch %s: signed by %v, want %s: %v", id, ids, key, err)
	}
	payload, err := seal.Payload(envelope, seal.Statement)
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := record.ParseStatement(payload)
	if err != nil {
		w.t.Fatal(err)
	}
	if d := w.show(string(id)); d.Statement != api.DigestOf(envelope) {
		w.t.Errorf("dispatch %s: the record names statement %s, want %s", id, d.Statement, api.DigestOf(envelope))
	}
	return s
}

// tamper changes an envelope in a file as an attacker would, and writes it to
// another file.
func (w *world) tamper(from, to string, change func(e map[string]any)) string {
	w.t.Helper()
	b, err := os.ReadFile(w.path(from))
	if err != nil {
		w.t.Fatal(err)
	}
	var e map[string]any
	if err := json.Unmarshal(b, &e); err != nil {
		w.t.Fatal(err)
	}
	if change(e); e["dsseEnvelope"] == nil && e["payload"] == nil {
		w.t.Fatal("not an envelope")
	}
	if b, err = json.Marshal(e); err != nil {
		w.t.Fatal(err)
	}
	w.write(to, string(b), 0o644)
	return w.path(to)
}

// cosign verifies, offline, that the attestation is of this patch, and refuses any
// variation of it. Control: without the offline flag it needs a network.
//
// proves R-A8, R-A9
func TestCosignVerifiesAnAttestationOffline(t *testing.T) {
	for _, algorithm := range []string{"ed25519", "ecdsa-p256"} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 0)
			w.repository("repo", map[string]string{"a.txt": "one\n"})
			w.catalog(subagent{name: "edits", script: "echo two > a.txt; echo out > outputs/o.txt"})
			w.mkdir("keys")
			must(t, os.Chown(w.path("keys"), w.serviceUID(), w.serviceUID()))
			if algorithm == "ecdsa-p256" {
				w.daemon("key", "create", w.path("keys/statements.key"), "--ecdsa")
				w.write("config/bailiwick/service.yaml", "version: 1\nkeys:\n  statements: "+w.path("keys/statements.key")+"\n", 0o600)
			}
			w.up()
			d := w.dispatch("edits", "--source", "repo")
			wantEnd(t, d, api.EventFinished, "")
			other := w.dispatch("edits", "--source", "repo")
			for _, id := range []api.DispatchID{d.ID, other.ID} {
				w.must("dispatch", "attestation", string(id), "--out", w.path(string(id)+".json"))
				w.must("dispatch", "attestation", string(id), "--bundle", "--out", w.path(string(id)+".bundle"))
			}
			w.must("dispatch", "patch", string(d.ID), "--to", w.path("work.patch"))
			w.write("o.txt", w.must("dispatch", "outputs", string(d.ID), "o.txt"), 0o644)
			w.write("ours.pem", w.daemon("key", "show", "--pem", "statements"), 0o644)
			if ids := w.daemon("key", "show"); !strings.Contains(ids, "statements  "+algorithm+":") {
				t.Fatalf("%s", ids)
			}
			w.daemon("key", "create", w.path("keys/foreign.key"), map[string]string{"ed25519": "--ecdsa=false", "ecdsa-p256": "--ecdsa"}[algorithm])
			must(t, os.Chown(w.path("keys/foreign.key.pub"), os.Getuid(), -1))
			foreign, err := seal.LoadPublic(w.path("keys/foreign.key"))
			if err != nil {
				t.Fatal(err)
			}
			text, err := foreign.PEM()
			if err != nil {
				t.Fatal(err)
			}
			w.write("foreign.pem", string(text), 0o644)
			patch, err := os.ReadFile(w.path("work.patch"))
			if err != nil {
				t.Fatal(err)
			}
			w.write("changed.patch", strings.Replace(string(patch), "two", "six", 1), 0o644)

			file := string(d.ID) + ".json"
			forged := func(e map[string]any) {
				payload, err := base64.StdEncoding.DecodeString(e["payload"].(string))
				if err != nil {
					t.Fatal(err)
				}
				changed := strings.Replace(string(payload), api.DigestOf(patch).Hex(), api.DigestOf([]byte(strings.Replace(string(patch), "two", "six", 1))).Hex(), 1)
				if changed == string(payload) {
					t.Fatal("the attestation does not name the patch")
				}
				e["payload"] = base64.StdEncoding.EncodeToString([]byte(changed))
			}
			for name, c := range map[string]struct {
				form, file, key, blob string
				ok                    bool
			}{
				"the patch":                          {"--signature", w.path(file), "ours.pem", "work.patch", true},
				"an output":                          {"--signature", w.path(file), "ours.pem", "o.txt", true},
				"the patch, by a bundle":             {"--bundle", w.path(string(d.ID) + ".bundle"), "ours.pem", "work.patch", true},
				"the other's, of the same patch":     {"--signature", w.path(string(other.ID) + ".json"), "ours.pem", "work.patch", true},
				"a changed patch":                    {"--signature", w.path(file), "ours.pem", "changed.patch", false},
				"a changed patch, by a bundle":       {"--bundle", w.path(string(d.ID) + ".bundle"), "ours.pem", "changed.patch", false},
				"another's key":                      {"--signature", w.path(file), "foreign.pem", "work.patch", false},
				"another's key, by a bundle":         {"--bundle", w.path(string(d.ID) + ".bundle"), "foreign.pem", "work.patch", false},
				"no signature":                       {"--signature", w.tamper(file, "stripped.json", func(e map[string]any) { e["signatures"] = []any{} }), "ours.pem", "work.patch", false},
				"a forged statement":                 {"--signature", w.tamper(file, "forged.json", forged), "ours.pem", "changed.patch", false},
				"another payload type":               {"--signature", w.tamper(file, "type.json", func(e map[string]any) { e["payloadType"] = "application/json" }), "ours.pem", "work.patch", false},
				"the other's signature under this":   {"--signature", w.tamper(file, "swapped.json", func(e map[string]any) { e["signatures"] = w.signatures(string(other.ID) + ".json") }), "ours.pem", "work.patch", false},
				"the statement of the other's patch": {"--signature", w.path(string(other.ID) + ".json"), "ours.pem", "changed.patch", false},
			} {
				said, ok := w.cosign("--key", w.path(c.key), c.form, c.file, "--type", "slsaprovenance1", "--insecure-ignore-tlog", w.path(c.blob))
				if ok != c.ok {
					t.Errorf("%s: verified %v: %s", name, ok, said)
				}
			}
			if said, ok := w.cosign("--key", w.path("ours.pem"), "--signature", w.path(file), "--type", "slsaprovenance1", w.path("work.patch")); ok {
				t.Errorf("control: the namespace has a network: %s", said)
			}
			if up := interfacesUp(t); len(up) == 0 {
				t.Error("control: the test itself has no network")
			}
		})
	}
}

func (w *world) signatures(file string) (s any) {
	w.tamper(file, "unused.json", func(e map[string]any) { s = e["signatures"] })
	return s
}

// interfacesUp returns the interfaces of the test's own namespace that are up.
func interfacesUp(t *testing.T) (up []string) {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if i.Flags&net.FlagUp != 0 {
			up = append(up, i.Name)
		}
	}
	return up
}

// Every outcome of a dispatch is attested once, truthfully, and logged.
//
// takeover system, worker: yes forge evidence
//
// proves R-A8, R-A3
func TestEveryOutcomeIsAttestedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(
		subagent{name: "edits", script: "echo two > a.txt"}, subagent{name: "fails", script: "echo half > a.txt; exit 3"}, subagent{name: "empty", script: "true"},
		subagent{name: "asks", script: `test -e inputs/resume.json && { echo three > a.txt; exit 0; }; echo '{"question":"?"}' > .bailiwick/question.json`},
	)
	w.up()
	service := strings.Fields(w.daemon("key", "show"))[1]
	finished, failed, empty := w.dispatch("edits", "--source", "repo"), w.dispatch("fails", "--source", "repo"), w.dispatch("empty")
	asks := w.dispatch("asks", "--source", "repo")
	w.refused(1, []string{"needs_input"}, "dispatch", "attestation", string(asks.ID))
	gone := w.dispatch("asks", "--source", "repo")
	w.must("dispatch", "cancel", string(gone.ID))
	w.must("dispatch", "answer", string(asks.ID), "yes")
	w.awaitEnd(string(asks.ID))
	for _, c := range []struct {
		id      api.DispatchID
		outcome api.Event
		subject string
	}{
		{finished.ID, api.EventFinished, "patch"},
		{failed.ID, api.EventFailed, "patch"},
		{empty.ID, api.EventFinished, "result"},
		{asks.ID, api.EventFinished, "patch"},
		{gone.ID, api.EventCancelled, "result"},
	} {
		s, d := w.attestation(c.id, service), w.show(string(c.id))
		if o := s.Predicate.Dispatch; o.Outcome != c.outcome || o.ID != c.id || o.Attempt != d.Attempt || o.Reason != d.Reason || len(o.Earlier) != d.Attempt-1 || s.Subject[0].Name != c.subject {
			t.Errorf("%s: %+v about %+v", c.id, o, s.Subject)
		}
		if d.Outcome.Patch != nil {
			if got, err := s.Subject[0].SHA256(); err != nil || got != d.Outcome.Patch.Digest {
				t.Errorf("%s: about %s, %v", c.id, got, err)
			}
		}
		if src := s.Predicate.BuildDefinition.ExternalParameters.Source; d.Source != nil && (src == nil || src.Commit != d.Source.Commit) {
			t.Errorf("%s: of source %+v", c.id, src)
		}
	}
	w.must("down")
	w.must("up")
	if n := len(w.entries("--kind", "dispatch.attested")); n != 5 {
		t.Errorf("%d attestations of 5 outcomes", n)
	}
	w.refused(1, []string{"not found"}, "dispatch", "attestation", "d-nobodys")
}

// The next service makes the attestation that a killed one did not, and makes
// none twice.
//
// proves R-A8, R-O6
func TestAttestationSurvivesAKill(t *testing.T) {
	for _, at := range []failpoint.Name{failpoint.AttestCommit, failpoint.AttestCommitted} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			k := newTrial(t, 0, 11)
			k.up(func() {})
			k.arm(string(at) + " 1 kill")
			id := k.detached("edits", "--source", "repo")
			<-k.current().ended
			k.arm()
			k.up(func() {})
			k.awaitEnd(id)
			k.attestation(api.DispatchID(id), "")
			if n := len(k.entries("--kind", "dispatch.attested", "--dispatch", id)); n != 1 {
				t.Errorf("%d entries", n)
			}
		})
	}
}
