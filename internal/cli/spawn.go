package cli

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// defaultIdle is how long a service that a command starts stays when nobody
// needs it.
const defaultIdle = 30 * time.Second

// spawn starts a one-shot service, or finds the one that somebody else was
// faster to start, and returns its socket (R-D1). The program lies beside this
// one. It is in a session of its own, so that an interrupt ends this command
// and not the service that others may be using by then.
func (t *tree) spawn(ctx context.Context) (string, error) {
	path := filepath.Join(t.Beside, "bailiwickd")
	cmd := exec.Command(path, "start", "--idle", t.idle.String()) //nolint:gosec,noctx // G204: the program lies beside this one, and is not ended with this one
	var out, errs bytes.Buffer
	cmd.Env, cmd.Dir = placeEnv(t.Env), "/"
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = ownSession()
	if err := cmd.Start(); err != nil {
		return "", api.Errorf(api.CodeUnavailable, "no service answers, and %s: %w", path, err).WithHint("the programs of one installation lie in one folder")
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // it ends by itself, at the latest with this process
	select {
	case err := <-ended:
		if err != nil {
			said := strings.TrimPrefix(strings.TrimSpace(errs.String()), "bailiwickd: ")
			if said == "" {
				said = err.Error()
			}
			e := api.Errorf(api.CodeUnavailable, "no service answers, and none can be started: %s", said)
			if !strings.Contains(said, "\n  hint: ") {
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
// command starts serves others too, so nothing else of its caller is for it.
func placeEnv(env []string) []string {
	keep := []string{"HOME", "PATH", "TMPDIR", "LANG", "LC_ALL", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"}
	// Never nil: then the child would get everything.
	return slices.DeleteFunc(append([]string{}, env...), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return !slices.Contains(keep, name)
	})
}
