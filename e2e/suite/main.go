// Command suite runs `go test` under a supervisor. It prints a line for each
// package that finishes, with those that remain, and the slowest tests at the
// end. Whatever ends the tests (their own end, a panic, a timeout, an
// interrupt), it removes the processes, mounts, control groups and directories
// that they leave behind. After a normal end a leftover is a failure.
//
//	suite -- -race -timeout=20m PACKAGE...
//
// Flags of go test that take a value are written as -flag=value.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// interruptGrace is how long the tests may take to exit after an interrupt.
const interruptGrace = 5 * time.Second

func main() {
	grace := flag.Duration("grace", 10*time.Second, "how long processes may outlive a normal end of the tests")
	groups := flag.String("groups", "bailiwick-jail-*", "which control groups to remove where no process holds their lock")
	flag.Parse()
	status, err := run(flag.Args(), *groups, *grace, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		status = max(status, 1)
	}
	os.Exit(status)
}

// run executes go test with args and returns its exit status.
func run(args []string, groups string, grace time.Duration, out io.Writer) (int, error) {
	// Orphans of the tests become children of this process, so none escapes.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1, fmt.Errorf("become the reaper of orphans: %w", err)
	}
	root, err := os.MkdirTemp("", "bw-") // short: sockets of tests have at most 107 bytes of path
	if err != nil {
		return 1, err
	}
	if err := os.Chmod(root, 0o755); err != nil { //nolint:gosec // G302: tests run programs as other accounts
		return 1, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	report := newReport(out, packages(args))
	testErr := test(ctx, root, args, report)
	interrupted := ctx.Err() != nil
	if interrupted {
		grace = 0
	}
	left, err := cleanUp(root, groups, grace)
	report.summary()
	status := 0
	if exit, ok := errors.AsType[*exec.ExitError](testErr); ok {
		status = max(exit.ExitCode(), 1)
	} else if testErr != nil {
		return 1, errors.Join(testErr, err)
	}
	if interrupted {
		status = 130
	}
	if status == 0 && len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("the tests passed but left behind:\n  %s", strings.Join(left, "\n  ")))
	}
	return status, err
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

// test runs go test in a process group of its own until it exits or ctx ends.
func test(ctx context.Context, root string, args []string, report *report) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...) //nolint:gosec // G204: the caller's own arguments
	cmd.Env = append(os.Environ(), "TMPDIR="+root)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = interruptGrace
	// A pipe of our own: Wait must not block on a descendant that keeps standard output open.
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout = w
	if err := errors.Join(cmd.Start(), w.Close()); err != nil {
		return errors.Join(err, r.Close())
	}
	read := make(chan struct{})
	go func() {
		report.follow(r)
		close(read)
	}()
	err = cmd.Wait()
	select {
	case <-read:
	case <-time.After(interruptGrace):
	}
	return errors.Join(err, r.Close())
}
