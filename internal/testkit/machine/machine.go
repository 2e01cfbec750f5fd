// Package machine gives a test a machine of its own: /etc, /home, /mnt, /run, /srv,
// /usr/local and /var/lib with the accounts of an installation in mode system, in a private mount namespace.
//
// Nothing of it reaches the machine that the test runs on. It needs root.
package machine

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The accounts of a Machine.
const (
	Root    = 0
	Service = 64301 // bailiwick
	Page    = 64302 // bailiwick-web
	Deploy  = 64303 // the group bailiwick-deploy
	Alice   = 64311 // a person in the group bailiwick-deploy
	Bob     = 64312 // a person in no group
	Carol   = 64313 // another one
)

// Machine is a machine of its own. Its directories are below a temporary one.
type Machine struct {
	// Before runs in the namespace before each command, as root: lines of sh that mount
	// something, for example.
	Before string
	// Own lists further namespaces of each command, such as "--pid", as options of unshare.
	Own []string

	t   testing.TB
	dir string
}

// New returns a machine with accounts and without an installation.
func New(t testing.TB) *Machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "m") //nolint:usetesting // short: sockets have long paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := &Machine{t: t, dir: dir}
	m.must(os.Chmod(dir, 0o755)) //nolint:gosec // G302: every account of the machine looks below it
	for _, dir := range m.own() {
		m.must(os.MkdirAll(m.Path(dir), 0o755)) //nolint:gosec // G301: as on every machine
		m.must(os.Chmod(m.Path(dir), 0o755))    //nolint:gosec // G302: as on every machine
	}
	var passwd, group strings.Builder
	for _, a := range []struct {
		name string
		id   int
		home string
	}{
		{"root", Root, "/root"},
		{"bailiwick", Service, "/var/lib/bailiwick"},
		{"bailiwick-web", Page, "/nonexistent"},
		{"alice", Alice, "/home/alice"},
		{"bob", Bob, "/home/bob"},
		{"carol", Carol, "/home/carol"},
	} {
		fmt.Fprintf(&passwd, "%s:x:%d:%d::%s:/bin/sh\n", a.name, a.id, a.id, a.home)
		fmt.Fprintf(&group, "%s:x:%d:\n", a.name, a.id)
		if strings.HasPrefix(a.home, "/home/") {
			m.MkdirAll(a.home, a.id, a.id, 0o700)
		}
	}
	fmt.Fprintf(&group, "bailiwick-deploy:x:%d:alice\n", Deploy)
	m.Write("/etc/passwd", passwd.String(), Root, Root, 0o644)
	m.Write("/etc/group", group.String(), Root, Root, 0o644)
	m.Write("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n", Root, Root, 0o644)
	return m
}

// own lists the directories that the machine has of its own.
func (m *Machine) own() []string {
	return []string{"/etc", "/run", "/var/lib", "/home", "/usr/local", "/srv", "/mnt"}
}

// Path returns where a file of the machine is for the test.
func (m *Machine) Path(path string) string { return filepath.Join(m.dir, path) }

// MkdirAll creates a directory of the machine with an owner and a mode.
func (m *Machine) MkdirAll(path string, uid, gid int, mode fs.FileMode) {
	m.t.Helper()
	m.must(os.MkdirAll(m.Path(path), 0o755)) //nolint:gosec // G301: as on every machine
	m.must(os.Chown(m.Path(path), uid, gid))
	m.must(os.Chmod(m.Path(path), mode))
}

// Write writes a file of the machine with an owner and a mode.
func (m *Machine) Write(path, content string, uid, gid int, mode fs.FileMode) {
	m.t.Helper()
	m.must(os.WriteFile(m.Path(path), []byte(content), 0o600))
	m.must(os.Chown(m.Path(path), uid, gid))
	m.must(os.Chmod(m.Path(path), mode))
}

// Command returns a command of the machine under an account. An account other than root
// has no capability and cannot gain one. The command ends with ctx or the test.
func (m *Machine) Command(ctx context.Context, uid int, argv ...string) *exec.Cmd {
	m.t.Helper()
	var script strings.Builder
	script.WriteString("set -e\n")
	for _, dir := range m.own() {
		fmt.Fprintf(&script, "mount --bind '%s' '%s'\n", m.Path(dir), dir)
	}
	script.WriteString(m.Before + "\n")
	args := append([]string{"-m", "--propagation", "private"}, m.Own...)
	args = append(args, "--", "/bin/sh", "-c", script.String()+`exec "$@"`, "sh")
	home := "/root"
	if uid != Root {
		id := strconv.Itoa(uid)
		args = append(args, "setpriv", "--reuid", id, "--regid", id, "--init-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--")
		home = map[int]string{Service: "/var/lib/bailiwick", Page: "/nonexistent", Alice: "/home/alice", Bob: "/home/bob", Carol: "/home/carol"}[uid]
	}
	cmd := exec.CommandContext(ctx, "unshare", append(args, argv...)...) //nolint:gosec // G204: of a test
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + home, "LANG=C.UTF-8"}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // unshare, sh and setpriv become the command
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// Run runs a command of the machine to its end and returns its output.
func (m *Machine) Run(uid int, argv ...string) (string, error) {
	m.t.Helper()
	out, err := m.Command(m.t.Context(), uid, argv...).CombinedOutput()
	return string(out), err
}

func (m *Machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}
