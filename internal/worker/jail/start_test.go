//go:build linux

package jail

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	Main()
	attackMain()
	code := m.Run()
	if dir, err := program(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

func plainEnv() []string {
	return []string{"PATH=/usr/local/go/bin:/usr/bin:/bin", "HOME=" + HomeDir, "GOCACHE=/tmp/gocache", "GOFLAGS=-mod=mod", "LANG=C.UTF-8"}
}

func mustStart(t testing.TB, spec Spec) *Jail {
	t.Helper()
	j, err := Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return j
}

func shell(t testing.TB, j *Jail, script string) (string, Exit) {
	t.Helper()
	var out bytes.Buffer
	exit, err := j.Run(t.Context(), Command{Argv: []string{"sh", "-c", script}, Env: plainEnv(), Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatalf("run %q: %v (%s)", script, err, out.String())
	}
	return out.String(), exit
}

func lowerDir(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// proves R-S1
func TestAJailReportsItsActiveLayers(t *testing.T) {
	j := mustStart(t, Spec{Lower: []string{lowerDir(t, map[string]string{"a/b.txt": "one\n"})}})
	isolation := j.Isolation()
	t.Log(strings.Join(append(isolation.Layers, isolation.Limits...), "\n"))
	for _, layer := range []string{"user namespace", "no capabilities", "no_new_privs", "landlock ABI ", "seccomp", "pid 1 untraceable", "workspace: "} {
		if !strings.Contains(strings.Join(isolation.Layers, "\n"), layer) {
			t.Errorf("no layer %q", layer)
		}
	}
	out, exit := shell(t, j, `id -u; pwd; echo ~; cat a/b.txt; echo two > a/b.txt; cat a/b.txt; ls /
		grep -E "^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):" /proc/self/status | tr -d "\t0"; ulimit -Hc; exit 3`)
	want := "1000\n/workspace\n/home/agent\none\ntwo\nbin\ndev\netc\nhome\nlib\n"
	if exit.Code != 3 || !strings.HasPrefix(out, want) || !strings.HasSuffix(out, "CapInh:\nCapPrm:\nCapEff:\nCapBnd:\nCapAmb:\nNoNewPrivs:1\nSeccomp:2\n0\n") {
		t.Errorf("%+v %s", exit, out)
	}
}

// What pid 1 says before it exits arrives, however soon it exits.
func TestTheLastWordsOfPid1Arrive(t *testing.T) {
	for range 100 {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		j := &Jail{wire: &wire{fd: pair[0]}, replies: make(chan reply, 1), ended: make(chan struct{})}
		close(j.ended)
		if err := (&wire{fd: pair[1]}).send(&message{Kind: kindFail, Error: "why"}); err != nil {
			t.Fatal(err)
		}
		closeAll(pair[1:])
		j.read()
		r, ok := <-j.replies
		closeAll(pair[:1])
		if !ok || r.failure().Error() != "why" {
			t.Fatalf("%+v", r)
		}
	}
}
