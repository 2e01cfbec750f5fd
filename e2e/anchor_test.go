package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
)

// copyState copies the state directory of a stopped service.
func (w *world) copyState(to string) {
	w.t.Helper()
	if out, err := exec.Command("cp", "-a", w.path("state/bailiwick"), w.path(to)).CombinedOutput(); err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
}

// The whole state, keys included, is restored from an older copy. Database, tree
// and signed checkpoint are consistent; only the anchors reveal it. The service
// does not start, and names both sizes.
//
// takeover both modes, root; service account: until rewrite the log
// takeover both modes, backup: until widen, replay, rewrite the log
// takeover same-user, MCP program; a person's account; page; worker: until rewrite the log
//
// proves R-A6, R-A1
func TestARestoredStateDoesNotStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo two > a.txt"})
	w.mkdir("disk")
	repo := w.path("anchors.git")
	w.git(".", "init", "-q", "--bare", repo)
	w.git("anchors.git", "config", "receive.denyNonFastForwards", "true")
	w.git("anchors.git", "config", "receive.denyDeletes", "true")
	w.write("config/bailiwick/service.yaml", "version: 1\nanchors:\n"+
		"  - {name: disk, kind: file, path: "+w.path("disk/high-water")+", every: 1s}\n"+
		"  - {name: history, kind: git, repository: \"file://"+repo+"\", every: 1s}\n", 0o644)
	w.up()
	wantEnd(t, w.dispatch("edit", "--source", "repo"), api.EventFinished, "")
	w.must("down") // anchors the newest entries
	w.copyState("before")
	w.must("up")
	old := w.status()
	if len(old.Anchors) != 2 || old.Anchors[0].Entries == 0 || old.Anchors[0].Error != "" || old.Anchors[1].Error != "" {
		t.Fatalf("%+v", old.Anchors)
	}
	wantEnd(t, w.dispatch("edit", "--source", "repo"), api.EventFinished, "")
	w.must("down")
	w.must("up")
	now := w.status()
	held := []uint64{now.Anchors[0].Entries, now.Anchors[1].Entries}
	if held[0] <= old.Anchors[0].Entries || held[1] <= old.Anchors[1].Entries {
		t.Fatalf("%+v, then %+v", old.Anchors, now.Anchors)
	}
	if text := w.must("status"); !strings.Contains(text, "disk (file "+w.path("disk/high-water")+"): ") {
		t.Errorf("status: %s", text)
	}
	w.must("down")

	if err := os.Rename(w.path("state/bailiwick"), w.path("after")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(w.path("before"), w.path("state/bailiwick")); err != nil {
		t.Fatal(err)
	}
	d := w.refused(1, []string{"disk", "history", "restored from an older copy", "restore the newest state"}, "up")
	said := d.stderr + d.stdout
	if !strings.Contains(said, "holds a checkpoint of ") || !strings.Contains(said, "the log here has "+strconv.FormatUint(localSize(t, said), 10)) {
		t.Errorf("the refusal does not name both sizes: %s", said)
	}
	if d := w.try("status"); d.status == 0 {
		t.Errorf("the service started: %s", d)
	}
	if err := os.RemoveAll(w.path("state/bailiwick")); err != nil {
		t.Fatal(err)
	}
	// Control: with the newest state it starts, and works.
	if err := os.Rename(w.path("after"), w.path("state/bailiwick")); err != nil {
		t.Fatal(err)
	}
	w.must("up")
	wantEnd(t, w.dispatch("edit", "--source", "repo"), api.EventFinished, "")
}

// localSize returns the size of the log that a refusal names, which must be less
// than the anchor's.
func localSize(t *testing.T, said string) uint64 {
	t.Helper()
	number := func(after string) uint64 {
		_, rest, _ := strings.Cut(said, after)
		word, _, _ := strings.Cut(rest, " ")
		n, err := strconv.ParseUint(strings.TrimSuffix(word, ":"), 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", said, err)
		}
		return n
	}
	held, local := number("holds a checkpoint of "), number("the log here has ")
	if local >= held {
		t.Errorf("the anchor holds %d, the log has %d", held, local)
	}
	return local
}

