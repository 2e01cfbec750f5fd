package cli

import (
	"bytes"
	"context"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// defaultIdle is how long a service that a command started stays idle before it
// shuts down.
const defaultIdle = 30 * time.Second

// spawn starts a one-shot service and returns its socket, or that of a service
// that was started at the same time (R-D1). The service has a session of its
// own, so that an interrupt stops this command and not a service that others may
// use by then.
func (t *tree) spawn(ctx context.Context) (string, error) {
	path := t.sibling(daemonProgram)
	cmd := exec.Command(path, "start", "--idle", t.idle.String()) //nolint:gosec,noctx // G204: a program in the folder of this one, which outlives it
	var out, errs bytes.Buffer
	cmd.Env, cmd.Dir = placeEnv(t.Env), "/"
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = ownSession()
	if err := cmd.Start(); err != nil {
		return "", missing("no service answers, and "+path, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends when the child has exited
	select {
	case err := <-ended:
		if err != nil {
			reason := strings.TrimPrefix(strings.TrimSpace(errs.String()), daemonProgram+": ")
			if reason == "" {
				reason = err.Error()
			}
			e := api.Errorf(api.CodeUnavailable, "no service answers, and none can be started: %s", reason)
			if !strings.Contains(reason, "\n  hint: ") {
				e = e.WithHint("see: bailiwick doctor")
			}
			return "", e
		}
		return strings.TrimSuffix(out.String(), "\n"), nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// placeEnv keeps the variables that say where things are. A service that one
// command starts serves other callers too, so it gets nothing else of this one's
// environment.
func placeEnv(env []string) []string {
	keep := []string{"HOME", "PATH", "TMPDIR", "LANG", "LC_ALL", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", api.ModeVariable}
	// Never nil, which would mean the whole environment.
	return slices.DeleteFunc(append([]string{}, env...), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return !slices.Contains(keep, name)
	})
}
