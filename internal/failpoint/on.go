//go:build failpoints

package failpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Marker is in every program that was built with failpoints, and in no other.
const Marker = "bailiwick failpoints are built in"

// Hit writes the moment down and carries out what is armed at it. Subject
// names what the moment belongs to: the folder of the attempt, the dispatch,
// or what is about to be made.
func Hit(name Name, subject string) {
	state := os.Getenv("XDG_STATE_HOME") //nolint:forbidigo // only in trials, so no program's main knows of it
	if state == "" {
		return
	}
	dir := filepath.Join(state, Folder)
	f, err := os.OpenFile(filepath.Join(dir, Record), os.O_WRONLY|os.O_APPEND, 0) //nolint:gosec // G304: of a trial
	if err != nil {
		return // not on trial
	}
	must(note(f, fmt.Sprintf("%s %d %s\n", name, os.Getpid(), subject)))
	if action := due(filepath.Join(dir, Armed), name); action != "" {
		must(note(f, fmt.Sprintf("! %s %d %s %s\n", name, os.Getpid(), action, subject)))
		act(action)
	}
	must(f.Close())
}

// must ends a process whose trial is broken: a trial that goes on after that
// proves nothing.
func must(err error) {
	if err != nil {
		panic(Marker + ": " + err.Error())
	}
}

// note appends one line in one write, so that those of several processes do
// not mix.
func note(f *os.File, line string) error {
	_, err := io.WriteString(f, line)
	return err
}

func act(action Action) {
	sig := syscall.SIGKILL
	if action == Stop {
		sig = syscall.SIGSTOP
	}
	must(syscall.Kill(os.Getpid(), sig))
	if sig == syscall.SIGKILL {
		select {} // it may take a moment to arrive
	}
}

// due counts a passage of name in the file of what is armed, and returns what
// is to be done now.
func due(path string, name Name) Action {
	f, err := os.OpenFile(path, os.O_RDWR, 0) //nolint:gosec // G304: of a trial
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	must(err)
	defer f.Close() //nolint:errcheck // nothing is left to be written
	must(syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	text, err := io.ReadAll(f)
	must(err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i, line := range lines {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != string(name) {
			continue
		}
		n, err := strconv.Atoi(fields[1])
		must(err)
		lines[i] = fmt.Sprintf("%s %d %s", name, n-1, fields[2])
		if n == 1 {
			lines[i] = ""
		}
		must(f.Truncate(0))
		_, err = f.WriteAt([]byte(strings.TrimSpace(strings.Join(lines, "\n"))+"\n"), 0)
		must(err)
		if n == 1 {
			return Action(fields[2])
		}
		return ""
	}
	return ""
}
