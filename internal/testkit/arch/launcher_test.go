package arch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// maxLauncher bounds the lines of the program that may become another account: a reviewer has
// to be able to read all of it.
const maxLauncher = 2000

// lines counts the lines of the Go files in a directory that are no tests.
func lines(t *testing.T, dir string) (n int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		n += strings.Count(string(b), "\n")
	}
	return n
}

// The control is a package that is larger.
func TestTheLauncherIsSmall(t *testing.T) {
	if n := lines(t, "../../worker/launch") + lines(t, "../../../cmd/bailiwick-launch"); n == 0 || n > maxLauncher {
		t.Errorf("the launcher has %d lines, want at most %d", n, maxLauncher)
	}
	if n := lines(t, "../../worker/jail"); n <= maxLauncher {
		t.Errorf("control: the jail has %d lines", n)
	}
}
