package jail

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// outputGrace is how long Run waits for the caller's writers after the last process of the command exited.
const outputGrace = 5 * time.Second

// reapTime is how long pid 1 may take to reap everything that it killed.
const reapTime = 5 * time.Second

// Run runs a command and returns when every process it started, daemons included, has been killed and reaped. When ctx is
// done, all get SIGTERM and, after cmd.Grace, SIGKILL; the error is then that of ctx. A nonzero exit code or a signal is not
// an error.
func (j *Jail) Run(ctx context.Context, cmd Command) (Exit, error) {
	if err := cmd.validate(); err != nil {
		return Exit{}, err
	}
	if !j.running.TryLock() {
		return Exit{}, fmt.Errorf("run %q: another command is running in this jail", cmd.Argv[0])
	}
	defer j.running.Unlock()
	if err := ctx.Err(); err != nil {
		return Exit{}, err
	}
	stdio, err := newStdio(cmd)
	if err != nil {
		return Exit{}, fmt.Errorf("run %q: %w", cmd.Argv[0], err)
	}
	before := j.groups.counters()
	err = j.wire.send(&message{Kind: kindRun, Run: &run{Argv: cmd.Argv, Env: cmd.Env, Dir: cmd.Dir}}, stdio.theirs...)
	closeAll(stdio.theirs)
	if err != nil {
		stdio.abandon()
		return Exit{}, fmt.Errorf("run %q: %w", cmd.Argv[0], j.gone())
	}
	stdio.copy()
	watched := j.startWatch()
	r, ok := j.await(ctx, cmd.Grace)
	why := watched()
	outErr := stdio.finish()
	after := j.groups.counters()
	if !ok {
		exit := Exit{Signal: unix.SIGKILL, Hit: after.hits(before)}
		exit.ended(why)
		return exit, fmt.Errorf("run %q: the jail exited: %w", cmd.Argv[0], j.gone())
	}
	closeAll(r.files)
	switch {
	case r.Kind == kindFail:
		return Exit{}, fmt.Errorf("run: %w", r.failure())
	case r.Kind != kindExit || r.Exit == nil:
		return Exit{}, fmt.Errorf("run %q: pid 1 answered %q", cmd.Argv[0], r.Kind)
	}
	exit := *r.Exit
	exit.Hit = append(after.hits(before), exit.Hit...)
	exit.ended(why)
	if after.peak > 0 {
		exit.MaxMemory = after.peak
	}
	if err := ctx.Err(); err != nil {
		return exit, err
	}
	return exit, outErr
}

// await waits for the answer and, when ctx is done, sends signals.
func (j *Jail) await(ctx context.Context, grace time.Duration) (reply, bool) {
	select {
	case r, ok := <-j.replies:
		return r, ok
	case <-ctx.Done():
	}
	_ = j.wire.send(&message{Kind: kindKill, Signal: int(unix.SIGTERM)})
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case r, ok := <-j.replies:
		return r, ok
	case <-timer.C:
	}
	j.groups.throttle(0) // pid 1 is under the same limit as what it has to kill
	defer j.groups.throttle(j.spec.Limits.CPU)
	_ = j.wire.send(&message{Kind: kindKill, Signal: int(unix.SIGKILL)})
	timer.Reset(cmp.Or(j.spec.reapTime, reapTime))
	select {
	case r, ok := <-j.replies:
		return r, ok
	case <-timer.C:
	}
	_ = j.process.Kill() // pid 1 itself hangs; everything in the jail ends with it
	r, ok := <-j.replies
	return r, ok
}

// stdio are pipes, never a file or terminal of the host. If Stdout and Stderr are the same writer they share one, so that the
// writer is not called concurrently and order is kept.
type stdio struct {
	theirs []int
	in     *os.File // nil without input
	out    [2]*os.File
	cmd    Command
	copies sync.WaitGroup
	errs   [2]error
}

func newStdio(cmd Command) (_ *stdio, err error) {
	s := &stdio{cmd: cmd}
	defer func() {
		if err != nil {
			s.abandon()
			closeAll(s.theirs)
		}
	}()
	for i := range 3 {
		if i == 2 && sameWriter(cmd.Stdout, cmd.Stderr) {
			fd, err := unix.FcntlInt(uintptr(s.theirs[1]), unix.F_DUPFD_CLOEXEC, 0) //nolint:gosec // a descriptor
			if err != nil {
				return nil, err
			}
			s.theirs = append(s.theirs, fd)
			break
		}
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		theirs := w
		if i == 0 {
			s.in, theirs = w, r
		} else {
			s.out[i-1] = r
		}
		fd, err := unix.FcntlInt(theirs.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		_ = theirs.Close()
		if err != nil {
			return nil, err
		}
		s.theirs = append(s.theirs, fd)
		// os.Pipe made it non-blocking, which the agent's programs do not expect.
		if err := unix.SetNonblock(fd, false); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func sameWriter(a, b io.Writer) bool {
	defer func() { _ = recover() }() // an uncomparable writer is not the same
	return a != nil && a == b
}

// abandon closes this side.
func (s *stdio) abandon() {
	for _, f := range []*os.File{s.in, s.out[0], s.out[1]} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// copy starts the goroutines. Input ends with its reader or when the jail's end of the pipe closes; a caller's reader that
// never returns leaks that goroutine, as in os/exec. Output ends when the last writer has exited.
func (s *stdio) copy() {
	if s.cmd.Stdin == nil {
		_ = s.in.Close()
	} else {
		go func() {
			_, _ = io.Copy(s.in, s.cmd.Stdin) // not reading the input is no error
			_ = s.in.Close()
		}()
	}
	for i, w := range []io.Writer{s.cmd.Stdout, s.cmd.Stderr} {
		if s.out[i] == nil {
			continue
		}
		if w == nil {
			w = io.Discard
		}
		s.copies.Go(func() {
			_, err := io.Copy(w, s.out[i])
			s.errs[i] = err
			if err != nil { // the agent must not block on a failed writer
				_, _ = io.Copy(io.Discard, s.out[i])
			}
		})
	}
}

func (s *stdio) finish() error {
	done := make(chan struct{})
	go func() { s.copies.Wait(); close(done) }()
	timer := time.NewTimer(outputGrace)
	defer timer.Stop()
	_ = s.in.Close()
	select {
	case <-done:
		s.abandon()
		return errors.Join(s.errs[0], s.errs[1])
	case <-timer.C:
		s.abandon()
		return errors.New("the writer of the command's output does not return")
	}
}
