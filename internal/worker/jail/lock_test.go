//go:build linux

package jail

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// hold takes every lock and watch that a reader of a file can have, says so, and waits for the end of its input. Then it
// says how many events it saw.
func hold(f facts) error {
	fd, err := unix.Open(f.Secret, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	for what, err := range map[string]error{
		"flock": unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB),
		"range": unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &unix.Flock_t{Type: unix.F_RDLCK}),
		"lease": func() error { _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK); return err }(),
		"watch of the file": func() error {
			_, err := unix.InotifyAddWatch(watch, f.Secret, unix.IN_ALL_EVENTS)
			return err
		}(),
		"watch of its directory": func() error {
			_, err := unix.InotifyAddWatch(watch, filepath.Dir(f.Secret), unix.IN_ALL_EVENTS)
			return err
		}(),
	} {
		if err != nil {
			fmt.Printf("no %s: %v; ", what, err)
		}
	}
	fmt.Println("held")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	n, _ := unix.Read(watch, make([]byte, 4096))
	fmt.Println("bytes of events", max(n, 0))
	return nil
}

// reached returns what of a holder the host notices or tells it, when it uses the file at path.
func reached(t *testing.T, path string, run func(in io.Reader, out io.Writer) error) (found []string) {
	t.Helper()
	in, write := io.Pipe()
	read, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(in, out)
		_ = out.Close()
		done <- err
	}()
	lines := bufio.NewReader(read)
	said, err := lines.ReadString('\n')
	if err != nil || !strings.HasSuffix(said, "held\n") {
		t.Fatalf("%v %q %v", err, said, <-done)
	}
	t.Log(path, strings.TrimSpace(said))
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = unix.Read(fd, make([]byte, 1))
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		found = append(found, "flock")
	}
	_ = unix.Close(fd)
	if fd, err = unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == unix.EWOULDBLOCK { //nolint:errorlint // of the call itself
		found = append(found, "lease")
	} else if err == nil {
		if err := unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
			found = append(found, "range")
		}
		_ = unix.Close(fd)
	}
	_ = write.Close()
	rest, err := io.ReadAll(lines)
	if err != nil || !bytes.Contains(rest, []byte("bytes of events ")) {
		t.Fatalf("%v %q", err, rest)
	}
	if !bytes.Contains(rest, []byte("bytes of events 0\n")) {
		found = append(found, "events")
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return found
}

// Locks, leases and watches of an agent are on the inodes of its own view: nobody outside waits for them, and they tell
// nothing of what others do.
//
// proves R-S1, R-S2
func TestLocksAndWatchesStayInTheJail(t *testing.T) {
	dir, err := os.MkdirTemp("", "l") //nolint:usetesting // it becomes a path in the jail
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("shown"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		how, shown, host string
		spec             Spec
	}{
		{"a read-only directory", file, file, Spec{ReadOnly: []string{dir}}},
		{"a read-only file", file, file, Spec{ReadOnly: []string{file}}},
		{"a mounted file", MountsDir + "/bin/program", file, Spec{Mounts: []Mount{{file, MountsDir + "/bin/program"}}}},
		{"a lower directory", WorkspaceDir + "/file", file, Spec{Lower: []string{dir}}},
		{"a program", "/usr/bin/env", "/usr/bin/env", Spec{}},
		{"a file in /etc", "/etc/ld.so.cache", "/etc/ld.so.cache", Spec{}},
	} {
		t.Run(c.how, func(t *testing.T) {
			c.spec.Lower = append(c.spec.Lower, attackDir(t))
			j := mustStart(t, c.spec)
			found := reached(t, c.host, func(in io.Reader, out io.Writer) error {
				exit, err := j.Run(t.Context(), Command{Argv: []string{"./" + attackName, attackName, "load hold", encode(t, facts{Secret: c.shown})}, Env: plainEnv(), Stdin: in, Stdout: out, Stderr: out})
				if err == nil && exit.Code != 0 {
					err = fmt.Errorf("%+v", exit)
				}
				return err
			})
			if len(found) != 0 || strings.Contains(strings.Join(j.Isolation().Layers, "\n"), "by bind") {
				t.Errorf("reach the host: %q, layers %q", found, j.Isolation().Layers)
			}
		})
	}
	control := reached(t, file, func(in io.Reader, out io.Writer) error {
		cmd := exec.Command("/proc/self/exe", attackName, "load hold", encode(t, facts{Secret: file}))
		cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, out
		return cmd.Run()
	})
	if want := "flock lease events"; strings.Join(control, " ") != want {
		t.Errorf("positive control outside the jail: %q, want %q", control, want)
	}
}

// A file that is a mount of its own has no other inode: it is shown, and the layers say what that gives.
func TestAFileByBindIsALayer(t *testing.T) {
	inNamespace(t, "file by bind", func() error {
		dir := t.TempDir()
		file := filepath.Join(dir, "file")
		if err := os.WriteFile(file, []byte("below"), 0o644); err != nil {
			return err
		}
		other := filepath.Join(t.TempDir(), "other")
		if err := os.WriteFile(other, []byte("shown"), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(other, file, "", unix.MS_BIND, ""); err != nil {
			return err
		}
		t.Cleanup(func() { _ = unix.Unmount(file, unix.MNT_DETACH) })
		j := mustStart(t, Spec{ReadOnly: []string{file}})
		out, _ := shell(t, j, "cat "+file)
		if layers := j.Isolation().Layers; out != "shown" || !slices.Contains(layers, "host files by bind, which share locks with the host: 1") {
			t.Errorf("%q, layers %q", out, layers)
		}
		return nil
	})
}
