// Package gitexec runs the git program, and is the only package that does so outside
// a jail.
//
// Git runs in a git directory that this package made ([Repo]) or in none, so the only
// configuration is ours. No caller can name another directory: a foreign repository
// is reached through the view that [Foreign] makes of it. The view has its objects,
// refs and index, and only those values of its configuration that run nothing.
//
// Git gets an environment built from nothing, no system or global configuration,
// attributes, replace refs or lazy fetches, no hooks, file system monitor, pager,
// editor or prompt, and no transport. Its output is bounded, and it ends, with every
// process that it started, when the context does. The package decides nothing about
// what git does with its arguments: callers pass their own, names of objects, or what
// they have checked.
//
// It carries the git side of R-S4, R-P9 and R-T7.
package gitexec

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
)

const (
	// searchPath is where git looks for programs.
	searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

	nowhere = "/nonexistent"

	defaultMaxOutput = 256 << 20
	maxStderr        = 4 << 10
	waitDelay        = 5 * time.Second // for the pipes of a process that outlives git
)

// Git says where and with what git runs. The zero value runs it outside any
// repository.
type Git struct {
	Repo     Repo
	WorkTree string // GIT_WORK_TREE, for the commands that need one; also the working directory
	Index    string // GIT_INDEX_FILE

	// Protocol is the one transport that is allowed, such as "file".
	Protocol string
	// Identity has the variables of author and committer, as the function of the same
	// name returns them. Another variable is an error.
	Identity []string

	Stdin  io.Reader
	Stdout io.Writer // nil: Output returns it
	// MaxOutput bounds, in bytes, what Output returns; more is an error. Zero
	// means 256 MiB.
	MaxOutput int
}

// Identity returns the variables that name author and committer. date is in a
// format of git's, or empty for now.
func Identity(name, email, date string) []string {
	var env []string
	for _, role := range []string{"GIT_AUTHOR_", "GIT_COMMITTER_"} {
		env = append(env, role+"NAME="+name, role+"EMAIL="+email)
		if date != "" {
			env = append(env, role+"DATE="+date)
		}
	}
	return env
}

// Environ returns the environment that git runs in.
func (g Git) Environ() []string {
	protocol := "none"
	if g.Protocol != "" {
		protocol = g.Protocol
	}
	env := []string{
		"PATH=" + searchPath, "LC_ALL=C", "TZ=UTC",
		"HOME=" + nowhere, "XDG_CONFIG_HOME=" + nowhere, "GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_SYSTEM=" + os.DevNull, "GIT_ATTR_NOSYSTEM=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1",
		"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=false", "GIT_EDITOR=false", "GIT_PAGER=cat",
		"GIT_ALLOW_PROTOCOL=" + protocol, "GIT_PROTOCOL_FROM_USER=0",
	}
	for name, value := range map[string]string{
		"GIT_DIR": g.Repo.dir, "GIT_OBJECT_DIRECTORY": g.Repo.objects, "GIT_WORK_TREE": g.WorkTree, "GIT_INDEX_FILE": g.Index,
	} {
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	return append(env, g.Identity...)
}

// Cmd is a git that is prepared to start. Its error stream is taken.
type Cmd struct {
	*exec.Cmd
	git    Git
	ctx    context.Context
	ended  chan struct{} // closed at the end of a git that is confined; else nil
	verb   string
	stderr cuttext.Head
}

// Args returns the arguments of `git args`, after those that keep a repository from
// running anything.
func Args(args ...string) []string {
	safe := []string{"--no-pager"}
	for _, kv := range []string{
		"core.hooksPath=" + os.DevNull, "core.attributesFile=" + os.DevNull, "core.fsmonitor=false",
		"gc.auto=0", "maintenance.auto=false", "protocol.allow=never",
	} {
		safe = append(safe, "-c", kv)
	}
	return append(safe, args...)
}

// Command prepares `git args`.
func (g Git) Command(ctx context.Context, args ...string) (*Cmd, error) {
	if strings.HasPrefix(args[0], "-") {
		return nil, fmt.Errorf("git %s: an option where the command belongs", args[0])
	}
	for _, kv := range g.Identity {
		if !strings.HasPrefix(kv, "GIT_AUTHOR_") && !strings.HasPrefix(kv, "GIT_COMMITTER_") {
			return nil, fmt.Errorf("git %s: variable %q is not part of an identity", args[0], kv)
		}
	}
	bin, err := exec.LookPath("git")
	if err != nil {
		return nil, fmt.Errorf("git program: %w; install git 2.39 or later", err)
	}
	c := &Cmd{Cmd: exec.CommandContext(ctx, bin, Args(args...)...), git: g, ctx: ctx, verb: args[0]} //nolint:gosec // G204: the program is git; for the arguments see the package comment
	c.stderr.Most = maxStderr
	c.Env, c.Stdin, c.Stdout, c.Stderr = g.Environ(), g.Stdin, g.Stdout, &c.stderr
	if g.Repo.dir == "" { // git must not search for a repository
		c.Env = append(c.Env, "GIT_DIR="+nowhere)
	}
	c.WaitDelay = waitDelay
	c.Dir = cmp.Or(g.WorkTree, g.Repo.dir, "/")
	killGroup(c.Cmd)
	return c, nil
}

// Error is a git that failed. It wraps *exec.ExitError where git exited, and the
// fault of the machine that git reported, such as syscall.ENOSPC.
type Error struct {
	Verb    string
	Message string // the beginning of what git wrote to its error stream, in one printable line
	Err     error
}

func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("git %s: %v", e.Verb, e.Err)
	}
	return fmt.Sprintf("git %s: %v: %s", e.Verb, e.Err, e.Message)
}

