package executor

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// A lock file names a process id that may be another process's by now. Only the process
// that holds the lock is the worker.
func TestAHandleIsOfTheProcessThatHoldsTheLock(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := workerHandle(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a lock file: %v", err)
	}
	f, err := os.Create(filepath.Join(dir, record.WorkLock)) //nolint:gosec // G304: our own directory
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // of a test
	if err := durable.SetOwner(f, os.Getpid()); err != nil {
		t.Fatal(err)
	}
	if _, fd, err := workerHandle(dir); !errors.Is(err, ErrNoWorker) {
		t.Errorf("a living process that does not hold the lock has the handle %d: %v", fd, err)
	}
	if err := durable.TryLock(f); err != nil {
		t.Fatal(err)
	}
	pid, fd, err := workerHandle(dir) // control
	if err != nil || pid != os.Getpid() {
		t.Fatalf("the holder of the lock: process %d, %v", pid, err)
	}
	if err := unix.PidfdSendSignal(fd, 0, nil, 0); err != nil {
		t.Errorf("the handle leads to no process: %v", err)
	}
	if err := unix.Close(fd); err != nil {
		t.Error(err)
	}

	gone := exec.CommandContext(t.Context(), "true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if err := durable.SetOwner(f, gone.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, _, err := workerHandle(dir); !errors.Is(err, unix.ESRCH) {
		t.Errorf("a process that has exited: %v", err)
	}
}
