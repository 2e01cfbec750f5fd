//go:build unix

package durable

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A copy of the descriptor, such as a forked process has until it executes its program, does not
// keep a lock that was released. The control is a close alone.
func TestACopyOfTheDescriptorKeepsNoReleasedLock(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*os.File) error
		free bool
	}{"released": {Release, true}, "control: closed": {(*os.File).Close, false}} {
		path := filepath.Join(t.TempDir(), "lock")
		f, err := Lock(path)
		if err != nil {
			t.Fatal(err)
		}
		duplicate, err := unix.Dup(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.end(f); err != nil {
			t.Fatal(err)
		}
		again, err := Lock(path)
		if free := err == nil; free != c.free {
			t.Errorf("%s: %v", name, err)
		}
		if again != nil {
			_ = again.Close()
		}
		_ = unix.Close(duplicate)
	}
}
