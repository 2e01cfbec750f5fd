package capture

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

func TestMain(m *testing.M) {
	jail.Main()
	agentMain()
	os.Exit(m.Run())
}

const ordinaryEnv = "CAPTURE_TEST_ORDINARY"

// asOrdinaryUser runs the calling test again as an unprivileged user.
func asOrdinaryUser(t *testing.T) {
	t.Helper()
	if os.Getenv(ordinaryEnv) != "" || os.Geteuid() != 0 {
		return // this is that run
	}
	home, err := os.MkdirTemp("", "o") //nolint:usetesting // parents of t.TempDir are closed to other accounts
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	must(t, os.Chmod(home, 0o777))
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1", "-test.timeout=5m", "-rapid.nofailfile", "-rapid.checks=15")
	cmd.Dir = "/"
	cmd.Env = []string{ordinaryEnv + "=1", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + home, "HOME=" + home}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	}
}
