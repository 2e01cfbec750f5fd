package runcli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/console"
)

// minGit is the oldest git that merges without a work tree.
const minGit = "2.38"

// gitProgram runs git with a clean environment.
type gitProgram struct {
	path string
	env  []string
}

func (t *commands) findGit(ctx context.Context) (gitProgram, error) {
	tooOld := func(err error) error {
		return api.Errorf(api.CodeInvalid, "git: %w", err).WithHint("install git %s or later, which can merge without a work tree", minGit)
	}
	path, err := exec.LookPath("git")
	if err != nil {
		return gitProgram{}, tooOld(err)
	}
	g := gitProgram{path: path, env: []string{
		"LC_ALL=C", "TZ=UTC", "GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1",
		"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=none", "GIT_PROTOCOL_FROM_USER=0",
		"GIT_ASKPASS=false", "GIT_EDITOR=false", "GIT_PAGER=cat",
	}}
	// For finding programs and the user's name.
	for _, kv := range t.Env {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR", "SYSTEMROOT":
			g.env = append(g.env, kv)
		}
	}
	version, err := g.in(".").output(ctx, nil, "version")
	if err != nil {
		return g, tooOld(err)
	}
	var major, minor int
	if n, _ := fmt.Sscanf(version, "git version %d.%d", &major, &minor); n != 2 || major < 2 || major == 2 && minor < 38 {
		return g, tooOld(fmt.Errorf("this is %q", version))
	}
	return g, nil
}

// in runs git in a folder, to find its repository.
func (g gitProgram) in(dir string) gitRun { return gitRun{gitProgram: g, dir: dir} }

// at runs git on a git directory.
func (g gitProgram) at(gitDir string) gitRun {
	g.env = append(slices.Clip(g.env), "GIT_DIR="+gitDir)
	return gitRun{gitProgram: g, dir: gitDir}
}

// setting returns a setting of the user, or nothing.
func (g gitProgram) setting(ctx context.Context, gitDir, key string) string {
	value, err := g.at(gitDir).output(ctx, nil, "config", "--get", key)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(value)
}

type gitRun struct {
	gitProgram
	dir    string
	stdout io.Writer // nil: the output is returned
}

// gitError is a git that exited with a status other than 0.
type gitError struct {
	verb   string
	status int
	stderr string // escaped, in one line
}

func (e *gitError) Error() string {
	if e.stderr == "" {
		return fmt.Sprintf("git %s exited with status %d", e.verb, e.status)
	}
	return fmt.Sprintf("git %s: %s", e.verb, e.stderr)
}

// output runs git and returns what it printed, without the last newline.
func (r gitRun) output(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	safe := []string{"--no-pager"}
	for _, kv := range []string{
		"core.hooksPath=" + os.DevNull, "core.attributesFile=" + os.DevNull, "core.fsmonitor=false", "gc.auto=0", "maintenance.auto=false", "protocol.allow=never",
	} {
		safe = append(safe, "-c", kv)
	}
	cmd := exec.CommandContext(ctx, r.path, append(safe, args...)...) //nolint:gosec // G204: the program is git; arguments are constants, object ids, or checked
	cmd.Dir, cmd.Env, cmd.Stdin = r.dir, r.env, stdin
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	errs := &firstPart{}
	cmd.Stdout, cmd.Stderr = &out, errs
	if r.stdout != nil {
		cmd.Stdout = r.stdout
	}
	err := cmd.Run()
	text := strings.TrimSuffix(out.String(), "\n")
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return text, &gitError{args[0], exit.ExitCode(), console.Line(strings.TrimSpace(string(errs.b)))}
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return text, nil
}

// firstPart keeps the beginning of git's messages, which may quote a patch at
// length.
type firstPart struct{ b []byte }

func (f *firstPart) Write(p []byte) (int, error) {
	f.b = append(f.b, p[:min(len(p), 500-len(f.b))]...)
	return len(p), nil
}
