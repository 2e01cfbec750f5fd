package deploycli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openPTY returns the two ends of a terminal.
func openPTY(t *testing.T) (control, tty *os.File) {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = control.Close() })
	fd := int(control.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tty.Close() })
	return control, tty
}

// session is the program on a terminal of its own.
type session struct {
	t       *testing.T
	control *os.File
	tty     *os.File
	cmd     *exec.Cmd
	seen    bytes.Buffer
}

func start(t *testing.T, args ...string) *session {
	t.Helper()
	control, tty := openPTY(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Args = append([]string{"bailiwick-deploy"}, args...)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
	cmd.ExtraFiles = []*os.File{tty}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &session{t: t, control: control, tty: tty, cmd: cmd}
}

// await reads from the terminal until text has appeared.
func (s *session) await(text string) {
	s.t.Helper()
	b := make([]byte, 256)
	for !strings.Contains(s.seen.String(), text) {
		n, err := s.control.Read(b)
		if err != nil {
			s.t.Fatalf("terminal: %v; it shows %q", err, s.seen.String())
		}
		s.seen.Write(b[:n])
	}
}

func (s *session) write(text string) {
	s.t.Helper()
	if _, err := s.control.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) echoes() bool {
	s.t.Helper()
	st, err := unix.IoctlGetTermios(int(s.tty.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return st.Lflag&unix.ECHO != 0
}

// proves R-B9
func TestPassphraseIsNotEchoed(t *testing.T) {
	key := filepath.Join(t.TempDir(), "k")
	s := start(t, "key", "create", "--key", key)
	if !s.echoes() {
		// Positive control: the terminal would show what is typed. The
		// program may have turned that off already; then the prompt is there.
		s.await("New passphrase")
	}
	for _, prompt := range []string{"New passphrase for the deploy key", "Repeat the passphrase: "} {
		s.await(prompt)
		for s.echoes() { // the prompt comes before the switch
		}
		s.write("correct horse\n")
	}
	if err := s.cmd.Wait(); err != nil {
		t.Fatalf("%v; the terminal shows %q", err, s.seen.String())
	}
	s.write("seen by all\n")
	s.await("seen by all") // positive control: echo is on again
	if strings.Contains(s.seen.String(), "horse") {
		t.Fatalf("the terminal shows %q", s.seen.String())
	}
	if _, err := os.Stat(key); err != nil {
		t.Fatal(err)
	}
}

func TestInterruptedPromptRestoresTheTerminal(t *testing.T) {
	key := filepath.Join(t.TempDir(), "k")
	s := start(t, "key", "create", "--key", key)
	s.await("New passphrase")
	for s.echoes() { // the prompt comes before the switch
	}
	s.write("\x03")
	err := s.cmd.Wait()
	if code := s.cmd.ProcessState.ExitCode(); err == nil || code != 130 {
		t.Fatalf("exit %d, err %v", code, err)
	}
	if !s.echoes() {
		t.Fatal("the terminal no longer echoes")
	}
	if _, err := os.Stat(key); err == nil {
		t.Fatal("a key was created")
	}
}
