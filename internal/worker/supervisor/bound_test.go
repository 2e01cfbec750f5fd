package supervisor

import (
	"os"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

func TestMain(m *testing.M) {
	jail.Main()
	os.Exit(m.Run())
}

// What humans may sign is what a jail starts with: a catalog that is accepted
// and can never run would be found out by the first dispatch only.
func TestCatalogAndJailBoundsAgree(t *testing.T) {
	start := func(spec jail.Spec) error {
		j, err := jail.Start(t.Context(), spec)
		if err == nil {
			err = j.Close()
		}
		return err
	}
	dir := t.TempDir()
	for _, path := range []string{
		"/", "/proc", "/proc/self", "/sys", "/dev", "/dev/null", "/run", "/run/user", "/etc", "/tmp", "/workspace", "/workspace/x",
		"/home/agent", "/home/agent/x", "/home", "relative", "/usr/../etc", "/usr/lib", "/etc/hostname", "/var", dir,
	} {
		spec := jail.Spec{ReadOnly: []string{path}}
		signed, started := api.CheckHostPath(path), start(spec)
		if (signed == nil) != (started == nil) {
			t.Errorf("read-only path %s: a catalog may say it: %v; a jail: %v", path, signed, started)
		}
	}
	for name, l := range map[string]api.Limits{
		"little memory": {Memory: 32<<20 - 1}, "enough memory": {Memory: 32 << 20}, "little disk": {Disk: 1<<20 - 1}, "enough disk": {Disk: 1 << 20},
		"few files": {Files: 15}, "enough files": {Files: 16}, "many processes": {Processes: 1<<20 + 1},
		"little cpu": {CPU: 0.009}, "enough cpu": {CPU: 0.01}, "much cpu": {CPU: 1025},
	} {
		spec := jail.Spec{Limits: jail.Limits{Memory: int64(l.Memory), Disk: int64(l.Disk), Files: l.Files, Processes: l.Processes, CPU: l.CPU}}
		signed, started := l.Check(), start(spec)
		if (signed == nil) != (started == nil) {
			t.Errorf("%s: a catalog may say it: %v; a jail: %v", name, signed, started)
		}
	}
}
