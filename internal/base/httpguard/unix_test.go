package httpguard

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func modeOf(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

// proves R-S2
func TestListenIsPrivateWhateverTheUmask(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	path := filepath.Join(t.TempDir(), "new", "s")
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if got := modeOf(t, path); got != 0o600 {
		t.Errorf("the socket is %v", got)
	}
	if got := modeOf(t, filepath.Dir(path)); got != 0o700 {
		t.Errorf("its folder is %v", got)
	}
}

// A public socket has its mode also under a strict umask.
func TestAPublicSocketIsForEveryAccount(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	path := filepath.Join(t.TempDir(), "s")
	l, err := ListenPublicUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if got := modeOf(t, path); got != 0o666 {
		t.Errorf("the socket is %v", got)
	}
}

// A worker or file created while the socket is made has its usual mode.
func TestListenChangesNoOtherMode(t *testing.T) {
	old := unix.Umask(0o022)
	defer unix.Umask(old)
	dir := t.TempDir()
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			l, err := ListenUnix(filepath.Join(dir, "s"))
			if err == nil {
				err = l.Close()
			}
			if err != nil {
				stopped <- err
				return
			}
		}
	}()
	made := func(i int) os.FileMode {
		path := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return modeOf(t, path)
	}
	for i := range 3000 {
		if got := made(i); got != 0o755 {
			t.Errorf("a folder that was made meanwhile is %v", got)
			break
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	// The control: with the mask narrowed the same check fails.
	unix.Umask(0o177)
	if got := made(-1); got == 0o755 {
		t.Errorf("positive control: the folder is %v", got)
	}
}

func TestListenReplacesOnlyAStaleSocket(t *testing.T) {
	dir := t.TempDir()
	precious, taken := filepath.Join(dir, "precious"), filepath.Join(dir, "taken")
	if err := os.WriteFile(precious, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenUnix(precious); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("over a file: %v", err)
	}
	if b, err := os.ReadFile(precious); err != nil || string(b) != "x" {
		t.Errorf("the file is gone: %v", err)
	}
	first, err := ListenUnix(taken)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ListenUnix(taken); err == nil || !strings.Contains(err.Error(), "another program listens on it") {
		t.Errorf("over a socket that answers: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := ListenUnix(taken) // the control: one that is left
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
}