// Only the database is restored from an older copy. The anchor file beside it
// reveals that.
//
// proves R-A6
func TestARestoredDatabaseDoesNotStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo two > a.txt"})
	w.up()
	w.must("down")
	w.copyState("before")
	w.must("up")
	wantEnd(t, w.dispatch("edit", "--source", "repo"), api.EventFinished, "")
	w.must("down")
	for _, name := range []string{"store", "log"} { // with its own checkpoint
		if err := os.RemoveAll(w.path("state/bailiwick", name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(w.path("before", name), w.path("state/bailiwick", name)); err != nil {
			t.Fatal(err)
		}
	}
	w.refused(1, []string{`anchor "local"`, "restored from an older copy"}, "up")
}

// Unreachable anchors stop no work, are reported, and the report contains no
// secret.
//
// proves R-A6
func TestUnreachableAnchorsStopNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ordinaryUID)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo two > a.txt"})
	const secret = "the-secret-of-the-object-store"
	w.write("store/credentials.json", `{"accessKey": "service", "secretKey": "`+secret+`"}`, 0o600)
	nobody := strings.TrimPrefix(freePort(t), "http://")
	w.write("config/bailiwick/service.yaml", "version: 1\nanchors:\n"+
		"  - {name: gone, kind: file, path: "+w.path("not/there")+", every: 1s}\n"+
		"  - {name: none, kind: git, repository: "+w.path("none.git")+", every: 1s}\n"+
		"  - {name: worm, kind: s3, endpoint: \"https://"+nobody+"\", region: eu-1, bucket: anchors, credentials: "+w.path("store/credentials.json")+", every: 1s}\n", 0o644)
	w.up()
	wantEnd(t, w.dispatch("edit", "--source", "repo"), api.EventFinished, "")
	s := w.status()
	if !s.Ready || len(s.Anchors) != 3 {
		t.Fatalf("%+v", s)
	}
	for _, a := range s.Anchors {
		if a.Error == "" || a.FailingSince == nil || a.At != nil || a.Behind == 0 || a.Entries != 0 {
			t.Errorf("%+v", a)
		}
	}
	text := w.must("status")
	if !strings.Contains(text, "FAILING since ") {
		t.Errorf("status: %s", text)
	}
	doctor := w.exec(filepath.Join(bin, "bailiwickd"), "doctor")
	for _, want := range []string{"anchor gone", "anchor none", "anchor worm"} {
		if !strings.Contains(doctor.stdout, want) {
			t.Errorf("doctor does not say %q: %s", want, doctor)
		}
	}
	w.must("down")
	log, err := os.ReadFile(w.path("state/bailiwick/service.log"))
	if err != nil || !strings.Contains(string(log), "an anchor does not take checkpoints") {
		t.Errorf("%v: %s", err, log)
	}
	if strings.Contains(string(log)+text+doctor.String(), secret) {
		t.Error("the secret was printed")
	}
	// A secret that other accounts can read is a refusal to start.
	if err := os.Chmod(w.path("store/credentials.json"), 0o640); err != nil {
		t.Fatal(err)
	}
	d := w.refused(1, []string{"chmod 600"}, "up")
	if strings.Contains(d.String(), secret) {
		t.Error("the secret was printed")
	}
}

// anchored makes a world whose log is anchored in a file and in a repository, with a
// copy of its state of then and one dispatch since. It returns the repository.
func anchored(t *testing.T, uid int) (w *world, repo string) {
	t.Helper()
	w = newWorld(t, uid)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo two > a.txt"})
	w.mkdir("disk")
	w.mkdir("vault")
	repo = w.path("vault/anchors.git")
	w.git(".", "init", "-q", "--bare", repo)
	w.git("vault/anchors.git", "config", "receive.denyNonFastForwards", "true")
	w.git("vault/anchors.git", "config", "receive.denyDeletes", "true")
	w.write("config/bailiwick/service.yaml", "version: 1\nanchors:\n"+
		"  - {name: disk, kind: file, path: "+w.path("disk/high-water")+", every: 1s}\n"+
		"  - {name: history, kind: git, repository: "+repo+", every: 1s}\n", 0o644)
	w.up()
	w.must("down")
	w.copyState("before")
	w.must("up")
	wantEnd(t, w.dispatch("edit", "--source", "repo"), api.EventFinished, "")
	w.must("down")
	return w, repo
}

// restore puts the older state back.
func (w *world) restore() {
	w.t.Helper()
	must(w.t, os.Rename(w.path("state/bailiwick"), w.path("after")))
	must(w.t, os.Rename(w.path("before"), w.path("state/bailiwick")))
}

// commitOnTop commits the first checkpoint of a repository on top of its branch.
func (w *world) commitOnTop(repo string) {
	w.t.Helper()
	w.mkdir("clone")
	if w.unit != nil { // as the repository, so git trusts it
		w.unit.give("clone", machine.Service, machine.Service, 0o755)
	}
	w.git("clone", "clone", "-q", "--branch", "bailiwick", repo, ".")
	w.git("clone", "checkout", "-q", "HEAD~1", "--", "checkpoint")
	w.git("clone", "commit", "-q", "-m", "older")
	w.git("clone", "push", "-q", repo, "HEAD:bailiwick")
}

