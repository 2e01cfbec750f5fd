package client

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// checkPeer refuses a server that runs under an account that is not among uids.
func checkPeer(conn *net.UnixConn, uids []int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *syscall.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if credErr != nil {
		return credErr
	}
	if !slices.Contains(uids, int(cred.Uid)) {
		return &untrustedError{int(cred.Uid)}
	}
	return nil
}

// owner returns the account that owns a socket or, where this account cannot see it, the
// first directory above that it can see.
func owner(socket string) (uid int, known bool) {
	for path := socket; ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err == nil {
			st, ok := info.Sys().(*syscall.Stat_t)
			if !ok {
				return 0, false
			}
			return int(st.Uid), true
		}
		if !errors.Is(err, fs.ErrPermission) || path == filepath.Dir(path) {
			return 0, false
		}
	}
}
