package client

import (
	"fmt"
	"net"
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
		return fmt.Errorf("%w (uid %d)", errUntrusted, cred.Uid)
	}
	return nil
}
