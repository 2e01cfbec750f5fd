package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
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
// proves R-A6, R-A1
func TestARestoredStateDoesNotStart(t *testing.T) {
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
	w := newWorld(t, ordinaryUID)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo two > a.txt"})
	const secret = "the-secret-of-the-object-store"
	w.write("config/bailiwick/store.json", `{"accessKey": "service", "secretKey": "`+secret+`"}`, 0o600)
	nobody := strings.TrimPrefix(freePort(t), "http://")
	w.write("config/bailiwick/service.yaml", "version: 1\nanchors:\n"+
		"  - {name: gone, kind: file, path: "+w.path("not/there")+", every: 1s}\n"+
		"  - {name: none, kind: git, repository: "+w.path("none.git")+", every: 1s}\n"+
		"  - {name: worm, kind: s3, endpoint: \"https://"+nobody+"\", region: eu-1, bucket: anchors, credentials: "+w.path("config/bailiwick/store.json")+", every: 1s}\n", 0o644)
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
	if err := os.Chmod(w.path("config/bailiwick/store.json"), 0o640); err != nil {
		t.Fatal(err)
	}
	d := w.refused(1, []string{"chmod 600"}, "up")
	if strings.Contains(d.String(), secret) {
		t.Error("the secret was printed")
	}
}