// A restored state does not start past anchors that hold more, whatever was committed
// on top. Only an operator's signature, over what was found there, lets it start, and
// a later change refuses it again.
//
// proves R-A6, R-B9
func TestOnlyAnOperatorNamesAnAnchorAsLost(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w, repo := anchored(t, uid)
		w.refused(1, []string{`anchor "disk" agrees with the log`}, "anchor", "lost", "disk") // control
		w.commitOnTop(repo)
		w.must("up") // control: the newest state
		w.refused(1, []string{"bailiwick: cannot compare an anchor while a service is running", "bailiwick down"}, "anchor", "lost", "disk")
		w.must("down")
		w.restore()
		ahead := []string{"holds a checkpoint of ", "restored from an older copy", "bailiwick anchor lost "}
		w.refused(1, append(ahead, `anchor "disk" (file `, `anchor "history" (git `), "up")
		if d := w.must("anchor", "show", "history"); !strings.Contains(d, "\n  holds a checkpoint of ") || !strings.Contains(d, "\nsha256:") {
			t.Errorf("%s", d)
		}
		w.refused(1, []string{"no such anchor ", "service.yaml"}, "anchor", "lost", "other")
		// A key that is no operator's does not count.
		w.refused(1, []string{"operator record"}, "anchor", "lost", "disk", "--key", w.path("config/bailiwick/deploy.key"))
		w.refused(1, ahead, "up")

		if d := w.must("anchor", "lost", "disk", "--reason", "the disk failed"); !strings.Contains(d, "(decision 2, log entry #") {
			t.Errorf("%s", d)
		}
		w.refused(1, append(ahead, `anchor "history" (git `), "up")
		w.must("anchor", "lost", "history")
		w.refused(1, []string{"was named as lost in this state by record 3"}, "anchor", "lost", "history")
		w.must("up")
		if text := w.must("status"); strings.Count(text, "LOST since ") != 2 {
			t.Errorf("status: %s", text)
		}
		doctor := w.exec(filepath.Join(bin, "bailiwickd"), "doctor")
		if !strings.Contains(doctor.stdout, "an operator named it as lost") {
			t.Errorf("doctor: %s", doctor)
		}
		if log := w.must("audit", "list", "--kind", "operator.recorded"); !strings.Contains(log, "anchor disk named as lost, in state sha256:") || !strings.Contains(log, "the disk failed") {
			t.Errorf("log: %s", log)
		}
		wantEnd(t, w.dispatch("edit", "--source", "repo"), api.EventFinished, "")
		w.must("down")
		w.must("up") // a longer log is no other state of the anchor
		w.must("down")
		b := w.read("disk/high-water")
		w.write("disk/high-water", b+"all is well\n", 0o600)
		w.refused(1, []string{`anchor "disk" (file `, "bailiwick anchor lost disk"}, "up")
		program := "bailiwick"
		if w.on != nil {
			program = "bailiwickd" // of the account that reads the state
		}
		if _, check := w.doctor(filepath.Join(bin, program)); !strings.HasPrefix(check["anchor disk"], "invalid") {
			t.Errorf("doctor: %v", check)
		}
		w.write("disk/high-water", b, 0o600)
		w.must("up")
	})
}

// An anchor that cannot be reached at the start is shown as not compared. When it
// answers and holds more than the log, nothing new is admitted.
//
// proves R-A6
func TestAnAnchorThatReturnsWithMoreStopsNewWork(t *testing.T) {
	t.Parallel()
	w, _ := anchored(t, 0)
	w.restore()
	// Without the other anchor, which is still compared though the configuration omits it.
	must(t, os.Rename(w.path("vault"), w.path("unplugged-vault")))
	w.write("config/bailiwick/service.yaml", "version: 1\nanchors:\n  - {name: disk, kind: file, path: "+w.path("disk/high-water")+", every: 1s}\n", 0o644)
	w.refused(1, []string{`anchor "disk"`}, "up") // control
	must(t, os.Rename(w.path("disk"), w.path("unplugged")))
	w.must("up")
	s := w.status()
	if len(s.Anchors) != 2 || s.Anchors[0].Compared || s.Anchors[0].Error == "" || !s.Anchors[1].Remembered || !s.Ready {
		t.Fatalf("%+v", s.Anchors)
	}
	if text := w.must("status"); !strings.Contains(text, "NOT COMPARED with the log since the service started") || !strings.Contains(text, "remembered, NOT COMPARED") {
		t.Errorf("status: %s", text)
	}
	doctor := w.exec(filepath.Join(bin, "bailiwickd"), "doctor")
	if !strings.Contains(doctor.stdout, "remembered, NOT COMPARED") {
		t.Errorf("doctor: %s", doctor)
	}
	must(t, os.Rename(w.path("unplugged"), w.path("disk")))
	w.awaitReady(false)
	if d := w.try("status"); d.status != 1 || !strings.Contains(d.stdout, `anchors: anchor "disk"`) {
		t.Errorf("status: %s", d)
	}
	w.refused(1, []string{`anchor "disk"`, "restored from an older copy"}, "dispatch", "run", "edit", "--source", "repo")
}
