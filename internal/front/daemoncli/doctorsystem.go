package daemoncli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/installation"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// The accounts of an installation in mode system.
const (
	serviceAccount = "bailiwick"
	pageAccount    = "bailiwick-web"
	deployGroup    = "bailiwick-deploy"
)

// systemPlaces are the places of mode system.
func systemPlaces(d api.Dirs) []place {
	return []place{
		{"trust, settings", d.Trust, "root's"},
		{"catalog", d.Data, "written by the group " + deployGroup},
		{"state", d.State, "of the account " + serviceAccount},
		{"launcher", d.LauncherState(), "root's"},
		{"config", d.Config, "your keys"},
		{"sockets", strings.Join(append(d.Sockets(), d.LauncherSocket()), ", "), ""},
	}
}

// systemChecks are doctor's checks of mode system: what its claims rest on. Each says what this
// account can see. What isolates an attempt the launcher tries for the running service.
func (t *doctor) systemChecks(ctx context.Context) (out []check) {
	out = append(out, t.gitCheck(ctx), t.programCheck(), accountsCheck(t.UID))
	for _, c := range []struct {
		name string
		err  error
	}{{"trust and settings", t.rootTrust()}, {"catalog directory", catalogGroups(t.Dirs.Data, groupsOf(serviceAccount))}, {"state directory", t.systemState()}, {"launcher", t.launcherFile()}} {
		out = append(out, errorCheck(c.name, c.err))
	}
	out = append(out, t.settingsChecks(ctx)...)
	if t.readsState() {
		out = append(out, t.anchorChecks(ctx)...)
	}
	return append(out, check{name: "mode", ok: true, found: "system: root owns what the service trusts, and the service's account owns the state alone; each claim and its test: docs/threats.md"})
}

// errorCheck is a check that found err, or nothing wrong.
func errorCheck(name string, err error) check {
	c := check{name: name, ok: err == nil, found: "as the package and setup leave it", invalid: true}
	if e, ok := errors.AsType[*api.Error](err); ok {
		c.found, c.fix, c.invalid = e.Message, e.Hint, e.Code == api.CodeInvalid
	} else if err != nil {
		c.found = err.Error()
	}
	return c
}

// settingsChecks reads the settings without the state, which only the service can read. What
// they name is the service's: only its account and root can check it.
func (t *doctor) settingsChecks(ctx context.Context) []check {
	path, s := t.Dirs.ServiceConfig(), settings{}
	c := check{name: "configuration", ok: true, found: path}
	if exists(path) {
		b, err := t.files().read(path)
		if err == nil {
			s, err = parseSettings(path, b)
		}
		if err != nil {
			return []check{{name: c.name, found: err.Error(), fix: "fix the file; the service does not start with it", invalid: true}}
		}
	} else {
		c.found = "no " + path + ": using the defaults"
	}
	runs := runsCheck(s, nil)
	if !s.Orchestrator.On {
		runs[0].found = "not enabled; to enable it: write orchestrator: {} into " + path + ", and run: " + api.RestartService(api.ModeSystem)
	}
	out := append(append([]check{c}, metricsCheck(s, nil)...), runs...)
	u, err := user.Lookup(serviceAccount)
	if err != nil {
		return out // reported by accountsCheck
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil || t.UID != 0 && t.UID != uid {
		return out
	}
	service := *t.tree
	service.UID = uid
	as := &doctor{&service}
	return slices.Concat(out, as.issuerCheck(ctx), as.serverCheck(), as.notifyChecks(s, nil))
}

// accountsCheck looks for the accounts, and says what this one may do.
func accountsCheck(uid int) check {
	c := check{name: "accounts", invalid: true, fix: "create them as the package does: sudo systemd-sysusers bailiwick.conf"}
	for _, name := range []string{serviceAccount, pageAccount} {
		if _, err := user.Lookup(name); err != nil {
			c.found = err.Error()
			return c
		}
	}
	if _, err := user.LookupGroup(deployGroup); err != nil {
		c.found = err.Error()
		return c
	}
	if groups := groupsOf(serviceAccount); len(groups) != 1 {
		c.found, c.fix = fmt.Sprintf("the account %s is in %d groups, want its own alone", serviceAccount, len(groups)), "remove it from the others: sudo gpasswd -d "+serviceAccount+" GROUP"
		return c
	}
	own := "your account writes no catalog: it is not in the group " + deployGroup
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil && inGroup(u, deployGroup) {
		own = "your account writes the catalog"
	}
	return check{name: c.name, ok: true, found: fmt.Sprintf("%s, %s, group %s; %s", serviceAccount, pageAccount, deployGroup, own)}
}

func inGroup(u *user.User, name string) bool {
	g, err := user.LookupGroup(name)
	if err != nil {
		return false
	}
	ids, err := u.GroupIds()
	return err == nil && slices.Contains(ids, g.Gid)
}

// groupsOf are the groups of an account; empty if it does not exist.
func groupsOf(name string) (gids []int) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil
	}
	ids, err := u.GroupIds()
	if err != nil {
		return nil
	}
	for _, id := range ids {
		if n, err := strconv.Atoi(id); err == nil {
			gids = append(gids, n)
		}
	}
	return gids
}

