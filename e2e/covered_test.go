package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The auditor's sequence of the documents needs no sleep: what it copies and
// exports covers the run that has just ended, and the attestations of its tasks.
//
// proves R-A7
func TestTheAuditorsSequenceNeedsNoSleep(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	trust := w.path("trust.json")
	w.write("trust.json", w.must("audit", "trust"), 0o644)
	for i := range 20 {
		id, copied := fmt.Sprint("r-", i), w.path("auditor", fmt.Sprint(i))
		w.write("plan.yaml", "id: "+id+"\n"+quickPlan, 0o644)
		w.must("run", "submit", w.path("plan.yaml"), "--watch")
		w.must("audit", "tiles", "--to", copied)
		file, checkpoint := w.path(id+".evidence"), filepath.Join(copied, "checkpoint")
		w.must("audit", "export", id, "--checkpoint", checkpoint, "-o", file)
		d := w.exec(filepath.Join(bin, "bailiwick-verify"), file, "--trust", trust, "--anchor", checkpoint, "--require", "tamper-detecting")
		if d.status != 0 || !strings.Contains(d.stdout, "claim: tamper-detecting") {
			t.Fatalf("run %d: %s", i, d)
		}
	}
	// Control: a checkpoint from before the run earns nothing.
	file, before := w.path("r-1.evidence"), w.path("auditor/0/checkpoint")
	if d := w.exec(filepath.Join(bin, "bailiwick-verify"), file, "--trust", trust, "--anchor", before, "--require", "tamper-detecting"); d.status == 0 {
		t.Errorf("control: an older checkpoint: %s", d)
	}
}

// While no checkpoint can be made, the verbs say that they wait, and end with
// what is covered.
func TestExportsWaitForACheckpointForABoundedTime(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, ordinaryUID)
	w.awaitSettled(w.submit(planned("r-before", shellTask("a", "true"))))
	w.must("audit", "tiles", "--to", w.path("copy"))
	log := w.path("state/bailiwick/log")
	must(t, os.Chmod(log, 0o500))
	w.awaitSettled(w.submit(planned("r-after", shellTask("a", "true"))))
	for _, line := range []string{"tiles --to " + w.path("copy2"), "export r-after -o " + w.path("after.evidence")} {
		d := w.refused(8, []string{"waiting up to 1.5s for a signed checkpoint that covers", "no checkpoint covers entry #", "after 1.5s; the newest covers ", "bailiwick status"},
			strings.Fields("audit "+line+" --wait 1.5s")...)
		if _, err := os.Stat(strings.Fields(line)[len(strings.Fields(line))-1]); err == nil {
			t.Errorf("it wrote something: %s", d)
		}
	}
	w.must("audit", "export", "r-before", "-o", w.path("before.evidence"), "--wait", "1.5s")
	must(t, os.Chmod(log, 0o700))
	w.must("audit", "tiles", "--to", w.path("copy2"))
	w.must("audit", "export", "r-after", "-o", w.path("after.evidence"))
	for _, wait := range []string{"0s", "-1s", "61s"} {
		w.refused(1, []string{"--wait ", "want a time of at most 1m"}, "audit", "tiles", "--to", w.path("copy3"), "--wait", wait)
	}
}
