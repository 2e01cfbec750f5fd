//go:build linux

package jail

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func openTerminal() (ptmx, tty *os.File, err error) {
	ptmx, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.IoctlSetPointerInt(int(ptmx.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(ptmx.Fd()), unix.TIOCGPTN)
	if err != nil {
		return nil, nil, err
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	return ptmx, tty, err
}

// underOwnTerminal runs a shell with a terminal of the jail as its controlling one, as agents run commands.
func underOwnTerminal(facts) error {
	ptmx, tty, err := openTerminal()
	if err != nil {
		return err
	}
	defer func() { _ = ptmx.Close() }()
	var out bytes.Buffer
	cmd := exec.Command("/bin/sh", "-c", "tty <&3 >&4; ps -o tty= -p $$ >&4; kill -INT 0; exit 3")
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = tty, tty, tty, []*os.File{tty}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, w)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	_, _ = w.Close(), tty.Close()
	if err != nil {
		return err
	}
	_, err = out.ReadFrom(r)
	_ = cmd.Wait()
	if got := strings.Fields(out.String()); err != nil || len(got) != 2 || got[0] != "/dev/"+got[1] || cmd.ProcessState.ExitCode() != -1 {
		return errors.Join(fmt.Errorf("%q %v", out.String(), cmd.ProcessState), err)
	}
	return nil
}

func TestAnAgentHasTerminalsOfItsOwn(t *testing.T) {
	j := mustStart(t, Spec{Lower: []string{attackDir(t)}})
	if out, code := attack(t, j, "load own terminal", facts{}); code != 0 {
		t.Error(code, out)
	}
}
