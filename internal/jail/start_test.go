//go:build linux

package jail

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	Main()
	attackMain()
	os.Exit(m.Run())
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
func TestAJailStartsRunsAndSaysWhatIsActive(t *testing.T) {
	j := mustStart(t, Spec{Lower: []string{lowerDir(t, map[string]string{"a/b.txt": "one"})}})
	t.Log(strings.Join(j.Isolation().Layers, "\n"), j.Isolation().Limits)
	out, exit := shell(t, j, "id; pwd; ls -la / /workspace /dev /proc/1 /etc; cat a/b.txt; echo two > a/b.txt; cat a/b.txt; rm a/b.txt; mkdir -p /tmp/x ~/y; cat /proc/self/status /proc/self/cgroup; cat /proc/self/mountinfo; ulimit -a; exit 3")
	t.Log(out, exit)
	if exit.Code != 3 {
		t.Fatalf("code %d", exit.Code)
	}
}
