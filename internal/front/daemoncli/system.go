package daemoncli

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/installation"
)

// mode is the protection mode that every result states.
func (t *tree) mode() string { return cmp.Or(t.Dirs.Mode, api.ModeSameUser) }

// chooseMode settles the mode of a service that starts. The service of a person never
// has the directories of the machine.
func (t *tree) chooseMode() error {
	if !t.system {
		if t.Dirs.System() {
			return errUnitServes()
		}
		return nil
	}
	if t.socket != "" || t.config != "" || t.idle != 0 || t.join {
		return api.Errorf(api.CodeInvalid, "--system: socket, configuration and lifetime of the machine's service are fixed").WithHint("leave out --socket, --config and --idle")
	}
	t.Dirs = api.SystemDirs(func(name string) string { v, _ := t.Lookup(name); return v })
	return t.Dirs.Check()
}

func errUnitServes() error {
	return api.Errorf(api.CodeInvalid, "this machine has an installation for all its people, whose service runs as a unit").
		WithHint("start it: %s; for a service of your own account: export %s=%s", api.StartService(api.ModeSystem), api.ModeVariable, api.ModeSameUser)
}

// ownPlaces refuses directories and files that another account could change.
func (t *tree) ownPlaces() error {
	checks := []func() error{t.ownData, t.ownState}
	if t.Dirs.System() {
		checks = []func() error{t.ownProcess, t.rootTrust, t.rootCatalog, t.privateState, t.launcherSocket}
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// ownProcess refuses an account or a process that may do more than the service's.
func (t *tree) ownProcess() error {
	if t.UID == 0 {
		return api.Errorf(api.CodeInvalid, "mode system: the service runs as root").WithHint("start it by its unit: %s", api.StartService(api.ModeSystem))
	}
	hdr, data := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return api.Errorf(api.CodeUnavailable, "mode system: capabilities of this process: %w", err)
	}
	for _, d := range data {
		if d.Effective|d.Permitted|d.Inheritable != 0 {
			return api.Errorf(api.CodeInvalid, "mode system: the service has capabilities").WithHint("start it by its unit, which gives it none: %s", api.StartService(api.ModeSystem))
		}
	}
	if set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || set != 1 {
		return api.Errorf(api.CodeInvalid, "mode system: the service could gain privileges by a setuid program").WithHint("start it by its unit, which sets NoNewPrivileges: %s", api.StartService(api.ModeSystem))
	}
	return nil
}

// rootTrust refuses trust roots and settings that another account than root could replace.
func (t *tree) rootTrust() error {
	for _, path := range []string{t.Dirs.TrustRoot(), t.Dirs.OperatorRoot()} {
		if _, err := os.Stat(path); err != nil {
			return api.Errorf(api.CodeUnavailable, "trust root: %w", err).WithHint("set up this machine: sudo bailiwick-deploy setup")
		}
		if err := rootOnly(path); err != nil {
			return api.Errorf(api.CodeInvalid, "trust root: %w", err)
		}
	}
	if path := t.Dirs.ServiceConfig(); exists(path) {
		if err := rootOnly(path); err != nil {
			return api.Errorf(api.CodeInvalid, "configuration: %w", err)
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// rootOnly refuses a path that another account than root could replace or write. In a
// sticky directory of root only root can replace the files of root.
func rootOnly(path string) error {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for p := resolved; ; p = filepath.Dir(p) {
		st, err := os.Lstat(p)
		if err != nil {
			return err
		}
		uid, _, ok := installation.Owner(st)
		switch {
		case !ok || uid != 0:
			return fmt.Errorf("%s: owned by another account than root; run: chown root %s", p, p)
		case st.Mode().Perm()&0o022 != 0 && (p == resolved || st.Mode()&fs.ModeSticky == 0):
			return fmt.Errorf("%s: writable by other accounts than root (mode %04o); run: chmod go-w %s", p, st.Mode().Perm(), p)
		case p == filepath.Dir(p):
			return nil
		}
	}
}

// rootCatalog refuses a catalog directory that the service itself could write.
func (t *tree) rootCatalog() error {
	groups, err := os.Getgroups()
	if err != nil {
		return api.Errorf(api.CodeUnavailable, "catalog: groups of this process: %w", err)
	}
	return catalogGroups(t.Dirs.Data, append(groups, os.Getegid()))
}

// catalogGroups refuses a catalog directory that an account with these groups could write.
func catalogGroups(dir string, groups []int) error {
	st, err := os.Stat(dir)
	if err != nil {
		return api.Errorf(api.CodeUnavailable, "catalog: %w", err).WithHint("create it as the package does: systemd-tmpfiles --create bailiwick.conf")
	}
	uid, gid, ok := installation.Owner(st)
	switch {
	case !ok || uid != 0:
		return api.Errorf(api.CodeInvalid, "catalog: %s: owned by another account than root", dir).WithHint("run: chown root:%s %s", deployGroup, dir)
	case st.Mode().Perm()&0o002 != 0:
		return api.Errorf(api.CodeInvalid, "catalog: %s: writable by every account (mode %04o)", dir, st.Mode().Perm()).WithHint("run: chmod o-w %s", dir)
	case st.Mode().Perm()&0o020 != 0 && slices.Contains(groups, gid):
		return api.Errorf(api.CodeInvalid, "catalog: %s: the service's account is in the group that writes it (%d)", dir, gid).WithHint("remove the account %s from the group %s", serviceAccount, deployGroup)
	}
	return nil
}

// privateState refuses a state directory that is missing or that others may read.
func (t *tree) privateState() error {
	dir := t.Dirs.State
	st, err := os.Stat(dir)
	if err != nil {
		return api.Errorf(api.CodeUnavailable, "state directory: %w", err).WithHint("create it as the package does: systemd-tmpfiles --create bailiwick.conf")
	}
	if st.Mode().Perm()&0o077 != 0 {
		return api.Errorf(api.CodeInvalid, "state directory %s: accessible to other accounts (mode %04o)", dir, st.Mode().Perm()).WithHint("run: chmod 700 %s", dir)
	}
	return t.ownState()
}
