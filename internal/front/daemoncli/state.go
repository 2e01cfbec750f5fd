package daemoncli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/installation"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// ownState creates the state directory if it does not exist, and refuses one that
// the service cannot use or that other accounts can write: they could replace its
// key and database.
func (t *tree) ownState() error {
	dir := t.Dirs.State
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = checkOwn(dir, t.UID)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EROFS) {
		return readOnly(dir)
	}
	if _, ok := errors.AsType[*api.Error](err); ok {
		return err
	}
	return api.Errorf(api.CodeUnavailable, "state directory: %w", err).
		WithHint("make %s a directory that this account can write, or set XDG_STATE_HOME; see: bailiwick doctor", dir)
}

// readOnly is the error of a state directory on a read-only file system.
func readOnly(dir string) error {
	return api.Errorf(api.CodeUnavailable, "%w", &store.DiskError{Dir: dir, ReadOnly: true}).WithHint("set XDG_STATE_HOME for another place")
}

// checkOwn refuses a directory that this account does not own or others can write.
func checkOwn(dir string, uid int) error {
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner, _, ok := installation.Owner(st)
	switch {
	case !ok || owner != uid:
		return api.Errorf(api.CodeUnavailable, "state directory %s: owned by another account", dir).WithHint("run the service as the account that owns it, without sudo, or set XDG_STATE_HOME; to hand it to this account: chown -R %d %s", uid, dir)
	case st.Mode().Perm()&0o022 != 0:
		return api.Errorf(api.CodeUnavailable, "state directory %s: writable by other accounts (mode %04o)", dir, st.Mode().Perm()).WithHint("run: chmod go-w %s", dir)
	}
	if err := unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// ownData refuses what the service trusts and another account can change: the
// directory of the catalog and the trust roots, and these files. What does not
// exist yet is no fault.
func (t *tree) ownData() error {
	dir := t.Dirs.Data
	st, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return api.Errorf(api.CodeUnavailable, "data directory: %w", err)
	}
	owner, _, ok := installation.Owner(st)
	switch {
	case !ok || owner != 0 && owner != t.UID:
		return api.Errorf(api.CodeInvalid, "data directory %s: owned by another account, which can replace the trust root; it must be owned by the service's account or root", dir).
			WithHint("run the service as the account that owns it, without sudo, or set XDG_DATA_HOME; to hand it to this account: chown %d %s", t.UID, dir)
	case st.Mode().Perm()&0o022 != 0 && st.Mode()&fs.ModeSticky == 0:
		return api.Errorf(api.CodeInvalid, "data directory %s: writable by other accounts (mode %04o), which can replace the trust root", dir, st.Mode().Perm()).WithHint("run: chmod go-w %s", dir)
	}
	for _, path := range []string{t.Dirs.TrustRoot(), t.Dirs.OperatorRoot()} {
		if err := t.files().check(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return api.Errorf(api.CodeInvalid, "trust root: %w", err)
		}
	}
	return nil
}

// dataCheck is doctor's check of the data directory.
func (t *doctor) dataCheck() check {
	if err := t.ownData(); err != nil {
		c := check{name: "data directory", invalid: true, fix: "the service does not start with it"}
		e, _ := errors.AsType[*api.Error](err) // ownData returns no other
		if c.found = e.Message; e.Hint != "" {
			c.fix += "; " + e.Hint
		}
		return c
	}
	return check{name: "data directory", ok: true, found: t.Dirs.Data}
}

// fullFix is what to do about a full disk of the state.
const fullFix = "the service starts by the room of its reserve; bailiwick gc removes what the retention rules have expired"

// stateCheck is doctor's check of the state directory. It creates nothing.
func (t *doctor) stateCheck() check {
	dir := t.Dirs.State
	err := checkOwn(dir, t.UID)
	for parent := dir; errors.Is(err, fs.ErrNotExist) && parent != filepath.Dir(parent); {
		parent = filepath.Dir(parent)
		if err = unix.Access(parent, unix.W_OK|unix.X_OK); err != nil {
			err = fmt.Errorf("%s: %w", parent, err)
		}
	}
	if err == nil {
		err = store.CheckDisk(dir)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return check{name: "state directory", ok: true, found: dir}
	}
	fix := "make it a directory that this account can write, or set XDG_STATE_HOME"
	if _, full := errors.AsType[*store.DiskError](err); full {
		fix = fullFix
	}
	if errors.Is(err, unix.EROFS) {
		err = readOnly(dir)
	}
	if e, ok := errors.AsType[*api.Error](err); ok {
		return check{name: "state directory", found: e.Message, fix: e.Hint}
	}
	return check{name: "state directory", found: err.Error(), fix: fix}
}
