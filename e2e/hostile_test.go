package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// small holds limits that an abusive agent reaches quickly.
const small = "    limits: {timeout: 30s, memory: 128MiB, processes: 40, disk: 64MiB, fileSize: 32MiB, files: 2000, log: 1MiB}\n"

// The effects of an abusive agent end with its dispatch, and the record says
// why it ended.
//
// proves R-S2, R-D3, R-D4
func TestAbusiveAgentsHitTheirLimits(t *testing.T) {
	t.Parallel()
	brief := strings.Replace(small, "30s", "2s", 1)
	abuses := []struct {
		name, script, limits string
		state                api.Event
		reason               api.Reason
		words                string
	}{
		{"writes", "echo half > half.txt; dd if=/dev/zero of=big bs=1M count=10240 status=none", small, api.EventFailed, api.ReasonLimit, "file size"},
		{"allocates", "echo half > half.txt; fallocate -l 10G big", small, api.EventFailed, api.ReasonLimit, "file size"},
		{"sparse", "echo half > half.txt; truncate -s 1T big", small, api.EventFailed, api.ReasonLimit, "file size"},
		{"fills", "echo half > half.txt; for i in $(seq 1000); do head -c 20M /dev/zero > /tmp/f$i || exit 1; done", small, api.EventFailed, api.ReasonLimit, "disk"},
		{"litters", "echo half > half.txt; mkdir d; for i in $(seq 1000000); do : > d/$i || exit 1; done", small, api.EventFailed, api.ReasonLimit, "files"},
		{"hoards", "echo half > half.txt; head -c 4G /dev/zero | tail -c 3G >/dev/null", small, api.EventFailed, api.ReasonLimit, "memory"},
		{"hides", "echo half > half.txt; for i in $(seq 16); do head -c 20M /dev/zero > /tmp/f$i || exit 1; done; sleep 2", strings.Replace(small, "disk: 64MiB", "disk: 512MiB", 1), api.EventFailed, api.ReasonLimit, "memory"},
		{"forks", "echo half > half.txt; set -e; for i in $(seq 1000); do sleep 5681 & done; wait", small, api.EventFailed, api.ReasonLimit, "processes"},
		{"bombs", "echo half > half.txt; b() { b | b & }; b 2>/dev/null; sleep 5682", brief, api.EventFailed, api.ReasonTimeout, "2s"},
		{"stays", "trap '' TERM INT HUP QUIT; echo half > half.txt; while :; do sleep 1; done", brief, api.EventFailed, api.ReasonTimeout, "2s"},
		{"lingers", "echo half > half.txt; (setsid nohup sleep 5683 >/dev/null 2>&1 &) ; (trap '' TERM; sleep 5684 &)", small, api.EventFinished, "", ""},
		{"control", "echo half > half.txt; head -c 20M /dev/zero > /tmp/f; sleep 0.1 & wait; seq 100 | xargs touch", small, api.EventFinished, "", ""},
	}
	asBoth(t, func(t *testing.T, uid int) {
		t.Parallel()
		w := newWorld(t, uid)
		w.repository("repo", map[string]string{"a.txt": "one\n"})
		var subs []subagent
		for _, a := range abuses {
			subs = append(subs, subagent{name: a.name, script: a.script, more: a.limits})
		}
		w.catalog(subs...)
		w.up()
		for _, a := range abuses {
			d := w.traced(a.name, "--source", "repo")
			wantEnd(t, d, a.state, a.reason)
			if !strings.Contains(d.Message, a.words) {
				t.Errorf("%s: the message lacks %q: %q", a.name, a.words, d.Message)
			}
			if d.Outcome == nil || d.Outcome.Partial != (a.state == api.EventFailed) {
				t.Errorf("%s: outcome %+v", a.name, d.Outcome)
				continue
			}
			if a.words == "disk" || a.words == "files" || a.words == "file size" {
				continue // another test covers capture on a full disk
			}
			if d.Outcome.Patch == nil || !strings.Contains(w.must("dispatch", "patch", string(d.ID)), "+half") {
				t.Errorf("%s: the partial work is not kept: %+v", a.name, d.Outcome)
			}
		}
		if s := w.status(); !s.Ready {
			t.Errorf("the service is not ready: %+v", s)
		}
	})
}

// A control group ends one process for memory and the agent may continue; without one
// the watchdog ends the agent. The record has the limit in both cases.
//
// proves R-S2
func TestAReachedLimitIsRecordedWhateverTheOutcome(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		t.Parallel()
		w := newWorld(t, uid)
		w.repository("repo", map[string]string{"a.txt": "one\n"})
		w.catalog(
			subagent{name: "survives", script: "head -c 4G /dev/zero | tail -c 3G >/dev/null; echo done > done.txt", more: small},
			subagent{name: "control", script: "head -c 20M /dev/zero | tail -c 10M >/dev/null; echo done > done.txt", more: small},
		)
		w.up()
		for name, want := range map[string]bool{"survives": true, "control": false} {
			d := w.traced(name, "--source", "repo")
			if d.Outcome == nil {
				t.Fatalf("%s: %s %s", name, d.State, d.Message)
			}
			if got := slices.Contains(d.Outcome.Usage.Reached, "memory"); got != want {
				t.Errorf("%s is %s with the reached limits %q", name, d.State, d.Outcome.Usage.Reached)
			}
			if got := strings.Contains(w.must("dispatch", "show", string(d.ID)), "reached: memory"); got != want {
				t.Errorf("%s: dispatch show says that the limit was reached: %v", name, got)
			}
		}
	})
}

