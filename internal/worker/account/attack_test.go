package account

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// target is what an attacker in the place of the program knows of the machine.
type target struct {
	Secrets  []string // files of the service, of another attempt, of root, and one that everybody may read
	Handle   string   // of the first of them, for open_by_handle_at
	Own      string   // the program's directory
	ReadOnly string   // a directory that is shown to it to read
	Victims  []int    // processes of the service, of another block and of root
	Control  bool     // this is the control: root does it, in a mount namespace of its own
}

// attacks are what a program tries. Each returns nil if it succeeded.
func attacks() map[string]func(target) error {
	return map[string]func(target) error{
		"read files": func(t target) error {
			return anyOf(t.Secrets, func(name string) error { _, err := os.ReadFile(name); return err })
		},
		"open by handle": openByHandle,
		"signal": func(t target) error {
			return anyOf(t.Victims, func(pid int) error { return unix.Kill(pid, 0) })
		},
		"ptrace": func(t target) error {
			return anyOf(t.Victims, func(pid int) error {
				_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0, 0, 0)
				if errno != 0 {
					return errno
				}
				return nil
			})
		},
		"see a process": func(t target) error {
			return anyOf(t.Victims, func(pid int) error { _, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); return err })
		},
		"read a process's memory": func(t target) error {
			return anyOf(t.Victims, func(pid int) error {
				f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
				if err == nil {
					_ = f.Close()
				}
				return err
			})
		},
		"write what is to read": func(t target) error { return os.WriteFile(t.ReadOnly+"/new", nil, 0o600) },
		"remount for writing": func(t target) error {
			return unix.Mount("", t.ReadOnly, "", unix.MS_REMOUNT|unix.MS_BIND, "")
		},
		"clear the attribute": func(t target) error {
			return unix.MountSetattr(unix.AT_FDCWD, t.ReadOnly, 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
		},
		"clear it on a copy": func(t target) error {
			fd, err := unix.OpenTree(unix.AT_FDCWD, t.ReadOnly, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
			if err != nil {
				return err
			}
			return unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
		},
		"clear it in another namespace": func(t target) error {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return err
			}
			return unix.Mount("", t.ReadOnly, "", unix.MS_REMOUNT|unix.MS_BIND, "")
		},
		"uncover":       func(t target) error { return unix.Unmount(t.ReadOnly, unix.MNT_DETACH) },
		"uncover root":  func(target) error { return unix.Unmount("/", unix.MNT_DETACH) },
		"make a device": func(t target) error { return unix.Mknod(t.Own+"/device", unix.S_IFBLK|0o600, 254<<8) },
		"a setuid file": func(t target) error { // of an id that the directory does not map
			return os.Chown(t.Own+"/a", os.Getuid()+1, os.Getgid()+1)
		},
		"another uid":       func(target) error { return unix.Setresuid(4242, 4242, 4242) },
		"another group":     func(target) error { return unix.Setgroups([]int{4242}) },
		"a map of others":   func(target) error { return mapOf(4242) },
		"a raw socket":      func(target) error { return socket(unix.AF_PACKET, unix.SOCK_RAW) },
		"the host's name":   func(target) error { name, _ := os.Hostname(); return unix.Sethostname([]byte(name)) },
		"a reserved port":   reservedPort,
		"core_pattern":      func(target) error { return openWrite("/proc/sys/kernel/core_pattern") },
		"a kernel log":      func(target) error { _, err := unix.Klogctl(3, make([]byte, 16)); return err },
		"a higher priority": func(target) error { return unix.Setpriority(unix.PRIO_PROCESS, 0, -5) },
	}
}

// anyOf succeeds if do does for one of the list.
func anyOf[T any](list []T, do func(T) error) error {
	errs := []error{errors.New("nothing to try")}
	for _, one := range list {
		err := do(one)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func openWrite(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err == nil {
		_ = f.Close()
	}
	return err
}

func socket(family, kind int) error {
	fd, err := unix.Socket(family, kind, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

func reservedPort(target) error {
	for port := range 20 {
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port+1))
		if err == nil {
			return l.Close()
		}
		if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
			return err
		}
	}
	return errors.New("all taken")
}

// mapOf starts a process in a user namespace that maps one uid.
func mapOf(uid int) error {
	cmd := exec.Command("/usr/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}, GidMappingsEnableSetgroups: false,
	}
	return cmd.Run()
}

// handleOf is a file handle, as name_to_handle_at gives root.
func handleOf(t *testing.T, name string) string {
	t.Helper()
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, name, 0)
	if err != nil {
		t.Fatal(err)
	}
	kind := binary.NativeEndian.AppendUint32(nil, uint32(h.Type()))
	return base64.StdEncoding.EncodeToString(append(kind, h.Bytes()...))
}

