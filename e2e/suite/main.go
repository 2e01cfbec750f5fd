// Command suite runs `go test` under a supervisor. It prints a line for each
// package that finishes, with those that remain, and the slowest tests at the
// end. Whatever ends the tests (their own end, a panic, a timeout, an
// interrupt), it removes the processes, mounts, control groups and directories
// that they leave behind. After a normal end a leftover is a failure. Suites can
// run at the same time: each has a directory and control groups of its own.
//
//	suite -- -race -timeout=20m PACKAGE...
//
// With -memory, the files of the tests are in memory, in a mount namespace of the
// suite: a test then waits for no disk. What a failing disk does is tested with
// file systems and faults that the tests make.
//
// Flags of go test that take a value are written as -flag=value.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// interruptGrace is how long the tests may take to exit after an interrupt.
const interruptGrace = 5 * time.Second

func main() {
	grace := flag.Duration("grace", 10*time.Second, "how long processes may outlive a normal end of the tests")
	memory := flag.Int64("memory", 0, "keep the tests' files in memory, at most so many bytes: as root, where 4 GiB more are available; else they are on disk")
	private := flag.Bool("private", false, "this process is in a mount namespace of its own (set by the suite itself)")
	flag.Parse()
	if !*private {
		if inMemory(*memory, os.Geteuid(), availableMemory()) {
			err := alone(append([]string{"-private"}, os.Args[1:]...))
			fmt.Fprintln(os.Stderr, "suite: the tests' files are on disk:", err)
		}
		*memory = 0
	}
	status, err := run(flag.Args(), *grace, *memory, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		status = max(status, 1)
	}
	os.Exit(status)
}

// run executes go test with args and returns its exit status. The tests' files are in
// memory, at most memory bytes, or on disk if it is 0.
func run(args []string, grace time.Duration, memory int64, out io.Writer) (int, error) {
	// Orphans of the tests become children of this process, so none escapes.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1, fmt.Errorf("become the reaper of orphans: %w", err)
	}
	checkout, err := os.Getwd()
	if err != nil {
		return 1, err
	}
	root, err := makeRoot(checkout)
	if err != nil {
		return 1, err
	}
	if memory > 0 {
		if err := mountMemory(root, memory); err != nil {
			return 1, err
		}
	}
	groups, err := enterGroups()
	if err != nil {
		return 1, errors.Join(err, removeRoot(root, memory))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	report := newReport(out, packages(args))
	if memory > 0 {
		report.used = func() int64 { return usedMemory(root) }
	}
	status, testErr := test(ctx, root, args, report)
	if ctx.Err() != nil {
		status, grace = 130, 0
	}
	left, err := cleanUp(root, groups, grace, report.at)
	err = errors.Join(err, removeRoot(root, memory))
	report.summary()
	if status == 0 && len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("the tests passed but left behind:\n  %s", strings.Join(left, "\n  ")))
	}
	return status, errors.Join(testErr, err)
}

// makeRoot creates the temporary directory of the tests. Its path is short, since
// sockets have at most 107 bytes of it. It differs between checkouts, and is the
// same each time where no other suite of the checkout runs, since go test caches
// a pass by the environment.
func makeRoot(checkout string) (string, error) {
	name := fmt.Sprintf("bw-%x", sha256.Sum256([]byte(checkout)))[:len("bw-")+4]
	for n := 0; ; n++ {
		root := filepath.Join(os.TempDir(), fmt.Sprintf("%s-%d", name, n))
		err := os.Mkdir(root, 0o755) //nolint:gosec // G301: tests run programs as other accounts
		if err == nil {
			err = os.Chmod(root, 0o755) //nolint:gosec // G302: likewise, whatever the umask
		}
		if !errors.Is(err, fs.ErrExist) || n == 1000 {
			return root, err
		}
	}
}

// packages returns the arguments that are not flags.
func packages(args []string) (names []string) {
	for _, arg := range args {
		if !strings.HasPrefix(arg, "-") {
			names = append(names, arg)
		}
	}
	return names
}

// test runs go test in a process group of its own until it exits or ctx ends, and
// returns its exit status.
func test(ctx context.Context, root string, args []string, report *report) (int, error) {
	// A pipe of our own: a descendant that keeps standard output open must not
	// hold up the end.
	r, w, err := os.Pipe()
	if err != nil {
		return 1, err
	}
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...) //nolint:gosec,noctx // G204: the caller's own arguments; ctx interrupts the whole group below
	cmd.Env = append(os.Environ(), "TMPDIR="+root)
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := errors.Join(cmd.Start(), w.Close()); err != nil {
		return 1, errors.Join(err, r.Close())
	}
	read := make(chan struct{})
	go func() {
		report.follow(r)
		close(read)
	}()
	exited := make(chan int, 1)
	go func() { exited <- reapUntil(cmd.Process.Pid) }()
	var status int
	select {
	case status = <-exited:
	case <-ctx.Done():
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
		select {
		case status = <-exited:
		case <-time.After(interruptGrace):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			status = <-exited
		}
	}
	select {
	case <-read:
	case <-time.After(interruptGrace):
	}
	return status, r.Close()
}

// reapUntil waits for children, orphans of the tests among them, until the one with
// this pid has exited, and returns its exit status. Tests wait for processes to
// disappear, so no orphan may stay a zombie.
func reapUntil(pid int) int {
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 1
		case got == pid && ws.Exited():
			return ws.ExitStatus()
		case got == pid:
			return 128 + int(ws.Signal())
		}
	}
}
