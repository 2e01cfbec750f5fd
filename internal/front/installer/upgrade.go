package installer

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
)

// Upgrade makes the service run the programs that are installed, with a copy of the state
// from before. Workers continue: they belong to the launcher's unit.
type Upgrade struct {
	Dirs    api.Dirs
	Version string
	Now     func() time.Time
	Host    Host
}

// keptCopies is how many copies of the state from before an upgrade stay.
const keptCopies = 2

// stamp is the file with the version that a machine runs.
func stamp(d api.Dirs) string { return filepath.Join(d.LauncherState(), "version") }

// Run upgrades. Repeating an interrupted one completes it.
func (u Upgrade) Run(ctx context.Context) error {
	before, err := u.before()
	if err != nil {
		return err
	}
	if before == u.Version {
		u.Host.Say("this machine runs version %s", u.Version)
		return u.restart(ctx)
	}
	copyOf := u.copyPath(before)
	if _, err := os.Lstat(copyOf); errors.Is(err, fs.ErrNotExist) {
		b := Backup{Dirs: u.Dirs, Version: before, Now: u.Now, Without: []string{"state/blobs", "state/dispatches", "catalog"}}
		if err := u.Host.Stopping(ctx, false, func() error {
			return Stopped(u.Dirs, func() error { return b.Write(ctx, copyOf, func(rest func() error) error { return rest() }) })
		}); err != nil {
			return err
		}
	}
	u.Host.Say("the state from before is in %s", copyOf)
	if err := u.restart(ctx); err != nil {
		return api.Errorf(api.CodeUnavailable, "version %s did not start: %w", u.Version, err).
			WithHint("see: journalctl -u bailiwick.service; to return: install version %s, then bailiwick-deploy restore %s", release(before), copyOf)
	}
	if err := durable.Replace(stamp(u.Dirs), []byte(u.Version+"\n"), 0o644); err != nil {
		return err
	}
	u.Host.Say("this machine runs version %s", u.Version)
	return u.trim()
}

// before is the version that this machine ran, and refuses a newer one.
func (u Upgrade) before() (string, error) {
	b, err := os.ReadFile(stamp(u.Dirs))
	if errors.Is(err, fs.ErrNotExist) {
		return "0", nil // set up, and never upgraded
	}
	if err != nil {
		return "", api.Errorf(api.CodeUnavailable, "upgrade: %w", err)
	}
	v := strings.TrimSpace(string(b))
	return v, refuseNewer("the state of this machine", v, u.Version)
}

func (u Upgrade) copyPath(before string) string {
	return filepath.Join(u.Dirs.LauncherState(), "before-"+u.Version+"-from-"+before+".tar.gz")
}

// restart makes the units run the installed programs.
func (u Upgrade) restart(ctx context.Context) error {
	if Booted() && u.Host.run(ctx, "systemctl", "is-enabled", "--quiet", "bailiwick.service") != nil {
		u.Host.Say("bailiwick.service is not enabled and stays as it is: sudo systemctl enable --now bailiwick.service")
		return u.Host.Systemctl(ctx, "daemon-reload")
	}
	for _, args := range [][]string{
		{"daemon-reload"},
		{"try-restart", "bailiwick-launch.service", "bailiwick-web.service"},
		{"start", "bailiwick-launch.socket", "bailiwick.socket"},
		{"restart", "bailiwick.service"},
	} {
		if err := u.Host.Systemctl(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// trim removes all but the newest copies.
func (u Upgrade) trim() error {
	list, err := filepath.Glob(filepath.Join(u.Dirs.LauncherState(), "before-*.tar.gz"))
	if err != nil {
		return err
	}
	at := func(path string) time.Time {
		st, err := os.Lstat(path)
		if err != nil {
			return time.Time{}
		}
		return st.ModTime()
	}
	slices.SortFunc(list, func(a, b string) int { return at(b).Compare(at(a)) })
	for i, path := range list {
		if i >= keptCopies {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// Purge removes all data of an installation, the trust root last.
func Purge(d api.Dirs) error {
	leftovers, err := filepath.Glob(d.State + ".*")
	if err != nil {
		return err
	}
	for _, path := range append(leftovers, d.State, d.LauncherState(), d.Data, d.Trust) {
		if err := os.RemoveAll(path); err != nil {
			return api.Errorf(api.CodeUnavailable, "purge: %w", err).WithHint("repeat the command when the cause is gone")
		}
	}
	return nil
}