// Unwrap implements the interface of package errors.
func (e *Error) Unwrap() []error {
	said := strings.NewReplacer("out of diskspace", syscall.ENOSPC.Error(), "out of memory", syscall.ENOMEM.Error()).Replace(strings.ToLower(e.Message))
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, syscall.EMFILE, syscall.ENOMEM} {
		if strings.Contains(said, errno.Error()) { // git runs in the locale C
			return []error{e.Err, errno}
		}
	}
	return []error{e.Err}
}

// Wrap makes an error of the command an *Error, or the cause of the end of its
// context.
func (c *Cmd) Wrap(err error) error {
	if err == nil {
		return nil
	}
	if c.ctx.Err() != nil {
		return fmt.Errorf("git %s: %w", c.verb, context.Cause(c.ctx))
	}
	return &Error{c.verb, oneLine(string(c.stderr.Bytes())), err}
}

// oneLine makes text of a hostile repository fit to print.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.Join(strings.Fields(text), " "))
}

// Start starts git. Wait follows.
func (c *Cmd) Start() (err error) {
	if c.git.Repo.lent != nil {
		return c.startConfined()
	}
	onLastingThread(func() { err = c.Cmd.Start() })
	return err
}

// Wait waits for its end, once.
func (c *Cmd) Wait() error {
	err := c.Cmd.Wait()
	if c.ended != nil {
		close(c.ended)
		c.ended = nil
	}
	return err
}

// Run starts git and waits for its end.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Run runs `git args`.
func (g Git) Run(ctx context.Context, args ...string) error {
	c, err := g.Command(ctx, args...)
	if err != nil {
		return err
	}
	return c.Wrap(c.Run())
}

// Output runs `git args` and returns what it printed, without the last newline,
// also when git failed.
func (g Git) Output(ctx context.Context, args ...string) (string, error) {
	out := &cuttext.Head{Most: cmp.Or(g.MaxOutput, defaultMaxOutput)}
	if g.Stdout == nil {
		g.Stdout = out
	}
	err := g.Run(ctx, args...)
	if err == nil && out.Cut() {
		err = fmt.Errorf("git %s: printed more than %d bytes", args[0], out.Most)
	}
	return string(bytes.TrimSuffix(out.Bytes(), []byte("\n"))), err
}

// Exited reports whether err is git having exited with this status.
func Exited(err error, status int) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	return ok && exit.ExitCode() == status
}

// Version returns what git calls itself, and its version.
func Version(ctx context.Context) (text string, major, minor int, err error) {
	text, err = Git{}.Output(ctx, "version")
	if err == nil {
		_, err = fmt.Sscanf(text, "git version %d.%d", &major, &minor)
	}
	return text, major, minor, err
}

// Quote quotes a path as git does in its files and streams.
func Quote(p string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(p) {
		switch c := p[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20 || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
