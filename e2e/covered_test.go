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
		w.must("audit", "export", id, "--checkpoint", checkpoint, "--out", file)
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
	for _, line := range []string{"tiles --to " + w.path("copy2"), "export r-after --out " + w.path("after.evidence")} {
		d := w.refused(8, []string{"waiting up to 1.5s for a signed checkpoint that covers", "no checkpoint covers entry #", "after 1.5s; the newest covers ", "bailiwick status"},
			strings.Fields("audit "+line+" --wait 1.5s")...)
		if _, err := os.Stat(strings.Fields(line)[len(strings.Fields(line))-1]); err == nil {
			t.Errorf("it wrote something: %s", d)
		}
	}
	w.must("audit", "export", "r-before", "--out", w.path("before.evidence"), "--wait", "1.5s")
	must(t, os.Chmod(log, 0o700))
	w.must("audit", "tiles", "--to", w.path("copy2"))
	w.must("audit", "export", "r-after", "--out", w.path("after.evidence"))
	for _, wait := range []string{"0s", "-1s", "61s"} {
		w.refused(1, []string{"--wait ", "want more than 0s and at most 1m"}, "audit", "tiles", "--to", w.path("copy3"), "--wait", wait)
	}
}

// A report begins with what ran, as text, JSON and a page, and audit verify
// passes the page's name on.
func TestReportsSayWhatRan(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	w.write("trust.json", w.must("audit", "trust"), 0o644)
	run := w.awaitSettled(w.submit(planned("r-ran", shellTask("good", "echo x > new.txt"), shellTask("bad", "exit 3"), shellTask("never", "true", after("bad")))))
	w.must("audit", "export", "r-ran", "--out", w.path("ran.evidence"))
	d := w.try("audit", "verify", w.path("ran.evidence"), "--trust", w.path("trust.json"), "--html", w.path("ran.html"))
	page, err := os.ReadFile(w.path("ran.html"))
	must(t, err)
	for _, want := range []string{
		"r-ran: failed, 3 tasks on queue default", w.me() + ", under catalog revision 1", "good: done; subagent sh; source repo at commit " + w.git("repo", "rev-parse", "HEAD"),
		"dispatch " + string(task(t, run, "good").DispatchID), " of 1 file; ", "bad: failed because of agent; ", "never: skipped because of task bad; subagent sh", w.me() + " submitted run r-ran: allowed by ",
		"an operator set the ceiling of " + w.me() + " to ",
	} {
		want = strings.TrimSpace(want)
		if d.status != 0 || !strings.Contains(w.chosen(d.stdout), want) {
			t.Errorf("the report lacks %q: %s", want, d)
		}
		if !strings.Contains(w.chosen(string(page)), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if d := w.try("audit", "verify", w.path("ran.evidence"), "--trust", w.path("trust.json"), "--html", w.path("ran.html")); d.status != 1 || !strings.Contains(d.stderr, "existing files are not overwritten") {
		t.Errorf("an existing page: %s", d)
	}
}