// systemState refuses a state that is not as the package leaves it, and for the account that has it, one
// without room.
func (t *doctor) systemState() error {
	err := stateOf(t.Dirs.State)
	if err != nil || !t.readsState() {
		return err
	}
	short, ok := errors.AsType[*store.DiskError](store.CheckDisk(t.Dirs.State))
	switch {
	case !ok:
		return nil
	case short.ReadOnly:
		return api.Errorf(api.CodeUnavailable, "%w", short)
	}
	return api.Errorf(api.CodeUnavailable, "%w", short).WithHint(fullFix)
}

// readsState reports whether this account has the state, which the anchors are compared with.
func (t *doctor) readsState() bool {
	st, err := os.Lstat(t.Dirs.State)
	if err != nil {
		return !t.Dirs.System()
	}
	uid, _, ok := installation.Owner(st)
	return ok && uid == t.UID
}

// stateOf refuses a state that another account than the service's owns or can enter.
func stateOf(dir string) error {
	st, err := os.Lstat(dir)
	if err != nil {
		return api.Errorf(api.CodeUnavailable, "state directory: %w", err).WithHint("create it as the package does: sudo systemd-tmpfiles --create bailiwick.conf")
	}
	uid, _, ok := installation.Owner(st)
	u, err := user.Lookup(serviceAccount)
	switch {
	case err != nil:
		return api.Errorf(api.CodeInvalid, "state directory: %w", err).WithHint("create the account as the package does: sudo systemd-sysusers bailiwick.conf")
	case !ok || u.Uid != strconv.Itoa(uid):
		return api.Errorf(api.CodeInvalid, "state directory %s: owned by another account than %s", dir, serviceAccount).WithHint("run: sudo chown -R %s: %s", serviceAccount, dir)
	case st.Mode().Perm()&0o077 != 0:
		return api.Errorf(api.CodeInvalid, "state directory %s: accessible to other accounts (mode %04o)", dir, st.Mode().Perm()).WithHint("run: sudo chmod 700 %s", dir)
	}
	return nil
}

// launcherSocket refuses a start without the launcher: nothing could be dispatched.
func (t *tree) launcherSocket() error {
	if err := t.launcherFile(); err != nil {
		return err
	}
	path := t.Dirs.LauncherSocket()
	if err := unix.Access(path, unix.W_OK); err != nil {
		return api.Errorf(api.CodeUnavailable, "launcher: %s: %w", path, err).WithHint("the socket belongs to root and the group of the service's account: restart bailiwick-launch.socket")
	}
	return nil
}

// launcherFile refuses a socket of the launcher that is missing, or that another account
// than root and the service's could use.
func (t *tree) launcherFile() error {
	path := t.Dirs.LauncherSocket()
	const hint = "run: sudo systemctl enable --now bailiwick-launch.socket"
	st, err := os.Lstat(path)
	if err != nil {
		return api.Errorf(api.CodeUnavailable, "launcher: %w", err).WithHint("%s", hint)
	}
	uid, _, ok := installation.Owner(st)
	switch {
	case st.Mode().Type() != fs.ModeSocket:
		return api.Errorf(api.CodeInvalid, "launcher: %s: not a socket", path).WithHint("%s", hint)
	case !ok || uid != 0 || st.Mode().Perm()&0o006 != 0:
		return api.Errorf(api.CodeInvalid, "launcher: %s: not root's alone (mode %04o)", path, st.Mode().Perm()).WithHint("%s", hint)
	}
	return nil
}
