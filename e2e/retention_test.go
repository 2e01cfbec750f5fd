package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
)

// retention sets the retention rules in the service's configuration.
func (w *world) retention(rules string) {
	w.t.Helper()
	w.write("config/bailiwick/service.yaml", "version: 1\nretention: "+rules+"\n", 0o600)
}

// upCollected starts a service, with args for command up, whose next automatic
// collection is an hour away. A service that has never collected does so within its
// first minute, and learns only when it starts of a collection by command gc.
func (w *world) upCollected(args ...string) {
	w.t.Helper()
	w.up()
	w.must("gc")
	w.must("down")
	w.must(append([]string{"up"}, args...)...)
}

// maker is a subagent whose content differs between dispatches.
func maker() subagent {
	return subagent{name: "makes", script: `set -e
mkdir -p outputs
cat inputs/input.json > made.txt
cat inputs/input.json > outputs/out.json
echo "log of $(cat inputs/input.json)"`}
}

// hasBlob reports whether the service's store has the content.
func (w *world) hasBlob(d api.Digest) bool {
	w.t.Helper()
	_, err := os.Stat(w.path("state/bailiwick/blobs/blobs/sha256", d.Hex()))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
	return err == nil
}

// checkContent fails the test unless the store has all content that a record
// names, or none of it, and all evidence.
func (w *world) checkContent(d api.Dispatch, stored bool) {
	w.t.Helper()
	content := []api.Digest{d.Input, d.Outcome.Patch.Digest, d.Outcome.Outputs[0].Digest, d.Outcome.Log[0].Digest}
	for _, c := range content {
		if w.hasBlob(c) != stored {
			w.t.Errorf("dispatch %s: content %s is stored: %t", d.ID, c, !stored)
		}
	}
	for _, e := range []api.Digest{d.Manifest, d.Result} {
		if !w.hasBlob(e) {
			w.t.Errorf("dispatch %s: evidence %s is gone", d.ID, e)
		}
	}
}

func TestRetentionRemovesContentAndRecordsIt(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		w.repository("repo", map[string]string{"a.txt": "one\n"})
		w.catalog(maker())
		w.retention("{content: {count: 1}}")
		w.upCollected()
		var made []api.Dispatch
		for i := range 4 {
			d := w.dispatch("makes", "--source", "repo", "--set", fmt.Sprintf("n=%d", i))
			wantEnd(t, d, api.EventFinished, "")
			made = append(made, d)
		}
		w.must("dispatch", "patch", string(made[1].ID), "--to", w.path("copy.patch"))
		w.must("dispatch", "pin", string(made[0].ID))
		for _, d := range made {
			w.must("dispatch", "attestation", string(d.ID)) // the attestation follows shortly after the end
		}
		entries := w.must("audit", "list", "-o", "name")
		dry := w.must("gc", "--dry-run")
		for _, want := range []string{string(made[1].ID), string(made[2].ID), "by rule content.count 1", "would remove those of 2 dispatches", "1 pinned"} {
			if !strings.Contains(dry, want) {
				t.Errorf("the dry run lacks %q:\n%s", want, dry)
			}
		}
		if w.must("audit", "list", "-o", "name") != entries {
			t.Error("the log has an entry for a dry run")
		}
		for _, d := range made {
			w.checkContent(d, true)
		}
		out := w.must("gc")
		if !strings.Contains(out, "removed those of 2 dispatches") {
			t.Errorf("gc prints:\n%s", out)
		}
		for i, d := range made {
			w.checkContent(d, i == 0 || i == 3)
		}
		gone := string(made[1].ID)
		for what, args := range map[string][]string{"patch": {"patch", gone}, "log": {"logs", gone}, "output": {"outputs", gone, "out.json"}} {
			w.refused(1, []string{"the " + what + " of dispatch " + gone + " was removed at", "by rule content.count 1", "dispatch show"}, append([]string{"dispatch"}, args...)...)
		}
		w.must("dispatch", "patch", string(made[0].ID))
		w.must("dispatch", "patch", string(made[3].ID))
		shown := w.show(gone)
		if len(shown.Removed) != 1 || shown.Removed[0].Class != api.ClassContent || shown.Removed[0].By != api.Principal(w.me()) {
			t.Errorf("removed: %+v", shown.Removed)
		}
		kept, err := os.ReadFile(w.path("copy.patch"))
		if err != nil || api.DigestOf(kept) != shown.Outcome.Patch.Digest {
			t.Errorf("a saved copy does not match the record: %v", err)
		}
		if text := w.must("dispatch", "show", gone); !strings.Contains(text, "content at") || !strings.Contains(text, "rule content.count 1") {
			t.Errorf("show prints:\n%s", text)
		}
		log := w.must("audit", "list", "--kind", "retention.removed")
		if !strings.Contains(log, `removes content of 2 dispatches`) || !strings.Contains(log, gone) || strings.Contains(log, string(made[0].ID)) {
			t.Errorf("the log is:\n%s", log)
		}
		w.must("dispatch", "unpin", string(made[0].ID))
		w.must("gc")
		w.checkContent(made[0], false)
		for _, kind := range []string{"dispatch.pinned", "dispatch.unpinned"} {
			if log := w.must("audit", "list", "--kind", kind); strings.Count(log, "\n") != 1 || !strings.Contains(log, string(made[0].ID)) {
				t.Errorf("%s: %q", kind, log)
			}
		}
		var st api.ServiceStatus
		for st.Disk == nil {
			decode(t, w.must("status", "-o", "json"), &st)
		}
		if st.Disk.Content <= 0 || st.Disk.Evidence <= 0 || st.Disk.Database <= 0 || st.Disk.Free <= 0 || !slices.Contains(st.Disk.Rules, "content.count 1") {
			t.Errorf("disk use %+v", st.Disk)
		}
	})
}

func TestWithoutRulesResultsStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(maker())
	w.up()
	d := w.dispatch("makes", "--source", "repo", "--set", "n=1")
	out := w.must("gc")
	if strings.Count(out, "kept: no retention rule") != 3 {
		t.Errorf("gc prints:\n%s", out)
	}
	w.checkContent(d, true)
}

// Waiting and running dispatches are not collected, whatever the rules; a
// waiting one resumes from its content.
func TestRetentionSparesWaitingAndRunningWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(maker(), subagent{name: "asks", script: `
if [ -e inputs/resume.json ]; then cp inputs/resume.json resumed.txt; else echo half > half.txt; mkdir -p .bailiwick; echo '{"question": "Which?"}' > .bailiwick/question.json; fi`})
	w.retention("{content: {age: 1ns}, evidence: {age: 1ns}}")
	w.upCollected()
	var d api.Dispatch
	decode(t, w.try("dispatch", "run", "asks", "--source", "repo", "-o", "json", "-q").stdout, &d)
	wantEnd(t, d, api.EventNeedsInput, "")
	other := w.dispatch("makes", "--source", "repo", "--set", "n=1")
	var report api.GCReport
	decode(t, w.must("gc", "-o", "json"), &report)
	if report.Waiting != 1 || len(report.Dispatches) != 2 || w.hasBlob(other.Result) || w.hasBlob(other.Outcome.Patch.Digest) {
		t.Fatalf("the report is %+v", report)
	}
	w.must("dispatch", "answer", string(d.ID), "this")
	done := w.show(string(d.ID))
	for !done.State.Ended() {
		decode(t, w.must("dispatch", "show", string(d.ID), "-o", "json"), &done)
	}
	wantEnd(t, done, api.EventFinished, "")
	if patch := w.must("dispatch", "patch", string(d.ID)); !strings.Contains(patch, "half.txt") || !strings.Contains(patch, "resumed.txt") {
		t.Errorf("the resumed attempt lacked the earlier patch or the answer: %s", patch)
	}
	w.must("gc")
	after := w.show(string(d.ID)) // only the record is left
	if len(after.Removed) != 2 || len(after.Attempts) != 1 || after.Outcome.Patch.Digest != done.Outcome.Patch.Digest {
		t.Errorf("the dispatch is %+v", after)
	}
	w.refused(1, []string{"was removed at"}, "dispatch", "patch", string(d.ID))
	// The manifests of ended attempts can no longer be read.
	w.must("gc")
	if out := w.must("status"); !strings.Contains(out, "evidence 0 bytes") {
		t.Errorf("status prints:\n%s", out)
	}
}

func TestRulesThatKeepEvidenceShorterThanContentAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.catalog(maker())
	for rules, want := range map[string]string{
		"{content: {age: 30d}, evidence: {age: 29d}}":   "keep evidence at least as long as content",
		"{evidence: {age: 29d}}":                        "content kept for ever",
		"{content: {count: 3}, evidence: {age: 9999d}}": "content kept for ever",
		"{content: {age: 0d}}":                          "want a duration such as 30d",
		"{content: {age: -1h}}":                         "want a duration such as 30d",
		"{content: {size: lots}}":                       "retention.content.size",
		"{content: {count: 0}}":                         "positive whole number",
		"{evidence: {count: 3}}":                        `unknown key "count"`,
		"{every: 1s}":                                   "too short",
	} {
		w.retention(rules)
		w.refused(1, []string{"service.yaml:2:", want}, "up")
	}
	w.retention("{content: {age: 30d}, evidence: {age: 30d}}") // the control
	w.up()
}