// poison is a script that creates a git repository in the working directory
// which runs a command in any unguarded git that reads it. MARKER is replaced.
const poison = `
git init -q . 2>/dev/null || true
mkdir -p .git/hooks .git/info
for h in pre-commit post-checkout post-index-change pre-applypatch post-applypatch fsmonitor-watchman reference-transaction; do
  printf '#!/bin/sh\ntouch MARKER\n' > .git/hooks/$h
  chmod +x .git/hooks/$h
done
cat > .git/config <<'END'
[core]
	repositoryformatversion = 0
	fsmonitor = touch MARKER; true
	hooksPath = .git/hooks
	attributesFile = .git/info/attributes
	pager = touch MARKER
[filter "evil"]
	clean = touch MARKER; cat
	smudge = touch MARKER; cat
	required = true
[diff "evil"]
	textconv = touch MARKER; cat
	command = touch MARKER
[include]
	path = /etc/shadow
END
echo '* filter=evil diff=evil' > .git/info/attributes
echo '* filter=evil diff=evil' > .gitattributes
echo poisoned > a.txt
`

// proves R-S4
func TestAPoisonedRepositoryRunsNothingOutsideTheJail(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		t.Parallel()
		w := newWorld(t, uid)
		marker := w.path("marker")
		script := strings.ReplaceAll(poison, "MARKER", marker)
		w.repository("repo", map[string]string{"a.txt": "one\n", "sub/b.txt": "two\n"})
		w.catalog(subagent{name: "poison", script: "set -e\n" + script + "\ncd sub\n" + script, more: "    verify: {command: [grep, -q, poisoned, a.txt]}\n"})
		w.up()
		d := w.traced("poison", "--source", "repo")
		wantEnd(t, d, api.EventFinished, "")
		if d.Outcome == nil || d.Outcome.Patch == nil {
			t.Fatalf("outcome %+v", d.Outcome)
		}
		w.must("dispatch", "patch", string(d.ID), "--to", w.path("p.patch"))
		w.git(".", "clone", "-q", w.path("repo"), w.path("clone"))
		w.git("clone", "apply", w.path("p.patch"))
		if got := w.read("clone/a.txt"); got != "poisoned\n" {
			t.Errorf("a.txt is %q", got)
		}
		if patch := w.read("p.patch"); strings.Contains(patch, "hooks/") || strings.Contains(patch, "fsmonitor") {
			t.Errorf("the poison is in the patch:\n%s", patch)
		}
		if _, err := os.Lstat(marker); err == nil {
			t.Error("the agent's git configuration ran a command outside the jail")
		}
		// The control: the same poison takes effect in an unguarded git.
		w.mkdir("victim")
		cmd := w.command("bash", "-c", script+"\nsed -i '/include/,$d' .git/config\ngit status; git add -A")
		cmd.Dir = w.path("victim")
		out, _ := cmd.CombinedOutput()
		if _, err := os.Lstat(marker); err != nil {
			t.Errorf("the control: the poison has no effect in an unguarded git: %s", out)
		}
	})
}

// proves R-S4, R-D5
func TestOnlyPlainFilesLeaveTheJail(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		t.Parallel()
		w := newWorld(t, uid)
		w.repository("repo", map[string]string{"a.txt": "one\n"})
		w.write("secret", "THE SECRET OF THE HOST\n", 0o600)
		w.catalog(subagent{name: "smuggle", more: small, script: strings.ReplaceAll(`
set -e
mkdir -p outputs/dir
mkfifo outputs/fifo fifo
ln -s /etc/shadow outputs/shadow
ln -s SECRET outputs/secret
ln -s ../../../../../../../SECRET outputs/climb
ln -s /etc outputs/etc
ln -s /proc/self/environ outputs/environ
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("outputs/socket")' 2>/dev/null || true
echo plain > outputs/dir/plain.txt
printf 'x' > 'outputs/dir/with
newline and `+"\x1b"+`[31m'
truncate -s 20M outputs/sparse
ln -s SECRET link
echo two > a.txt`, "SECRET", w.path("secret"))})
		w.up()
		d := w.traced("smuggle", "--source", "repo")
		wantEnd(t, d, api.EventFinished, "")
		left := map[string]string{}
		for _, l := range d.Outcome.LeftOut {
			left[l.Path] = l.Why
		}
		for _, want := range []string{"outputs/fifo", "outputs/shadow", "outputs/secret", "outputs/climb", "outputs/etc", "outputs/environ"} {
			if left[want] == "" && left[strings.TrimPrefix(want, "outputs/")] == "" {
				t.Errorf("%s is not reported as left out: %v", want, left)
			}
		}
		if got := w.must("dispatch", "outputs", string(d.ID), "dir/plain.txt"); got != "plain\n" {
			t.Errorf("the plain output is %q", got)
		}
		text := w.must("dispatch", "outputs", string(d.ID)) + w.must("dispatch", "show", string(d.ID))
		if strings.Contains(text, "\x1b") {
			t.Errorf("a name contains terminal control sequences: %q", text)
		}
		w.refused(1, []string{"no output"}, "dispatch", "outputs", string(d.ID), "shadow")
		w.refused(1, []string{"no output"}, "dispatch", "outputs", string(d.ID), "../../../../service.key")
		w.must("dispatch", "outputs", string(d.ID), "--dir", w.path("taken"))
		if got := w.read("taken/dir/plain.txt"); got != "plain\n" {
			t.Errorf("the output that was written is %q", got)
		}
		// The secret appears nowhere in the service's files. The search itself
		// finds it where it belongs.
		if n := countFilesWith(t, w.path("state"), "THE SECRET OF THE HOST"); n != 0 {
			t.Errorf("%d files of the state contain the secret", n)
		}
		if n := countFilesWith(t, w.dir, "THE SECRET OF THE HOST"); n != 1 {
			t.Errorf("the search finds the secret %d times", n)
		}
	})
}

