package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// searchPath is where git itself looks for programs. None of what is asked of
// it here needs one besides its own.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// gitRun is one run of the git program. Its environment is built from
// nothing: no variable of this process reaches git.
type gitRun struct {
	dir    string // the trusted GIT_DIR, and the working directory unless work is set
	work   string // a work tree of ours, for the one command that wants one
	index  string // a private index
	args   []string
	stdin  io.Reader
	stdout io.Writer
}

func (g gitRun) command(ctx context.Context) (*exec.Cmd, *tail, error) {
	bin, err := exec.LookPath("git")
	if err != nil {
		return nil, nil, fmt.Errorf("git program: %w; install git 2.39 or later", err)
	}
	cmd := exec.CommandContext(ctx, bin, append([]string{"--no-pager"}, g.args...)...) //nolint:gosec // G204: the program is git, the arguments are ours
	cmd.Dir = g.dir
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a killed worker leaves nobody who writes for it
	cmd.Env = []string{
		"PATH=" + searchPath,
		"HOME=/nonexistent",
		"XDG_CONFIG_HOME=/nonexistent",
		"LC_ALL=C",
		"TZ=UTC",
		"GIT_DIR=" + g.dir,
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_NO_LAZY_FETCH=1",
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_ALLOW_PROTOCOL=none",
		"GIT_PROTOCOL_FROM_USER=0",
		"GIT_ASKPASS=/bin/false",
		"GIT_EDITOR=/bin/false",
		"GIT_AUTHOR_NAME=capture", "GIT_AUTHOR_EMAIL=capture@invalid",
		"GIT_COMMITTER_NAME=capture", "GIT_COMMITTER_EMAIL=capture@invalid",
	}
	if g.work != "" {
		cmd.Dir = g.work
		cmd.Env = append(cmd.Env, "GIT_WORK_TREE="+g.work)
	}
	if g.index != "" {
		cmd.Env = append(cmd.Env, "GIT_INDEX_FILE="+g.index)
	}
	errs := &tail{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = g.stdin, g.stdout, errs
	return cmd, errs, nil
}

// run runs git to its end.
func (g gitRun) run(ctx context.Context) error {
	cmd, errs, err := g.command(ctx)
	if err != nil {
		return err
	}
	return gitError(ctx, g.args[0], cmd.Run(), errs)
}

// output runs git and returns what it printed, without the last newline.
func (g gitRun) output(ctx context.Context) (string, error) {
	var b bytes.Buffer
	g.stdout = &b
	err := g.run(ctx)
	return strings.TrimSuffix(b.String(), "\n"), err
}

func gitError(ctx context.Context, what string, err error, errs *tail) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("git %s: %w", what, context.Cause(ctx))
	}
	if msg := errs.String(); msg != "" {
		return fmt.Errorf("git %s: %w: %s", what, err, Plain(msg))
	}
	return fmt.Errorf("git %s: %w", what, err)
}

// exitedWith reports whether err is git having ended with this status.
func exitedWith(err error, code int) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == code
}

// tail keeps the first part of what git says on its error stream, which may
// repeat names from a hostile tree without end.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p[:min(len(p), 4096-len(t.b))]...)
	return len(p), nil
}

func (t *tail) String() string { return strings.TrimSpace(string(t.b)) }
