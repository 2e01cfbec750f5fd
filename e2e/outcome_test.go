package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Every event and every reason occurs in practice and is logged. The content
// produced until then is kept: patch, outputs, log and usage, marked as partial
// if the work was not complete.
//
// proves R-D3, R-D5
func TestEveryOutcomeAndReasonOccurs(t *testing.T) {
	t.Parallel()
	const half = "echo begun; echo half > half.txt; echo out > outputs/out.txt; "
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.init()
	w.manifest(
		subagent{name: "finishes", script: half},
		subagent{name: "asks", script: half + `echo '{"question":"?"}' > .bailiwick/question.json`},
		subagent{name: "stays", script: half + "while :; do sleep 1; done"},
		subagent{name: "fails", script: half + "exit 3"},
		subagent{name: "red", script: half, more: "    verify: {command: [\"false\"]}\n"},
		subagent{name: "unfit", script: half + "echo 1 > outputs/result.json", more: "    output: {type: object}\n"},
		subagent{name: "late", script: half + "sleep 100", more: "    limits: {timeout: 1s}\n"},
		subagent{name: "fills", script: half + "head -c 40M /dev/zero > /tmp/big", more: "    limits: {disk: 16MiB}\n"},
		subagent{name: "unprepared", script: half},
		subagent{name: "unmet", script: half},
		subagent{name: "stranger", script: half},
	)
	w.write("project/capabilities/unprepared/setup.sh", "#!/bin/sh\nexit 4\n", 0o755)
	w.replace(manifest, "{name: unmet, from: capabilities/unmet}", "{name: unmet, from: capabilities/unmet, requires: [{exec: no-such-program}]}")
	w.replace(manifest, ",stranger]", "]")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.up()

	var events []api.Event
	var reasons []api.Reason
	check := func(d api.Dispatch, state api.Event, reason api.Reason, kept bool) {
		t.Helper()
		wantEnd(t, d, state, reason)
		events = append(events, api.EventAccepted, api.EventStarted, d.State)
		reasons = append(reasons, d.Reason)
		o := d.Outcome
		if o == nil || kept != (o.Patch != nil && len(o.Outputs) > 0 && o.LogKept > 0 && o.Usage.CPUSeconds > 0 && o.Usage.WallSeconds > 0) {
			t.Errorf("%s %s: outcome %+v", state, reason, o)
		}
		complete := state == api.EventFinished || reason == api.ReasonVerify
		if o != nil && kept && o.Partial == complete {
			t.Errorf("%s %s: partial is %t", state, reason, o.Partial)
		}
		kind := "dispatch." + string(state)
		if n := len(w.entries("--dispatch", string(d.ID), "--kind", kind)); n != 1 {
			t.Errorf("%s %s: %d entries %s", state, reason, n, kind)
		}
		if line := w.must("audit", "list", "--dispatch", string(d.ID), "--kind", kind); !strings.Contains(line, string(reason)) {
			t.Errorf("the log says %s", line)
		}
	}
	run := func(name string, state api.Event, reason api.Reason, kept bool) {
		t.Helper()
		check(w.dispatch(name, "--source", "repo"), state, reason, kept)
	}
	run("finishes", api.EventFinished, "", true)
	run("asks", api.EventNeedsInput, "", true)
	run("fails", api.EventFailed, api.ReasonAgent, true)
	run("red", api.EventFailed, api.ReasonVerify, true)
	run("unfit", api.EventFailed, api.ReasonOutput, true)
	run("late", api.EventFailed, api.ReasonTimeout, true)
	run("fills", api.EventFailed, api.ReasonLimit, true)
	run("unprepared", api.EventFailed, api.ReasonSetup, false)
	run("unmet", api.EventFailed, api.ReasonContext, false)

	id := w.detached("stays", "--source", "repo")
	w.awaitLog(id, "begun")
	w.must("dispatch", "cancel", id)
	check(w.show(id), api.EventCancelled, "", true)

	id = w.detached("stays", "--source", "repo")
	w.awaitLog(id, "begun")
	for _, pid := range w.workers() {
		kill(t, pid)
	}
	check(w.awaitEnd(id), api.EventFailed, api.ReasonLost, false)
	if got := w.must("dispatch", "logs", id); got != "begun\n" {
		t.Errorf("the log of the lost one is %q", got)
	}

	// A refusal creates no record, so a caller who may not dispatch cannot fill
	// the list.
	const refused = "d-refused00000000000000000" // as a client generates it
	w.refused(3, []string{"stranger", "grant"}, "dispatch", "run", "stranger", "--source", "repo", "--id", refused)
	if n := len(w.entries("--dispatch", refused, "--kind", "dispatch.denied")); n != 1 {
		t.Errorf("%d entries say that it was denied", n)
	}
	reasons = append(reasons, api.ReasonDenied)

	// The repository lacks an object that the commit refers to.
	w.write("repo/new.txt", "new\n", 0o644)
	w.commit("repo", "second")
	blob := w.git("repo", "rev-parse", "HEAD:new.txt")
	must(t, os.Remove(w.path("repo/.git/objects", blob[:2], blob[2:])))
	run("finishes", api.EventFailed, api.ReasonFetch, false)
	w.git("repo", "reset", "-q", "--hard", "HEAD~1")

	// The stored file differs from the signed one.
	files, err := filepath.Glob(w.path("data/bailiwick/catalog/blobs/sha256/*"))
	must(t, err)
	spoilt := 0
	for _, f := range files {
		b, err := os.ReadFile(f)
		must(t, err)
		if strings.HasPrefix(string(b), "#!/bin/bash\n"+half) && len(b) == len("#!/bin/bash\n"+half)+1 {
			must(t, os.WriteFile(f, []byte(strings.Replace(string(b), "half", "evil", 1)), 0o644))
			spoilt++
		}
	}
	if spoilt == 0 {
		t.Fatal("the catalog's store contains no file of a capability")
	}
	run("finishes", api.EventFailed, api.ReasonIntegrity, false)

	missing := func(all, seen []string) (out []string) {
		for _, a := range all {
			if !slices.Contains(seen, a) {
				out = append(out, a)
			}
		}
		return out
	}
	if m := missing(texts(api.Events()), texts(events)); len(m) > 0 {
		t.Errorf("no dispatch ended with %v", m)
	}
	if m := missing(texts(api.Reasons()), texts(reasons)); len(m) > 0 {
		t.Errorf("no dispatch failed with %v", m)
	}
}

func texts[T ~string](list []T) (out []string) {
	for _, v := range list {
		out = append(out, fmt.Sprint(v))
	}
	return out
}