// Only the operator collects, and only the operator removes the operator's
// pins; the owner of a dispatch may pin it.
func TestOnlyTheServiceAccountCollects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ordinaryUID)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(maker())
	w.retention("{content: {age: 1ns}}")
	w.upCollected()
	d := w.dispatch("makes", "--source", "repo", "--set", "n=1")
	// The test runs as root, which can open every socket but is not the
	// operator. On a machine it calls as a person without an operator key.
	stranger := *w
	if w.unit != nil {
		stranger.uid = machine.Bob
	}
	for _, c := range []struct{ method, path string }{
		{http.MethodPost, "/v1/operator/gc"},
		{http.MethodGet, "/v1/operator/gc"},
		{http.MethodPost, "/v1/runtime/dispatches/" + string(d.ID) + "/pin"},
		{http.MethodPost, "/v1/runtime/dispatches/" + string(d.ID) + "/unpin"},
	} {
		status, body := stranger.call(c.method, c.path, "", nil)
		var e api.Error
		if err := json.Unmarshal(body, &e); err != nil || status/100 == 2 || e.Code != api.CodeDenied && e.Code != api.CodeNotFound || e.AuditEntry == nil {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, body)
		}
	}
	if status, _ := w.call(http.MethodPost, "/v1/runtime/gc", "", nil); status != http.StatusNotFound {
		t.Errorf("/v1/runtime/gc: %d", status)
	}
	w.checkContent(d, true)
	if shown := w.show(string(d.ID)); shown.Pinned != nil || shown.Removed != nil {
		t.Errorf("the dispatch is %+v", shown)
	}
	w.must("gc") // the control: the operator may
	w.checkContent(d, false)
}

// A service killed at each step of a removal: the next service removes what was
// marked and keeps the rest, and the log names exactly what is marked.
//
// proves R-A2
func TestInterruptedRemovalIsCompleted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		at     failpoint.Name
		marked bool
	}{{failpoint.RetainCommit, false}, {failpoint.RetainCommitted, true}, {failpoint.RetainBlob, true}} {
		t.Run(string(c.at), func(t *testing.T) {
			k := newTrial(t, 0, 7)
			k.retention("{content: {count: 1}}")
			k.up(func() {})
			// A first collection, so that the next automatic one is an hour
			// away and the one below passes the armed failpoint.
			must(t, k.ask(http.MethodPost, "/v1/operator/gc", nil, nil))
			k.killService()
			k.up(func() {})
			edits, fails := kinds()[0], kinds()[1]
			var made []api.Dispatch
			for i, kind := range []kind{fails, edits} { // patches differ
				j := &job{id: fmt.Sprintf("gone-%d", i), kind: kind}
				k.run(j, 0)
				d, err := k.describe(j.id)
				if err = errors.Join(err, j.err); err != nil {
					t.Fatal(err)
				}
				made = append(made, d)
			}
			// Rules count a dispatch once it is attested, which follows shortly after its end.
			if wrong := settled(func() []string { return unattested(k.log(-1)) }); wrong != nil {
				t.Fatal(wrong)
			}
			k.arm(string(c.at) + " 1 kill")
			if err := k.ask(http.MethodPost, "/v1/operator/gc", nil, nil); err == nil {
				t.Fatal("the collection succeeded: the service was not killed")
			}
			<-k.current().ended
			k.up(func() {})
			if wrong := settled(func() (wrong []string) {
				d, err := k.describe(string(made[0].ID))
				if err != nil || (len(d.Removed) == 1) != c.marked {
					wrong = append(wrong, fmt.Sprintf("removed %v, %v", d.Removed, err))
				}
				if k.hasBlob(made[0].Outcome.Patch.Digest) == c.marked || !k.hasBlob(made[1].Outcome.Patch.Digest) {
					wrong = append(wrong, "the wrong patch is there")
				}
				return wrong
			}); wrong != nil {
				t.Error(wrong)
			}
			n := 0
			for _, e := range k.log(-1) {
				if e.Kind == "retention.removed" && strings.Contains(e.leaf, `"class":"content"`) {
					n++
				}
			}
			if (n == 1) != c.marked {
				t.Errorf("%d entries", n)
			}
		})
	}
}

// Continuous collections while dispatches that share content run: finished
// dispatches keep all content that they refer to.
func TestCollectionLosesNoFinishedContent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(maker())
	w.up()
	var runs, loop sync.WaitGroup
	done := make(chan struct{})
	loop.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if d := w.command(filepath.Join(bin, "bailiwick"), "gc"); d.Run() != nil {
				t.Error("gc failed")
			}
		}
	})
	all := make([]api.Dispatch, 8)
	for i := range 4 {
		runs.Go(func() {
			for n := range 2 {
				all[2*i+n] = w.dispatch("makes", "--source", "repo", "--set", fmt.Sprintf("n=%d", n))
			}
		})
	}
	runs.Wait()
	close(done)
	loop.Wait()
	for _, d := range all {
		wantEnd(t, d, api.EventFinished, "")
		w.checkContent(d, true)
		w.must("dispatch", "patch", string(d.ID))
	}
	w.must("gc")
	for _, d := range all {
		w.checkContent(d, true)
	}
}

// dispatched lists the failpoints that a dispatch passes. Removals, operator
// decisions and runs have their own trials.
func dispatched() []failpoint.Name {
	return slices.DeleteFunc(failpoint.Names(), func(n failpoint.Name) bool {
		if n == failpoint.LogWipe || n == failpoint.LogWiped { // passed only with a damaged tree
			return true
		}
		kind, _, _ := strings.Cut(string(n), ".")
		return slices.Contains([]string{"retain", "stop", "decide", "rotate", "run", "task", "schedule", "tool", "reuse"}, kind)
	})
}
