package installer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/installation"
)

// Host makes the changes to a machine that systemd's tools make.
type Host struct {
	Say func(format string, args ...any) // for people
}

// Accounts creates the accounts and the directories of an installation. What exists
// stays.
func (h Host) Accounts(ctx context.Context) error {
	for _, argv := range [][]string{{"systemd-sysusers", "bailiwick.conf"}, {"systemd-tmpfiles", "--create", "bailiwick.conf"}} {
		if err := h.run(ctx, argv...); err != nil {
			return err
		}
	}
	return nil
}

// Booted reports whether systemd runs this machine.
func Booted() bool {
	st, err := os.Stat("/run/systemd/system")
	return err == nil && st.IsDir()
}

// Systemctl runs systemctl if systemd runs this machine, and says what to do otherwise.
func (h Host) Systemctl(ctx context.Context, args ...string) error {
	if !Booted() {
		h.Say("systemd does not run this machine; where it does, this follows: systemctl %s", strings.Join(args, " "))
		return nil
	}
	return h.run(ctx, append([]string{"systemctl"}, args...)...)
}

func (h Host) run(ctx context.Context, argv ...string) error {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput() //nolint:gosec // G204: constants of this package
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Stop stops the installation with all its workers, and keeps it from starting again.
func (h Host) Stop(ctx context.Context) error {
	if !Booted() {
		return nil
	}
	for _, args := range [][]string{
		{"--no-reload", "disable", "--now", "bailiwick-web.service", "bailiwick.service", "bailiwick.socket", "bailiwick-launch.socket"},
		{"stop", "bailiwick-launch.service"},
	} {
		if err := h.run(ctx, append([]string{"systemctl"}, args...)...); err != nil {
			return err
		}
	}
	// No process would read the result of a worker.
	err := os.WriteFile("/sys/fs/cgroup/bailiwick.slice/attempts/cgroup.kill", []byte("1"), 0) //nolint:gosec // G306: it exists
	if errors.Is(err, fs.ErrNotExist) {                                                        // nothing has run
		return nil
	}
	return err
}

// rootOwns refuses a directory that is missing, or that another account owns.
func rootOwns(dir string) error {
	st, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("%w; the package makes it: systemd-tmpfiles --create bailiwick.conf", err)
	}
	if uid, _, ok := installation.Owner(st); !ok || uid != 0 || !st.IsDir() {
		return fmt.Errorf("%s: want a directory of root", dir)
	}
	return nil
}

// Data lists the places of an installation with data, those that exist.
func Data(d api.Dirs) (places []string) {
	for _, p := range []string{d.Trust, d.State, d.Data, d.LauncherState()} {
		if _, err := os.Lstat(p); err == nil {
			places = append(places, p)
		}
	}
	return places
}

// Stopping stops the service with its socket while do runs, and starts both again if
// they ran and started is wanted, also after an error. Workers continue.
func (h Host) Stopping(ctx context.Context, startAgain bool, do func() error) error {
	active := Booted() && h.run(ctx, "systemctl", "is-active", "--quiet", "bailiwick.service") == nil
	if active {
		if err := h.run(ctx, "systemctl", "stop", "bailiwick.socket", "bailiwick.service"); err != nil {
			return err
		}
	}
	err := do()
	if active && (startAgain || err != nil) {
		err = errors.Join(err, h.run(context.WithoutCancel(ctx), "systemctl", "start", "bailiwick.socket", "bailiwick.service"))
	}
	return err
}

// ownerOf returns the owner of a directory.
func ownerOf(dir string) (uid, gid int, err error) {
	st, err := os.Lstat(dir)
	if err != nil {
		return 0, 0, err
	}
	uid, gid, ok := installation.Owner(st)
	if !ok || !st.IsDir() {
		return 0, 0, fmt.Errorf("%s: not a directory", dir)
	}
	return uid, gid, nil
}

// chownLike gives a path to the owner of a directory.
func chownLike(dir, path string) error {
	uid, gid, err := ownerOf(dir)
	if err == nil {
		err = os.Lchown(path, uid, gid)
	}
	return err
}
