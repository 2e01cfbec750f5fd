//go:build failpoints

package failpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Marker is in every program built with failpoints, and in no other.
const Marker = "bailiwick failpoints are built in"

// Dir returns the directory of the test, or "" without one. Programs that are started with an
// environment and a view of files of their own need it in both.
func Dir() string {
	state := os.Getenv("XDG_STATE_HOME") //nolint:forbidigo // only in tests, so no main passes it in
	if state == "" {
		return ""
	}
	return filepath.Join(state, Folder)
}

// Hit records the point and performs the action armed at it. subject names what
// is at that point: the directory of the attempt, the dispatch, or the path.
func Hit(name Name, subject string) {
	dir := Dir()
	if dir == "" {
		return
	}
	f, err := os.OpenFile(filepath.Join(dir, Record), os.O_WRONLY|os.O_APPEND, 0) //nolint:gosec // G304: of a test
	if err != nil {
		return // not under test
	}
	must(note(f, fmt.Sprintf("%s %d %s\n", name, os.Getpid(), subject)))
	if action := due(filepath.Join(dir, Armed), name); action != "" {
		must(note(f, fmt.Sprintf("! %s %d %s %s\n", name, os.Getpid(), action, subject)))
		act(action)
	}
	must(f.Close())
}

// Clock returns a clock that is ahead of now by the duration in the file Ahead. Tests step
// it while the service runs.
func Clock(now func() time.Time) func() time.Time {
	path := filepath.Join(os.Getenv("XDG_STATE_HOME"), Folder, Ahead) //nolint:forbidigo // only in tests, so no main passes it in
	return func() time.Time {
		text, err := os.ReadFile(path) //nolint:gosec // G304: of a test
		if err != nil {
			return now()
		}
		ahead, err := time.ParseDuration(string(text))
		must(err)
		return now().Add(ahead)
	}
}

// must ends a process whose test is broken: it would prove nothing.
func must(err error) {
	if err != nil {
		panic(Marker + ": " + err.Error())
	}
}

// note appends a line in one write, so that lines of several processes do not mix.
func note(f *os.File, line string) error {
	_, err := io.WriteString(f, line)
	return err
}

func act(action Action) {
	sig := syscall.SIGKILL
	if action == Stop {
		sig = syscall.SIGSTOP
	}
	// A signal to the own thread is handled before the call returns; another thread
	// would handle one to the process a moment later.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	must(syscall.Tgkill(os.Getpid(), syscall.Gettid(), sig))
}

// due counts a passage of name in the file of armed points, and returns the action
// that is due, if any.
func due(path string, name Name) Action {
	f, err := os.OpenFile(path, os.O_RDWR, 0) //nolint:gosec // G304: of a test
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	must(err)
	defer f.Close() //nolint:errcheck // nothing left to write
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
