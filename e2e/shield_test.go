package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Other programs of the same account can read neither the memory nor the
// environment of a process that handles a passphrase and a key. The control is
// an unprotected program of that account.
//
// proves R-B9
func TestSigningProcessIsNotInspectable(t *testing.T) {
	w := newWorld(t, ordinaryUID)
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	defer control.Close() //nolint:errcheck // the test's side of the terminal
	must(t, unix.IoctlSetPointerInt(int(control.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(control.Fd()), unix.TIOCGPTN)
	must(t, err)
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	must(t, tty.Chown(w.uid, w.uid))
	signs := w.command(filepath.Join(bin, "bailiwick-deploy"), "operator", "keygen")
	signs.ExtraFiles = []*os.File{tty}
	signs.SysProcAttr.Setsid, signs.SysProcAttr.Setctty, signs.SysProcAttr.Ctty = true, true, 3
	other := w.command("sleep", "1000")
	for _, cmd := range []*exec.Cmd{signs, other} {
		must(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	for echoes(t, control) { // waits for the prompt
	}
	// The thread may not trace processes of other users, so this tests the
	// account's own access.
	look := func(pid int, name string) bool {
		return w.exec("head", "-c", "1", "/proc/"+strconv.Itoa(pid)+"/"+name).status == 0
	}
	for _, name := range []string{"environ", "maps", "auxv"} {
		if look(signs.Process.Pid, name) {
			t.Errorf("another program of the account reads its %s", name)
		}
		if !look(other.Process.Pid, name) {
			t.Errorf("the check cannot read the %s of an unprotected program", name)
		}
	}
}
