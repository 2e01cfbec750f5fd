package account

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What a program is shown in nested directories is mounted for the program alone, also where
// the host's mounts are shared, as systemd makes them. The control attaches one copy of a
// mount to another as it is.
//
// proves R-S1
func TestAStartMountsNothingOnTheHost(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	b := block(t)
	outer := dir(t, 4242, "a", "mine")
	if err := unix.Mount(outer, outer, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(outer, unix.MNT_DETACH) })
	inner := filepath.Join(outer, "inner")
	if err := errors.Join(unix.Mount("", outer, "", unix.MS_SHARED, ""), os.Mkdir(inner, 0o755), os.WriteFile(inner+"/b", []byte("b"), 0o600)); err != nil { //nolint:gosec // the program reads it
		t.Fatal(err)
	}
	for _, name := range []string{outer, inner, inner + "/b"} {
		if err := os.Chown(name, 4242, 4242); err != nil {
			t.Fatal(err)
		}
	}
	mounts := func() (n int) {
		text, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(strings.Fields(line)[4], outer) { // where it is mounted
				n++
			}
		}
		return n
	}
	shown := []Mount{{At: outer, From: opened(t, outer), As: Self}, {At: inner, From: opened(t, inner), As: Self}, {At: "/run/view" + inner, From: opened(t, inner), As: Agent}}
	if text, code := run(t, Program{Block: &b, Mounts: shown}, "read", inner+"/b"); code != 0 {
		t.Error(text)
	}
	if n := mounts(); n != 1 {
		t.Errorf("the host has %d mounts at and below the shared directory, want 1", n)
	}
	if err := attachAsItIs(outer, inner); err != nil {
		t.Fatal(err)
	}
	if n := mounts(); n != 2 {
		t.Errorf("control: the host has %d mounts, want 2", n)
	}
}

// attachAsItIs attaches a copy of inner to a copy of outer, in a mount namespace that is gone
// when it returns.
func attachAsItIs(outer, inner string) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and ends with the goroutine
		done <- func() error {
			const clone = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC
			lower, err := unix.OpenTree(unix.AT_FDCWD, outer, clone)
			if err != nil {
				return err
			}
			defer unix.Close(lower) //nolint:errcheck // only a handle
			upper, err := unix.OpenTree(unix.AT_FDCWD, inner, clone)
			if err != nil {
				return err
			}
			defer unix.Close(upper) //nolint:errcheck // likewise
			if err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")); err != nil {
				return err
			}
			const move = unix.MOVE_MOUNT_F_EMPTY_PATH
			return errors.Join(unix.MoveMount(lower, "", unix.AT_FDCWD, outer, move), unix.MoveMount(upper, "", unix.AT_FDCWD, inner, move))
		}()
	}()
	return <-done
}
