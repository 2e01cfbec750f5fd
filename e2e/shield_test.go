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

// Where a passphrase is typed and a key is opened, other programs of the account
// cannot look in: neither at the memory nor at the environment. The control is
// another program of that account, into which they can.
//
// proves R-B9
func TestSigningProcessIsNotInspectable(t *testing.T) {
	w := newWorld(t, ordinaryUID)
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	defer control.Close() //nolint:errcheck // the test's
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
	for echoes(t, control) { // it asks
	}
	// The thread may trace none of another user's, so this is the account alone.
	look := func(pid int, name string) bool {
		return w.exec("head", "-c", "1", "/proc/"+strconv.Itoa(pid)+"/"+name).status == 0
	}
	for _, name := range []string{"environ", "maps", "auxv"} {
		if look(signs.Process.Pid, name) {
			t.Errorf("another program of the account reads its %s", name)
		}
		if !look(other.Process.Pid, name) {
			t.Errorf("the check cannot read the %s of a program that nothing shields", name)
		}
	}
}
