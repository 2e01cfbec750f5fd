//go:build unix

package gitexec

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// ownerOf returns the id of the account that a file belongs to.
func ownerOf(path string) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	return owner(path, st)
}

// entryOwner is ownerOf that does not follow a symbolic link.
func entryOwner(path string) (string, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	return owner(path, st)
}

func owner(path string, st os.FileInfo) (string, error) {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return "", fmt.Errorf("%s: no owner", path)
	}
	return strconv.FormatUint(uint64(sys.Uid), 10), nil
}

// currentOwners returns the ids of the person: under sudo also that of the caller.
func currentOwners(env []string) []string {
	ids := []string{strconv.Itoa(os.Geteuid())}
	for _, kv := range env {
		if id, ok := strings.CutPrefix(kv, "SUDO_UID="); ok && os.Geteuid() == 0 {
			ids = append(ids, id)
		}
	}
	return ids
}