// openByHandle opens a file of the same file system as the program's directory, which no path leads to.
func openByHandle(t target) error {
	b, err := base64.StdEncoding.DecodeString(t.Handle)
	if err != nil {
		return err
	}
	at, err := unix.Open(t.Own, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	_, err = unix.OpenByHandleAt(at, unix.NewFileHandle(int32(binary.NativeEndian.Uint32(b)), b[4:]), unix.O_RDONLY)
	return err
}

// attack is the act: the name of an attack and its target.
func attack(args []string) error {
	var t target
	if err := json.Unmarshal([]byte(args[1]), &t); err != nil {
		return err
	}
	if t.Control {
		if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount(t.ReadOnly, t.ReadOnly, "", unix.MS_BIND, "")); err != nil {
			return err
		}
		if args[0] != "write what is to read" {
			if err := unix.Mount("", t.ReadOnly, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
				return err
			}
		}
	}
	if err := attacks()[args[0]](t); err != nil {
		fmt.Println("blocked:", err)
		return nil
	}
	fmt.Println("OPEN")
	return nil
}

// sleeper starts a process of an account, and returns its pid.
func sleeper(t *testing.T, start func(cmd *exec.Cmd)) int {
	t.Helper()
	cmd := exec.Command("/usr/bin/sleep", "1000")
	start(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

// An attacker in the place of a program has what the program has: its directory, and what it is shown.
//
// takeover system, worker: no define, widen, replay, start, approve, rewrite the log
//
// proves R-S1, R-S2
func TestATakenOverProgramReachesNothingElse(t *testing.T) {
	const service = 4242
	b, other := block(t), block(t)
	own, shown, state := dir(t, service, "a", "mine"), dir(t, service, "b", "to read"), dir(t, service, "key", "the service's")
	another, launcher := dir(t, service, "c", "another attempt's"), dir(t, 0, "mark", "the launcher's")
	public := filepath.Join(t.TempDir(), "public")
	if err := os.WriteFile(public, []byte("everybody's"), 0o644); err != nil {
		t.Fatal(err)
	}
	known := target{
		Secrets: []string{state + "/key", another + "/c", launcher + "/mark", public, "/etc/shadow", "/proc/1/environ", "/root/.profile"},
		Handle:  handleOf(t, state+"/key"), Own: own, ReadOnly: shown,
		Victims: []int{
			sleeper(t, func(c *exec.Cmd) {
				c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: service, Gid: service}}
			}),
			sleeper(t, func(c *exec.Cmd) {
				c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(other.First), Gid: uint32(other.First)}}
			}),
			sleeper(t, func(*exec.Cmd) {}),
		},
	}
	mounts := []Mount{
		{At: own, From: opened(t, own), As: Self, Write: true},
		{At: shown, From: opened(t, shown), As: Self},
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The ordinary case: it reads what it is shown, and writes its own.
	if text, code := run(t, Program{Block: &b, Mounts: mounts}, "read", own+"/a", shown+"/b", "/etc/passwd"); code != 0 {
		t.Error(text)
	}
	for _, name := range slices.Sorted(maps.Keys(attacks())) {
		t.Run(name, func(t *testing.T) {
			text, err := json.Marshal(known)
			if err != nil {
				t.Fatal(err)
			}
			if out, code := run(t, Program{Block: &b, Mounts: mounts}, "attack", name, string(text)); code != 0 || !strings.HasPrefix(out, "blocked: ") {
				t.Errorf("under the block: %d %s", code, out)
			} else {
				t.Log(out)
			}
			control := known
			control.Control = true
			if text, err = json.Marshal(control); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(self, "attack", name, string(text))
			cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWUTS}
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != "OPEN\n" {
				t.Errorf("control: root does it: %v %s", err, out)
			}
		})
	}
}

// proves R-S1
func TestAProgramGetsItsDescriptorsAlone(t *testing.T) {
	b := block(t)
	secret := opened(t, dir(t, 4242, "a", "x"))
	inherited, err := unix.Dup(int(secret.Fd())) // without close-on-exec, as a parent of ours may leave one
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(inherited) }()
	given := opened(t, dir(t, 4242, "b", "y"))
	text, code := run(t, Program{Block: &b, File: []*os.File{given}}, "say")
	var f facts
	if err := json.Unmarshal([]byte(text), &f); err != nil || code != 0 {
		t.Fatal(err, text)
	}
	if want := []string{"0", "1", "2", "3", "4"}; !slices.Equal(f.Descriptors, want) { // the last is open on the list itself
		t.Errorf("descriptors %q, want %q", f.Descriptors, want)
	}
}
