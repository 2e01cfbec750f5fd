package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// verifyOffline runs bailiwick-verify in a network namespace without interfaces,
// as an account that can read only its arguments.
func (w *world) verifyOffline(args ...string) done {
	w.t.Helper()
	cmd := exec.Command(filepath.Join(bin, "bailiwick-verify"), args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Credential: &syscall.Credential{Uid: ordinaryUID, Gid: ordinaryUID}}
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return done{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// exported returns a world-readable file with the evidence about a run or dispatch.
func (w *world) exported(id string, more ...string) string {
	w.t.Helper()
	file := w.path("tmp", id+".evidence")
	w.must(append([]string{"audit", "export", id, "--out", file}, more...)...)
	must(w.t, os.Chmod(file, 0o644))
	for _, d := range []string{w.dir, w.path("tmp")} {
		must(w.t, os.Chmod(d, 0o755)) //nolint:gosec // G302: the auditor is another account
	}
	return file
}

// trustFile returns the trust file that an auditor of this installation has.
func (w *world) trustFile() string {
	w.t.Helper()
	w.write("tmp/trust.json", w.must("audit", "trust"), 0o644)
	return w.path("tmp/trust.json")
}

// verifyEvidence fails the test unless the evidence about id verifies.
func (w *world) verifyEvidence(id string, more ...string) report.Report {
	w.t.Helper()
	d := w.verifyOffline(w.exported(id, more...), "--trust", w.trustFile(), "-o", "json")
	var r report.Report
	if err := json.Unmarshal([]byte(d.stdout), &r); err != nil {
		w.t.Fatalf("%v: %s", err, d)
	}
	if d.status != 0 || r.Failed() {
		w.t.Errorf("the evidence about %s does not verify:\n%s%s", id, r.Text(), d)
	}
	for _, row := range r.Rows {
		if row.Status != report.Pass && row.Row != report.RowAnchor && row.Row != report.RowTime && row.Row != report.RowConsistency && row.Row != report.RowTools {
			w.t.Errorf("%s: %s is %s: %s", id, row.Row, row.Status, row.Why)
		}
	}
	return r
}

// evidenceStatus returns the result of the service's own checks.
func (w *world) evidenceStatus() (st api.EvidenceStatus) {
	w.t.Helper()
	var s api.ServiceStatus
	decode(w.t, w.must("status", "-o", "json"), &s)
	if s.Evidence == nil {
		w.t.Fatal("the status has no evidence section")
	}
	return *s.Evidence
}

const slow = "touch here; sleep 600"

func evidenceWorld(t *testing.T) *world {
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n", "gone.txt": "x\n", "same.txt": "same\n"})
	w.catalog(
		subagent{name: "edit", script: "echo more >> a.txt; echo out > outputs/o.txt"},
		subagent{name: "fails", script: "echo half >> a.txt; exit 3"},
		subagent{name: "slow", script: slow},
		subagent{name: "asks", script: asks, more: "    verify: {command: [grep, -q, whole, a.txt]}\n"},
	)
	w.must("up", "--orchestrator")
	w.downAtEnd()
	return w
}

const evidencePlan = `{"source":{"name":"repo"},"tasks":[
{"id":"a","subagent":"edit"},
{"id":"b","subagent":"edit","needs":{"first":{"from":"a","patch":true},"file":{"from":"a","output":"o.txt"}}},
{"id":"c","subagent":"fails","retry":{"attempts":2,"backoff":"10ms..20ms"}},
{"id":"d","subagent":"edit","depends_on":["c"]},
{"id":"e","subagent":"asks"}]}`

// The evidence about a run with needs, a retried attempt, a question and skipped
// tasks verifies; so does that about its retry, and about single dispatches.
//
// proves R-A7
func TestARunAndItsRetryVerify(t *testing.T) {
	t.Parallel()
	w := evidenceWorld(t)
	w.write("tmp/plan.json", evidencePlan, 0o644)
	w.must("run", "submit", w.path("tmp/plan.json"), "--id", "first")
	answered := false
	var r api.Run
	for late := range polling(2 * time.Minute) {
		decode(t, w.must("run", "show", "first", "-o", "json"), &r)
		if r.State.Settled() {
			break
		}
		if r.State == api.RunWaiting && !answered {
			w.must("run", "answer", "first", "--task", "e", "--option", "1")
			answered = true
		}
		if late {
			t.Fatalf("the run does not settle: %+v", r)
		}
	}
	report := w.verifyEvidence("first")
	if report.Dispatches != 5 || !w.names(string(report.Run), "first") {
		t.Errorf("%s", report.Text())
	}
	// With content, and of a single dispatch that has needs.
	if err := os.Remove(w.path("tmp/first.evidence")); err != nil {
		t.Fatal(err)
	}
	w.verifyEvidence("first", "--with-blobs")
	var b string
	for _, d := range w.list() {
		if d.Task == "b" {
			b = string(d.ID)
		}
	}
	if r := w.verifyEvidence(b); r.Dispatches != 2 {
		t.Errorf("%s", r.Text())
	}
	w.must("run", "retry", "first", "--id", "second")
	for late := range polling(2 * time.Minute) {
		decode(t, w.must("run", "show", "second", "-o", "json"), &r)
		if r.State.Settled() {
			break
		}
		if late {
			t.Fatalf("the run does not settle: %+v", r)
		}
	}
	w.verifyEvidence("second")
	if out := w.must("audit", "verify", "--log"); !strings.Contains(out, "verified against the signed root: ") {
		t.Errorf("audit check: %s", out)
	}
	if st := w.evidenceStatus(); st.Refused != 0 || st.Checked == 0 {
		t.Errorf("the service's own checks: %+v", st)
	}
	// Positive controls: a changed byte, and the trust of another installation.
	file := w.path("tmp/second.evidence")
	whole, err := os.ReadFile(file)
	must(t, err)
	bad := append([]byte{}, whole...)
	bad[len(bad)/2] ^= 1
	w.write("tmp/bad.evidence", string(bad), 0o644)
	if d := w.verifyOffline(w.path("tmp/bad.evidence"), "--trust", w.path("tmp/trust.json")); d.status != 1 {
		t.Errorf("a changed bundle verifies: %s", d)
	}
	other := newWorld(t, 0)
	other.repository("repo", map[string]string{"a.txt": "one\n"})
	other.catalog(subagent{name: "edit", script: "true"})
	other.up()
	other.trustFile()
	must(t, os.Chmod(other.dir, 0o755))         //nolint:gosec // G302: the auditor is another account
	must(t, os.Chmod(other.path("tmp"), 0o755)) //nolint:gosec // G302: likewise
	if d := w.verifyOffline(file, "--trust", other.path("tmp/trust.json")); d.status != 1 || !strings.Contains(d.stdout, "fail  checkpoint signature") {
		t.Errorf("with foreign trust: %s", d)
	}
	if d := w.verifyOffline(file, "--trust", w.path("tmp/trust.json"), "--require", "tamper-evident"); d.status != 1 || !strings.Contains(d.stderr, "weaker than tamper-evident") {
		t.Errorf("a false claim is accepted: %s", d)
	}
}

// Control for "offline": in that namespace a connection fails.
func TestVerificationNeedsNoNetwork(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close() //nolint:errcheck // a test's own
	dial := func(flags uintptr) error {
		cmd := exec.Command("bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d", l.Addr().(*net.TCPAddr).Port))
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		return cmd.Run()
	}
	if err := dial(0); err != nil {
		t.Fatalf("outside the namespace: %v", err)
	}
	if err := dial(unix.CLONE_NEWNET); err == nil {
		t.Error("the namespace has a network")
	}
}
