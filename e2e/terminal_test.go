package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
)

// terminal is a command that runs on a pseudo terminal of its own.
type terminal struct {
	t      testing.TB
	cmd    *exec.Cmd
	master *os.File

	mu     sync.Mutex
	screen bytes.Buffer  // everything written so far; guarded by mu
	closed chan struct{} // no more is written
}

// onTerminal starts bailiwick on a terminal of so many columns.
func (w *world) onTerminal(columns uint16, args ...string) *terminal {
	w.t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	must(w.t, err)
	must(w.t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	must(w.t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(w.t, err)
	must(w.t, unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: columns}))
	cmd := w.command(filepath.Join(bin, "bailiwick"), args...)
	cmd.Env = append(cmd.Env, "TERM=xterm", "BAILIWICK_PAGER=cat")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	must(w.t, cmd.Start())
	must(w.t, slave.Close())
	s := &terminal{t: w.t, cmd: cmd, master: master, closed: make(chan struct{})}
	go func() { // ends when the last process has closed the terminal
		defer close(s.closed)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			s.mu.Lock()
			s.screen.Write(b[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	w.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = master.Close() })
	return s
}

func (s *terminal) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.screen.String()
}

// await waits until the terminal shows a text.
func (s *terminal) await(text string) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(s.text(), text); {
		select {
		case <-s.closed:
			if !strings.Contains(s.text(), text) {
				s.t.Fatalf("the command ended without %q:\n%q", text, s.text())
			}
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the terminal does not show %q:\n%q", text, s.text())
		}
	}
}

func (s *terminal) enter(keys string) {
	s.t.Helper()
	_, err := io.WriteString(s.master, keys)
	must(s.t, err)
}

// end waits for the end of the command and returns its exit status.
func (s *terminal) end() int {
	s.t.Helper()
	done := make(chan struct{})
	go func() { _ = s.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		s.t.Fatalf("the command does not end:\n%q", s.text())
	}
	<-s.closed
	return s.cmd.ProcessState.ExitCode()
}

const ctrlC = "\x03"

// On a terminal the questions of a run that is watched, and of a dispatch that is
// followed, are asked there and then. Ctrl-C leaves a question open, and so does
// an empty line; elsewhere only the command is printed.
//
// proves R-D6, R-D7
func TestQuestionsAreAskedAtTheTerminal(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, ordinaryUID)
	const asks = `if ! test -f inputs/resume.json; then echo '{"question": "Which of the two?\u001b[2J", "options": ["red", "blue"]}' > .bailiwick/question.json
elif grep -q blue inputs/resume.json; then echo BLUE > a.txt
else exit 7; fi`
	run := w.submit(planned("asks", shellTask("a", asks)))
	w.awaitEvent("asks", event("task.waiting", "a"))
	s := w.onTerminal(60, "run", "watch", "asks")
	s.await("(empty: leave it open): ")
	s.enter(ctrlC)
	if status := s.end(); status != 130 {
		t.Errorf("exit status %d", status)
	}
	for _, want := range []string{"| Which of the two?\\x1b[2J", "1. red", "2. blue", "answer it with: bailiwick run answer " + string(run) + " --task a --attempt 1 --option N", "run asks continues"} {
		if !strings.Contains(s.text(), want) {
			t.Errorf("no %q in\n%q", want, s.text())
		}
	}
	if run := w.run("asks"); run.State != api.RunWaiting {
		t.Errorf("the run is %s", run.State)
	}
	if list := w.must("waiting"); !strings.Contains(list, "bailiwick run answer "+string(run)+" --task a --attempt 1 --option N") {
		t.Errorf("%s", list)
	}
	s = w.onTerminal(60, "run", "watch", "asks")
	s.await("(empty: leave it open): ")
	s.enter("2\n")
	if status := s.end(); status != 0 {
		t.Errorf("exit status %d:\n%s", status, s.text())
	}
	wantStates(t, w.run("asks"), "done; a done")
	if w.must("waiting") != "" {
		t.Error("something waits")
	}

	input := fmt.Sprintf(`{"do": %q}`, strings.ReplaceAll(asks, `\u001b[2J`, ""))
	stored := func(id string) string { // the id that the service gives a dispatch whose id the person chose
		for late := range polling(time.Minute) {
			if list := w.list(); len(list) > 0 && w.names(string(list[0].ID), id) {
				return string(list[0].ID)
			} else if late {
				t.Fatalf("no dispatch %s: %+v", id, list)
			}
		}
		panic("unreachable")
	}
	s = w.onTerminal(80, "dispatch", "run", "sh", "--source", "repo", "--id", "solo-1", "--input", input)
	s.await("dispatch " + stored("solo-1") + " asks:")
	s.await("(empty: leave it open): ")
	s.enter("blue\n")
	if status := s.end(); status != 0 || !strings.Contains(s.text(), stored("solo-1")+" finished") {
		t.Errorf("exit status %d:\n%s", status, s.text())
	}
	s = w.onTerminal(80, "dispatch", "run", "sh", "--source", "repo", "--id", "solo-2", "--input", input)
	s.await("(empty: leave it open): ")
	s.enter("\n")
	if status := s.end(); status != 9 || !strings.Contains(s.text(), "answer it with: bailiwick dispatch answer "+stored("solo-2")+" --attempt 1 --option N") {
		t.Errorf("exit status %d:\n%s", status, s.text())
	}
	if list := w.must("waiting"); !strings.Contains(list, "bailiwick dispatch answer "+stored("solo-2")+" --attempt 1 --option N") {
		t.Errorf("%s", list)
	}
	// The control: without a terminal nobody is asked.
	if d := w.refused(9, []string{"solo-3", "bailiwick dispatch answer solo-3"}, "dispatch", "run", "sh", "--source", "repo", "--id", "solo-3", "--input", input); strings.Contains(d.stderr, "asks:") {
		t.Errorf("%s", d)
	}
}
