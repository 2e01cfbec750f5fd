package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/evidence"
)

// trust returns the output of bailiwick audit trust.
func (w *world) trust() evidence.Trust {
	w.t.Helper()
	d := w.try("audit", "trust")
	if d.status != 0 || !strings.Contains(d.stderr, "another channel") {
		w.t.Fatalf("audit trust: %s", d)
	}
	t, err := evidence.ParseTrust([]byte(d.stdout))
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

// keys returns every key that the service has had.
func (w *world) keys() seal.History {
	w.t.Helper()
	h, err := seal.ParseHistory([]byte(w.daemon("key", "show", "--json")))
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

func (w *world) rotate() seal.KeyID {
	w.t.Helper()
	return seal.KeyID(strings.TrimSpace(w.daemon("key", "rotate")))
}

// verifyAttestation fails the test unless cosign verifies the attestation of a
// dispatch with a patch as signed by key.
func (w *world) verifyAttestation(id api.DispatchID, key seal.KeyID) {
	w.t.Helper()
	dir, err := os.MkdirTemp(w.path("tmp"), "v")
	must(w.t, err)
	must(w.t, os.Chown(dir, w.uid, w.uid))
	name := func(s string) string { return filepath.Join(dir, s) }
	w.must("dispatch", "attestation", string(id), "--out", name("s.json"))
	w.must("dispatch", "patch", string(id), "--to", name("patch"))
	if err := os.WriteFile(name("key.pem"), []byte(w.daemon("key", "show", "--pem", string(key))), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if said, ok := w.cosign("--key", name("key.pem"), "--signature", name("s.json"), "--type", "slsaprovenance1", "--insecure-ignore-tlog", name("patch")); !ok {
		w.t.Errorf("dispatch %s by key %s: %s", id, key, said)
	}
}

// After a key rotation earlier signatures verify, also those of dispatches that
// resume later. Operators' records stay valid, and the trust file names both keys.
//
// proves R-A9
func TestRotationKeepsEarlierSignaturesValid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(
		subagent{name: "edits", script: "echo two > a.txt"},
		subagent{name: "asks", script: `test -e inputs/resume.json && { echo three > a.txt; exit 0; }; echo '{"question":"?"}' > .bailiwick/question.json`},
	)
	w.up()
	was := w.keys()
	before, asks := w.dispatch("edits", "--source", "repo"), w.dispatch("asks", "--source", "repo")
	wantEnd(t, before, api.EventFinished, "")
	w.attestation(before.ID, string(was.Current().ID))
	first := w.trust()
	d := w.exec(filepath.Join(bin, "bailiwickd"), "key", "rotate")
	if d.status == 0 || !strings.Contains(d.stderr, "bailiwick down") || w.keys().Current().ID != was.Current().ID {
		t.Fatalf("rotated while a service runs: %s", d)
	}
	w.must("down")
	second := w.rotate()
	third := w.rotate()
	w.must("up")
	h := w.keys()
	if len(h.Keys) != 3 || h.Current().ID != third || h.Keys[1].Key.ID != second || h.First().ID != was.First().ID || second == third || len(h.Statements) != 2 || h.Statements[1].Key.ID != third {
		t.Fatalf("%+v", h)
	}
	w.must("dispatch", "answer", string(asks.ID), "yes") // its manifest is signed by the first key
	w.awaitEnd(string(asks.ID))
	after := w.dispatch("edits", "--source", "repo")
	wantEnd(t, after, api.EventFinished, "")
	w.verifyAttestation(before.ID, was.Current().ID)
	w.verifyAttestation(asks.ID, third)
	w.verifyAttestation(after.ID, third)
	w.must("gc") // reads every live manifest
	w.must("ceiling", "set", w.me(), "observe")

	// An older trust file follows the signed rotations to the new keys.
	now := w.trust()
	if len(now.Log.Keys) != 3 || now.Log.Origin != first.Log.Origin || now.Log.Origin != seal.LogOrigin(was.First().ID) || len(now.Statements) != 2 {
		t.Errorf("%+v", now)
	}
	rotations := make([][]byte, len(h.Rotations))
	for i, r := range h.Rotations {
		rotations[i] = r
	}
	followed, err := first.Log.Follow(rotations)
	if err != nil || len(followed.Keys) != 3 || followed.Keys[2].ID != third || followed.Keys[2].From != now.Log.Keys[2].From {
		t.Errorf("%+v, %v", followed, err)
	}
	// So does the check of a period, from a copy of the log.
	old, err := first.Encode()
	must(t, err)
	must(t, os.WriteFile(w.path("first.json"), old, 0o644)) //nolint:gosec // G306: of public keys
	w.must("audit", "tiles", "--to", w.path("copy"))
	period := w.exec(filepath.Join(bin, "bailiwick-verify"), "--tiles", w.path("copy"), "--trust", w.path("first.json"))
	for _, want := range []string{"2 key rotations, each signed by the previous key", "pass  chains", "signing key for service rotated from ", "service started: version ", string(asks.ID) + ": finished"} {
		if period.status != 0 || !strings.Contains(period.stdout, want) {
			t.Errorf("the period lacks %q: %s", want, period)
		}
	}
	revoked := first.Log
	revoked.Keys[0].Revoked = new(uint64)
	if _, err := revoked.Follow(rotations); err == nil {
		t.Error("a revoked key signed a rotation")
	}
	// Each rotation has its entry in the log.
	for i, p := range h.Keys[:2] {
		line := strings.TrimSpace(w.must("audit", "list", "-o", "jsonl", "--kind", "service.key_rotated", "--after", strconv.FormatUint(*p.UpTo-1, 10)))
		var l struct {
			Seq   uint64
			Entry struct{ Refs map[string]api.Digest }
		}
		if err := json.Unmarshal([]byte(strings.SplitN(line, "\n", 2)[0]), &l); err != nil || l.Seq != *p.UpTo || l.Entry.Refs["rotation"] != api.DigestOf(h.Rotations[i]) {
			t.Errorf("%s, %v", line, err)
		}
	}
}

// A killed rotation leaves one key in force, the old or the new: the one that the
// log names. The next start settles it.
//
// proves R-A9, R-A2
func TestAKilledRotationLeavesOneKeyInForce(t *testing.T) {
	for _, at := range []failpoint.Name{failpoint.RotateKey, failpoint.StoreCommit, failpoint.RotateLogged, failpoint.RotateListed, failpoint.RotateTaken} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			k := newTrial(t, 0, 13)
			k.up(func() {})
			before := k.dispatch("edits", "--source", "repo")
			wantEnd(t, before, api.EventFinished, "")
			old := k.keys().Current().ID
			k.must("dispatch", "attestation", string(before.ID))
			k.must("down")
			<-k.current().ended
			k.arm(string(at) + " 1 kill")
			d := k.exec(filepath.Join(k.bin, "bailiwickd"), "key", "rotate")
			if d.status == 0 {
				t.Fatalf("the rotation was not killed: %s", d)
			}
			k.arm()
			k.up(func() {})
			h := k.keys()
			if took := at != failpoint.RotateKey && at != failpoint.StoreCommit; took != (h.Current().ID != old) || took != (len(h.Keys) == 2) {
				t.Errorf("%s is in force, before it was %s: %+v", h.Current().ID, old, h)
			}
			after := k.dispatch("edits", "--source", "repo")
			wantEnd(t, after, api.EventFinished, "")
			k.verifyAttestation(before.ID, old)
			k.verifyAttestation(after.ID, h.Current().ID)
			left, err := filepath.Glob(k.path("state/bailiwick/service.key.next*"))
			if err != nil || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
			// The next rotation succeeds.
			k.must("down")
			<-k.current().ended
			if fresh := k.rotate(); fresh == h.Current().ID {
				t.Error("the key did not change")
			}
			k.up(func() {})
			k.verifyAttestation(before.ID, old)
		})
	}
}

