//go:build linux

package jail

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// exposedAttacks use what a host directory holds besides files, through wherever it is shown: f.HostDir.
func exposedAttacks() map[string]func(facts) error {
	all := map[string]func(facts) error{}
	for _, name := range []string{"stream", "packet", "datagram", "later", "sub/stream", "link"} {
		all["exposed socket "+name] = func(f facts) error { return connectAny(filepath.Join(f.HostDir, name)) }
	}
	all["exposed socket sent to"] = func(f facts) error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: filepath.Join(f.HostDir, "datagram")})
	}
	all["exposed pipe read"] = func(f facts) error {
		fd, err := unix.Open(filepath.Join(f.HostDir, "pipe"), unix.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		if n, _ := unix.Read(fd, make([]byte, 1)); n != 1 {
			return errBlocked
		}
		return nil
	}
	all["exposed pipe write"] = func(f facts) error {
		return open(filepath.Join(f.HostDir, "pipe"), unix.O_WRONLY|unix.O_NONBLOCK)
	}
	all["exposed device"] = func(f facts) error { return open(filepath.Join(f.HostDir, "device"), unix.O_RDONLY) }
	return all
}

// connectAny connects to a socket of whatever type it is.
func connectAny(path string) error {
	var errs []error
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_SEQPACKET, unix.SOCK_DGRAM} {
		fd, err := unix.Socket(unix.AF_UNIX, kind, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
			_ = unix.Close(fd)
		}
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// hostWithSockets is a directory with every kind of socket, a pipe, as root a device, and a file. The function that it
// returns adds the socket "later".
func hostWithSockets(t *testing.T) (dir string, later func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "x") //nolint:usetesting // a short path: those of unix sockets are bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := func(name string) string { return filepath.Join(dir, name) }
	listen := func(network, name string) {
		l, err := net.Listen(network, at(name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		if err := os.Chmod(at(name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(at("sub"), 0o755), os.Chmod(dir, 0o755), os.Symlink("stream", at("link")), os.WriteFile(at("file"), []byte("shown"), 0o644)); err != nil {
		t.Fatal(err)
	}
	listen("unix", "stream")
	listen("unixpacket", "packet")
	listen("unix", "sub/stream")
	datagram, err := net.ListenPacket("unixgram", at("datagram"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = datagram.Close() })
	if err := errors.Join(os.Chmod(at("datagram"), 0o777), unix.Mkfifo(at("pipe"), 0o666), os.Chmod(at("pipe"), 0o666)); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(at("pipe"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pipe.Close() })
	if _, err := pipe.WriteString(strings.Repeat("x", 100)); err != nil {
		t.Fatal(err)
	}
	if realRoot() {
		if err := errors.Join(unix.Mknod(at("device"), unix.S_IFCHR|0o666, 1<<8|5), os.Chmod(at("device"), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	return dir, func() { listen("unix", "later") }
}

// attackExposed runs the attacks on where a jail shows dir, and a control of each on the host.
func attackExposed(t *testing.T, j *Jail, dir, shown string) {
	t.Helper()
	if out, exit := shell(t, j, "cat '"+shown+"/file'"); exit.Code != 0 || out != "shown" {
		t.Fatalf("the directory is not shown: %+v %q", exit, out)
	}
	for name := range exposedAttacks() {
		var out bytes.Buffer
		exit, err := j.Run(t.Context(), Command{Argv: []string{"./" + attackName, attackName, name, encode(t, facts{HostDir: shown})}, Env: plainEnv(), Stdout: &out, Stderr: &out})
		if err != nil {
			t.Fatal(err)
		}
		if exit.Code != 10 {
			t.Errorf("%s, in the jail at %s: %+v %s", name, shown, exit, out.String())
		}
		t.Log(name, strings.TrimSpace(out.String()))
		if name != "exposed device" || realRoot() {
			control(t, name, encode(t, facts{HostDir: dir}))
		}
	}
}

// proves R-S1, R-S2
func TestNoHostSocketPipeOrDeviceIsReachableThroughAMount(t *testing.T) {
	for _, how := range []string{"read-only path", "read-only path in /tmp/…/sub", "lower directory"} {
		t.Run(how, func(t *testing.T) {
			dir, later := hostWithSockets(t)
			spec, shown := Spec{Lower: []string{attackDir(t)}}, dir
			if how == "lower directory" {
				spec.Lower, shown = append(spec.Lower, dir), WorkspaceDir
			} else {
				spec.ReadOnly = []string{dir}
			}
			if how == "read-only path in /tmp/…/sub" {
				spec.ReadOnly = []string{dir, filepath.Join(dir, "sub")}
			}
			j := mustStart(t, spec)
			later()
			attackExposed(t, j, dir, shown)
		})
	}
}

// A socket below a mount below a read-only path: an overlay does not cross mounts, so the directory is taken apart.
//
// proves R-S1, R-S2
func TestNoHostSocketIsReachableBelowANestedMount(t *testing.T) {
	inNamespace(t, "nested mount", func() error {
		dir, later := hostWithSockets(t)
		nested := filepath.Join(dir, "sub", "a b", "mount")
		if err := os.MkdirAll(nested, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(dir, nested, "", unix.MS_BIND, ""); err != nil {
			return err
		}
		t.Cleanup(func() { _ = unix.Unmount(nested, unix.MNT_DETACH) })
		j := mustStart(t, Spec{Lower: []string{attackDir(t)}, ReadOnly: []string{dir}})
		later()
		if layers := j.Isolation().Layers; !slices.Contains(layers, exposeLayer) {
			t.Errorf("layers %v", layers)
		}
		attackExposed(t, j, dir, nested)
		out, exit := shell(t, j, "cd "+dir+" && cat file && readlink link && ls -d sub pipe stream; ls; touch new || touch sub/new || touch '"+nested+"/new'")
		if exit.Code == 0 || !strings.HasPrefix(out, "shownstream\n") || strings.Contains(out, "pipe\n") {
			t.Errorf("%+v %s", exit, out)
		}
		return nil
	})
}

// proves R-S1
func TestAPathWithoutAnOverlayIsRefused(t *testing.T) {
	inNamespace(t, "overlay over an overlay", func() error {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			return err
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		at := func(name string) string { return filepath.Join(dir, name) }
		for _, name := range []string{"0", "1", "2", "empty"} {
			if err := os.Mkdir(at(name), 0o755); err != nil {
				return err
			}
		}
		for i, refused := range []bool{false, true} {
			if err := unix.Mount("overlay", at(fmt.Sprint(i+1)), "overlay", 0, "userxattr,lowerdir="+at(fmt.Sprint(i))+":"+at("empty")); err != nil {
				return err
			}
			j, err := Start(t.Context(), Spec{ReadOnly: []string{at(fmt.Sprint(i + 1))}})
			if err == nil {
				err = j.Close()
			}
			miss, missing := errors.AsType[*MissingError](err)
			if missing != refused || refused && (miss.Layer != exposeLayer || !strings.Contains(miss.Fix, "overlay over an overlay")) {
				t.Errorf("%d overlays: %v", i+1, err)
			}
		}
		return nil
	})
}

// proves R-S1
func TestASingleFileMustBeRegular(t *testing.T) {
	dir, _ := hostWithSockets(t)
	for name, ok := range map[string]bool{"file": true, "stream": false, "datagram": false, "pipe": false, "device": false, "link": false} {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); err != nil {
			continue // an ordinary user cannot make a device
		}
		j, err := Start(t.Context(), Spec{ReadOnly: []string{path}})
		if err == nil {
			err = j.Close()
		}
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Agents use sockets of their own.
func TestAnAgentConnectsToItsOwnSockets(t *testing.T) {
	j := mustStart(t, Spec{Lower: []string{attackDir(t)}})
	var out bytes.Buffer
	exit, err := j.Run(t.Context(), Command{Argv: []string{"./" + attackName, attackName, "load own sockets"}, Env: plainEnv(), Stdout: &out, Stderr: &out})
	if err != nil || exit.Code != 0 {
		t.Errorf("%v %+v %s", err, exit, out.String())
	}
}

func ownSockets(facts) error {
	if _, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); err != nil {
		return err
	}
	for _, address := range []string{"@own", WorkspaceDir + "/own", "/tmp/own", "/dev/shm/own", HomeDir + "/own"} {
		for _, network := range []string{"unix", "unixpacket"} {
			l, err := net.Listen(network, address)
			if err != nil {
				return err
			}
			c, err := net.DialTimeout(network, address, time.Second)
			if err != nil {
				return err
			}
			if err := errors.Join(c.Close(), l.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

const namespaceEnv = "JAIL_TEST_NAMESPACE"

// inNamespace runs a test in a mount namespace, as an ordinary user in one of its own user namespace.
func inNamespace(t *testing.T, name string, do func() error) {
	t.Helper()
	if os.Getenv(namespaceEnv) == name {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), namespaceEnv+"="+name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Unshareflags: unix.CLONE_NEWNS}
	if uid := os.Geteuid(); uid != 0 {
		cmd.SysProcAttr.Unshareflags = 0
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log(string(out))
}