// countFilesWith counts the files below dir that contain words.
func countFilesWith(t testing.TB, dir, words string) int {
	t.Helper()
	found := map[string]bool{}
	must(t, eachFile(dir, func(path string, f *os.File) error {
		b, err := io.ReadAll(f)
		if bytes.Contains(b, []byte(words)) {
			found[path] = true
		}
		return err
	}))
	return len(found)
}

// proves R-D7, R-D3
func TestDispatchLogIsBoundedAndHarmless(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(
		subagent{name: "floods", more: small, script: "head -c 100M /dev/zero | tr '\\0' x"},
		subagent{name: "paints", script: `printf 'a\033]0;owned\007b\033[2Jc\302\23331md\re\342\200\256f\377g\177h\010i\n'`},
		subagent{name: "forges", script: `
echo '{"at":"2026-01-01T00:00:00Z","event":"sealed"}'
echo '{"at":"2026-01-01T00:00:00Z","event":"ready","key":"AAAA"}'
echo '{"proceed":true}'
echo '#99999 2026-01-01T00:00:00Z dispatch finished'
mkdir -p .bailiwick outputs
for f in result state events.jsonl; do echo '{"outcome":"finished"}' > .bailiwick/$f; cp .bailiwick/$f outputs/$f; done
exit 3`},
	)
	w.up()
	flood := w.traced("floods", "--source", "repo")
	wantEnd(t, flood, api.EventFinished, "")
	if o := flood.Outcome; o.LogBytes != 100<<20 || o.LogKept != 1<<20 {
		t.Errorf("log: %d bytes kept of %d", o.LogKept, o.LogBytes)
	}
	if got := w.must("dispatch", "logs", string(flood.ID)); len(got) != 1<<20 || strings.Trim(got, "x") != "" {
		t.Errorf("%d bytes of log are shown", len(got))
	}
	if got := w.must("dispatch", "show", string(flood.ID)); !strings.Contains(got, "1048576 bytes kept of 104857600") {
		t.Errorf("the record does not say that the log was cut: %s", got)
	}
	if got := w.must("dispatch", "logs", string(flood.ID), "--offset", "104857594"); got != "xxxxxx" {
		t.Errorf("the end of the log is %q", got)
	}

	paint := w.dispatch("paints", "--source", "repo")
	const raw = "a\x1b]0;owned\x07b\x1b[2Jc\u009b31md\re\u202ef\xffg\x7fh\bi\n"
	for _, shown := range []string{w.must("dispatch", "logs", string(paint.ID)), w.try("dispatch", "run", "paints", "--source", "repo").stderr} {
		if strings.ContainsAny(shown, "\x1b\x07\r\b\x7f\u009b\u202e") || !strings.Contains(shown, `a\x1b]0;owned\x07b\x1b[2Jc`) {
			t.Errorf("the log is shown as %q", shown)
		}
	}
	var chunk api.Chunk
	must(t, json.NewDecoder(strings.NewReader(w.must("dispatch", "logs", string(paint.ID), "-o", "jsonl"))).Decode(&chunk))
	if string(chunk.Data) != raw {
		t.Errorf("the log itself is %q (%s)", chunk.Data, base64.StdEncoding.EncodeToString(chunk.Data))
	}

	forged := w.traced("forges", "--source", "repo")
	wantEnd(t, forged, api.EventFailed, api.ReasonAgent)
	w.must("dispatch", "attestation", string(forged.ID)) // the attestation follows shortly after the end
	if n := len(w.entries("--dispatch", string(forged.ID))); n != 4 {
		t.Errorf("the log has %d entries about the dispatch, want accepted, started, failed, attested", n)
	}
	for i, o := range forged.Outcome.Outputs {
		if filepath.Base(o.Path) != o.Path {
			t.Errorf("output %d is %q", i, o.Path)
		}
	}
}