// An outdated list of keys, or one with a key that no earlier key signed, is
// refused at start. Control: the original list.
//
// proves R-A9
func TestServiceRefusesKeysThatDoNotMatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edits", script: "echo two > a.txt"})
	w.up()
	w.must("down")
	const list, key = "state/bailiwick/service-keys.json", "state/bailiwick/service.key"
	read := func(name string) string {
		b, err := os.ReadFile(w.path(name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	older, olderKey := read(list), read(key)
	w.rotate()
	good, goodKey := read(list), read(key)
	eve, err := seal.NewEphemeral()
	if err != nil {
		t.Fatal(err)
	}
	h, err := seal.ParseHistory([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ list, key string }{
		"the earlier list":              {older, goodKey},
		"the earlier key":               {good, olderKey},
		"a foreign key in the list":     {strings.ReplaceAll(good, string(h.Current().ID), string(eve.KeyID())), goodKey},
		"a list that cannot be read":    {good[1:], goodKey},
		"a list with a member too much": {strings.Replace(good, `"keys"`, `"keyz":1,"keys"`, 1), goodKey},
	} {
		w.write(list, c.list, 0o644)
		w.write(key, c.key, 0o600)
		if d := w.try("up"); d.status == 0 {
			t.Errorf("%s: the service started", name)
			w.must("down")
		}
	}
	w.write(list, good, 0o644)
	w.write(key, goodKey, 0o600)
	w.must("up")
}
