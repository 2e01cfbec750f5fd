package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
)

// The commands of the install page for a build: make install puts it on a machine, also a
// second time; make uninstall removes each file of it, and leaves data and accounts, which it
// names; purge removes the data. Control: the files were there, and the program starts.
//
// proves R-P8
func TestABuildIsInstalledAndRemoved(t *testing.T) {
	t.Parallel()
	m := machine.New(t)
	root, err := filepath.Abs("..")
	must(t, err)
	m.Write("/etc/shadow", "", 0, 0, 0o600)
	m.Write("/etc/gshadow", "", 0, 0, 0o600)
	run := func(argv ...string) string {
		t.Helper()
		out, err := m.Run(machine.Root, argv...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
		return out
	}
	target := func(name string, vars ...string) string { // of what the suite has built
		t.Helper()
		return run(append([]string{"make", "-s", "-C", root, "-o", "build", name, "BIN=" + bin}, vars...)...)
	}
	files := func() string { return run("find", "/usr/local", "!", "-type", "d") }

	target("install", "DESTDIR=/var/lib/stage")
	if got := files(); got != "" {
		t.Errorf("a staged installation writes %s", got)
	}
	wantIn(t, "the stage", run("find", "/var/lib/stage/usr/local"), "/lib/bailiwick/bailiwickd\n", "/lib/systemd/system/bailiwick.service\n")
	for range 2 {
		wantIn(t, "install", target("install"), "installed in /usr/local; next: sudo bailiwick-deploy setup")
	}
	wantIn(t, "what is installed", files(), "/usr/local/lib/bailiwick/bailiwick-launch\n", "/usr/local/bin/bailiwick\n", "/usr/local/lib/systemd/system/bailiwick.socket\n", "/usr/local/share/man/man1/bailiwick.1.gz\n")
	wantIn(t, "the program", run("/usr/local/bin/bailiwick", "version"), "bailiwick ")
	wantIn(t, "the unit", run("cat", "/usr/local/lib/systemd/system/bailiwick.service"), "/usr/local/lib/bailiwick/bailiwickd serve --system")

	m.Write("/etc/bailiwick/trust.json", "{}\n", 0, 0, 0o644)
	out := target("uninstall")
	wantIn(t, "uninstall", out, "/etc/bailiwick stays", "/var/lib/bailiwick-catalog stays", "the accounts bailiwick and bailiwick-web and the group bailiwick-deploy stay")
	if left := files(); left != "" {
		t.Errorf("uninstall leaves\n%s", left)
	}
	wantIn(t, "the data", run("cat", "/etc/bailiwick/trust.json"), "{}")
	wantIn(t, "the accounts", run("cat", "/etc/passwd"), "bailiwick:", "bailiwick-web:")
	run(filepath.Join(bin, "bailiwick-deploy"), "purge", "--yes")
	if left, _ := m.Run(machine.Root, "sh", "-c", "ls -d /etc/bailiwick /var/lib/bailiwick*"); strings.Contains(left, "\n/") || strings.HasPrefix(left, "/") {
		t.Errorf("purge leaves %s", left)
	}
}
