//go:build linux

package jail

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

const ordinaryEnv = "JAIL_TEST_ORDINARY"

// program is a directory with the attacking program in it, made once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "attack")
	if err != nil {
		return "", err
	}
	in, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(filepath.Join(dir, attackName), os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return "", err
	}
	if _, err := io.Copy(out, in); err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
})

func attackDir(t testing.TB) string {
	t.Helper()
	dir, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func host(t *testing.T) facts {
	t.Helper()
	dir, err := os.MkdirTemp("", "h") //nolint:usetesting // a short path: those of unix sockets are bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f := facts{HostDir: dir, Secret: filepath.Join(dir, "secret"), Unix: filepath.Join(dir, "s"), Abstract: "bailiwick-test-" + filepath.Base(dir)}
	if err := os.WriteFile(f.Secret, []byte(marker), 0o644); err != nil {
		t.Fatal(err)
	}
	listen := func(network, address string) net.Listener {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	f.TCP = listen("tcp", "127.0.0.1:0").Addr().String()
	listen("unix", f.Unix)
	listen("unix", "@"+f.Abstract)
	victim := exec.Command("/usr/bin/sleep", "1000")
	victim.Env = []string{"SECRET=" + marker}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = victim.Process.Kill(); _ = victim.Wait() })
	f.Victim = victim.Process.Pid
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	memory, err2 := os.ReadFile("/proc/meminfo")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	f.Boot = strings.TrimSpace(string(boot))
	f.Memory, _, _ = strings.Cut(string(memory), "\n")
	return f
}

func encode(t *testing.T, f facts) string {
	t.Helper()
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// proves R-S1, R-S2, R-S3
func TestAttacksFailInsideAndSucceedOutside(t *testing.T) {
	f := host(t)
	j := mustStart(t, Spec{Lower: []string{attackDir(t)}})
	outside := f
	outside.Target = f.Victim
	inside := f
	inside.Target = 1
	for _, name := range slices.Sorted(maps.Keys(attacks())) {
		if loadPrograms()[name] != nil || exposedAttacks()[name] != nil || takeAttacks()[name] != nil || countAttacks()[name] != nil || listenAttacks()[name] != nil {
			continue // a test of its own
		}
		if file, ok := strings.CutPrefix(name, machineFile); ok && slices.Contains(machineFiles(), file) {
			if _, err := os.Lstat("/proc/" + file); err != nil {
				continue // kernels differ
			}
		}
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			exit, err := j.Run(t.Context(), Command{Argv: []string{"./" + attackName, attackName, name, encode(t, inside)}, Env: plainEnv(), Stdout: &out, Stderr: &out})
			if err != nil {
				t.Fatal(err)
			}
			if exit.Code != 10 {
				t.Errorf("in the jail: %+v %s", exit, out.String())
			}
			t.Log(strings.TrimSpace(out.String()))
			if realRoot() {
				control(t, name, encode(t, outside))
			}
		})
	}
}

// control runs an attack on the host, where it must succeed: in namespaces of its own where it would change the host.
func control(t *testing.T, name, facts string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", attackName, name, facts)
	cmd.Dir = t.TempDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	switch name {
	case "mount", "umount", "remount", "chroot", "unshare mount":
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS // makes mounts private
	case "host name":
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUTS
	case "priority of a group":
		cmd.SysProcAttr.Setpgid = true
	case "priority of a user", "I/O priority of a user": // of one that has no other process
		cmd.Dir = "/"
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 54399, Gid: 54399}
	case "inherited descriptors":
		cmd.ExtraFiles = []*os.File{os.Stdin}
	}
	var out []byte
	var err error
	if name == "a terminal as standard descriptor" {
		err = underTerminal(cmd)
	} else {
		out, err = cmd.CombinedOutput()
	}
	if err != nil {
		t.Errorf("positive control outside the jail: %v %s", err, out)
	}
}

func underTerminal(cmd *exec.Cmd) error {
	ptmx, tty, err := openTerminal()
	if err != nil {
		return err
	}
	defer func() { _ = ptmx.Close(); _ = tty.Close() }()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	return cmd.Run()
}

// TestAllTestsPassAsAnOrdinaryUser runs all tests of this package again, as a user without any right.
//
// proves R-S1, R-S2
func TestAllTestsPassAsAnOrdinaryUser(t *testing.T) {
	if !realRoot() {
		return // this is that run
	}
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.count=1", "-test.timeout=8m")
	cmd.Dir = "/"
	home, err := os.MkdirTemp("", "o") //nolint:usetesting // as above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	if err := os.Chmod(home, 0o777); err != nil {
		t.Fatal(err)
	}
	agents, err := pinnedAgents()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = []string{ordinaryEnv + "=1", agentsEnv + "=" + agents, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + home}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("PASS: TestAttacksFailInsideAndSucceedOutside")) {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "--- ") {
			t.Log(strings.TrimSpace(line))
		}
	}
}
