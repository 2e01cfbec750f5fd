package e2e

import (
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/executor"
)

// A task's worker gives its agent exactly the inputs in the signed manifest, or
// runs nothing: it refuses altered files in its directory, and a manifest with
// only part of a task's members.
//
// proves R-O2, R-D2
func TestWorkerReceivesExactlyTheManifestsNeeds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const patch, output = "diff --git a/a.txt b/a.txt\n", "1,2\n"
	try := func(change func(m *record.Manifest, files map[string]executor.Content)) (ending, string) {
		t.Helper()
		m := b.manifest
		m.Run, m.Task, m.Fence = "r-1", "t-1", 3
		m.Needs = []record.Need{
			{Name: "input.txt", Task: "up", Dispatch: "d-up", Kind: record.NeedPatch, Digest: api.DigestOf([]byte(patch)), Size: int64(len(patch))},
			{Name: "part", Task: "split", Dispatch: "d-split", Kind: record.NeedOutput, Path: "p/1.csv", Digest: api.DigestOf([]byte(output)), Size: int64(len(output))},
		}
		job := jobOf(b.dir(1), nil, `{"n":"1"}`)
		job.Files[record.WorkNeed+"input.txt"], job.Files[record.WorkNeed+"part"] = content([]byte(patch)), content([]byte(output))
		if change != nil {
			change(&m, job.Files)
		}
		job.Files[record.WorkManifest] = content(b.sign(m, b.key))
		return b.run(job, nil)
	}
	if r, log := try(nil); r.Outcome != api.EventFinished || !strings.Contains(log, agentRan) || !strings.Contains(log, output) || r.Fence != 3 {
		t.Fatalf("the genuine attempt: %s %s, lease %d; log %q", r.Outcome, r.Message, r.Fence, log)
	}
	for name, change := range map[string]func(m *record.Manifest, files map[string]executor.Content){
		"another content": func(_ *record.Manifest, f map[string]executor.Content) {
			f[record.WorkNeed+"part"] = content([]byte("9,9\n"))
		},
		"one for another": func(_ *record.Manifest, f map[string]executor.Content) {
			f[record.WorkNeed+"part"] = f[record.WorkNeed+"input.txt"]
		},
		"one missing":               func(_ *record.Manifest, f map[string]executor.Content) { delete(f, record.WorkNeed+"part") },
		"a name of the worker's":    func(m *record.Manifest, _ map[string]executor.Content) { m.Needs[0].Name = api.InputFile },
		"a name that leaves inputs": func(m *record.Manifest, _ map[string]executor.Content) { m.Needs[0].Name = "../a.txt" },
		"a name twice":              func(m *record.Manifest, _ map[string]executor.Content) { m.Needs[0].Name = "part" },
		"no lease":                  func(m *record.Manifest, _ map[string]executor.Content) { m.Fence = 0 },
		"no run":                    func(m *record.Manifest, _ map[string]executor.Content) { m.Run = "" },
	} {
		r, log := try(change)
		if r.Outcome != api.EventFailed || r.Reason != api.ReasonIntegrity || strings.Contains(log, agentRan) {
			t.Errorf("%s: %s %s %q; log %q", name, r.Outcome, r.Reason, r.Message, log)
		}
	}
}
