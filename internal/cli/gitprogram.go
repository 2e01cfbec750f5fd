package cli

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
)

// gitFirst is the first git that merges without a work tree.
const gitFirst = "2.38"

// gitProgram runs git with an environment that is built from nothing.
type gitProgram struct {
	path string
	env  []string
}

func (t *tree) findGit(ctx context.Context) (gitProgram, error) {
	none := func(err error) error {
		return api.Errorf(api.CodeInvalid, "git: %w", err).WithHint("install git %s or later, which can merge without touching a work tree", gitFirst)
	}
	path, err := exec.LookPath("git")
	if err != nil {
		return gitProgram{}, none(err)
	}
	g := gitProgram{path: path, env: []string{
		"LC_ALL=C", "TZ=UTC", "GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1",
		"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=none", "GIT_PROTOCOL_FROM_USER=0",
		"GIT_ASKPASS=false", "GIT_EDITOR=false", "GIT_PAGER=cat",
	}}
	// Where programs and the user's name are.
	for _, kv := range t.Env {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR", "SYSTEMROOT":
			g.env = append(g.env, kv)
		}
	}
	version, err := g.in(".").output(ctx, nil, "version")
	if err != nil {
		return g, none(err)
	}
	var major, minor int
	if n, _ := fmt.Sscanf(version, "git version %d.%d", &major, &minor); n != 2 || major < 2 || major == 2 && minor < 38 {
		return g, none(fmt.Errorf("this is %q", version))
	}
	return g, nil
}

// in runs git in a folder, to find out what it is a part of.
func (g gitProgram) in(dir string) gitRun { return gitRun{gitProgram: g, dir: dir} }

// at runs git on a git directory.
func (g gitProgram) at(gitDir string) gitRun {
	g.env = append(slices.Clip(g.env), "GIT_DIR="+gitDir)
	return gitRun{gitProgram: g, dir: gitDir}
}

// setting is one of the user's, empty where it is not set.
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
	stdout io.Writer // nil: it is returned
}

// gitError is a git that ended with another status than 0.
type gitError struct {
	verb   string
	status int
	said   string // in one line
}

func (e *gitError) Error() string {
	if e.said == "" {
		return fmt.Sprintf("git %s ended with status %d", e.verb, e.status)
	}
	return fmt.Sprintf("git %s: %s", e.verb, e.said)
}

// output runs git and returns what it printed, without the last newline.
func (r gitRun) output(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	safe := []string{"--no-pager"}
	for _, kv := range []string{
		"core.hooksPath=" + os.DevNull, "core.attributesFile=" + os.DevNull, "core.fsmonitor=false", "gc.auto=0", "maintenance.auto=false", "protocol.allow=never",
	} {
		safe = append(safe, "-c", kv)
	}
	cmd := exec.CommandContext(ctx, r.path, append(safe, args...)...) //nolint:gosec // G204: the program is git; arguments are ours, names of objects, or come behind a check
	cmd.Dir, cmd.Env, cmd.Stdin = r.dir, r.env, stdin
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	errs := &firstPart{}
	cmd.Stdout, cmd.Stderr = &out, errs
	if r.stdout != nil {
		cmd.Stdout = r.stdout
	}
	err := cmd.Run()
	said := strings.TrimSuffix(out.String(), "\n")
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return said, &gitError{args[0], exit.ExitCode(), plainLine(strings.TrimSpace(string(errs.b)))}
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return said, nil
}

// firstPart keeps the beginning of what git says, which may repeat names from a
// patch without end.
type firstPart struct{ b []byte }

func (f *firstPart) Write(p []byte) (int, error) {
	f.b = append(f.b, p[:min(len(p), 500-len(f.b))]...)
	return len(p), nil
}
