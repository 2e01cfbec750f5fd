package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/faultdisk"
)

func resultText(i int) string { return strings.Repeat(fmt.Sprintf("result %d\n", i), 150*(i+1)) }

// TestHelper is the process whose disk loses its power: it does what three
// attempts leave.
func TestHelper(t *testing.T) {
	root := os.Getenv("WORKER_TEST_STATE")
	if root == "" {
		return
	}
	if err := faultdisk.Join(); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		dir := filepath.Join(root, attemptOf(i))
		err := errors.Join(os.MkdirAll(filepath.Join(dir, record.WorkLog), 0o700), os.MkdirAll(filepath.Join(dir, record.WorkOut), 0o700))
		if err != nil {
			t.Fatal(err)
		}
		err = os.WriteFile(filepath.Join(dir, record.WorkLog, "0"), []byte(logText), 0o600)
		if err := errors.Join(err, replaceFile(filepath.Join(dir, record.WorkOut, "patch"), []byte(resultText(9)))); err != nil {
			fmt.Println("failed before", i)
			return
		}
		fmt.Println("write", i)
		if writeResult(dir, []byte(resultText(i))) != nil {
			return
		}
		fmt.Println("wrote", i)
	}
}

const logText = "what the agent said\n"

func attemptOf(i int) string { return fmt.Sprintf("state/dispatches/d-%d/1", i) }

// proves R-D5 (a sealed result is there after a crash): a cut at any operation,
// and with each sync failing in both flavours, leaves the result that was
// written last or the one that was being written, whole.
func TestResultIsDurableAfterAnyPowerCut(t *testing.T) {
	t.Parallel()
	run := func(fault func(int, faultdisk.Op) faultdisk.Fault, lies bool) (wrong, cuts int) {
		root := t.TempDir()
		if err := os.Mkdir(filepath.Join(root, "state"), 0o700); err != nil { // durable since the state was created
			t.Fatal(err)
		}
		disk, err := faultdisk.Load(root)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelper$", "-test.count=1")
		cmd.Env = append(os.Environ(), "WORKER_TEST_STATE="+root)
		cmd.Stderr = os.Stderr
		ops, err := faultdisk.Run(t.Context(), cmd, root, fault)
		if err != nil {
			t.Fatal(err)
		}
		disk.Lies = lies
		begun, done, before := -1, -1, false
		for at, op := range ops {
			disk.Apply(op)
			_, _ = fmt.Sscanf(op.Text, "write %d", &begun)
			_, _ = fmt.Sscanf(op.Text, "wrote %d", &done)
			before = before || strings.HasPrefix(op.Text, "failed before")
			if fault != nil && at < len(ops)-1 {
				continue // the moments before are those without a fault
			}
			for seed := range uint64(6) {
				dir := t.TempDir()
				if err := disk.Image(dir, rand.New(rand.NewPCG(seed, uint64(at))), faultdisk.Random); err != nil {
					t.Fatal(err)
				}
				cuts++
				if err := whole(dir, done, begun); err != nil {
					if wrong++; !lies {
						t.Errorf("cut %d of %d: %v", at, len(ops), err)
					}
				}
				_ = os.RemoveAll(dir)
			}
		}
		if fault == nil && (done != 2 || before) {
			t.Errorf("%d were written", done)
		}
		return wrong, cuts
	}
	run(nil, false)
	for _, kept := range []bool{false, true} {
		for n := range 10 {
			left := n
			run(func(_ int, op faultdisk.Op) faultdisk.Fault {
				if op.Kind != faultdisk.Sync {
					return faultdisk.Fault{}
				}
				if left--; left != -1 {
					return faultdisk.Fault{}
				}
				return faultdisk.Fault{Errno: syscall.EIO, Kept: kept}
			}, false)
		}
	}
	if wrong, cuts := run(nil, true); wrong < cuts/10 { // the control
		t.Errorf("on a disk that lies %d of %d cuts were noticed", wrong, cuts)
	}
}

// whole looks at every attempt: up to the one that was written last, each has
// its result; and a result refers only to durable content.
func whole(root string, done, begun int) error {
	for i := range 3 {
		dir := filepath.Join(root, attemptOf(i))
		b, err := os.ReadFile(filepath.Join(dir, record.WorkResult))
		if errors.Is(err, fs.ErrNotExist) && done < i {
			continue
		}
		if err != nil {
			return err
		}
		if string(b) != resultText(i) || begun < i {
			return fmt.Errorf("%d bytes are not the result of attempt %d", len(b), i)
		}
		if b, err := os.ReadFile(filepath.Join(dir, record.WorkLog, "0")); err != nil || string(b) != logText {
			return fmt.Errorf("the log of attempt %d: %q (%v)", i, b, err) //nolint:errorlint // may be nil
		}
		if b, err := os.ReadFile(filepath.Join(dir, record.WorkOut, "patch")); err != nil || string(b) != resultText(9) {
			return fmt.Errorf("the patch of attempt %d: %d bytes (%v)", i, len(b), err) //nolint:errorlint // may be nil
		}
	}
	return nil
}
