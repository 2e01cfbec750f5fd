// Package installation finds the installation that the programs of a person use: that
// of the machine, mode system, or that of the person's account, mode same-user.
//
// It reads nothing but the attributes of two paths, which only root can create.
package installation

import (
	"errors"
	"io/fs"
	"os"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Installation is what a program needs to find its service and to know it.
type Installation struct {
	Dirs api.Dirs
	UIDs []int // accounts whose service is trusted
}

// Find returns the installation of the machine if it has a trust root, and else that
// of the account uid. api.ModeVariable overrides that.
func Find(getenv func(string) string, uid int) Installation {
	return find(getenv, uid, os.Stat)
}

func find(getenv func(string) string, uid int, stat func(string) (fs.FileInfo, error)) Installation {
	machine := api.SystemDirs(getenv)
	d := api.DirsFrom(getenv, uid)
	if getenv(api.ModeVariable) == "" {
		// A trust root that cannot be examined exists: its people do not want another one.
		if _, err := stat(machine.TrustRoot()); !errors.Is(err, fs.ErrNotExist) {
			d = machine
		}
	}
	if !d.System() {
		return Installation{d, []int{uid}}
	}
	// Root made the socket if systemd listens for the service, and the state directory
	// says which account is the service's: its parent is root's.
	uids := []int{0}
	if st, err := stat(d.State); err == nil {
		if uid, _, ok := Owner(st); ok {
			uids = append(uids, uid)
		}
	}
	return Installation{d, uids}
}
