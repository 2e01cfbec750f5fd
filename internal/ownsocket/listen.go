// Package ownsocket makes the unix sockets of a service, for nobody but the
// account that it runs as.
//
// The mode holds from the moment in which the socket is there, and nothing of
// the process changes for that: the mask for new files would hold for everything
// else that it makes or starts meanwhile, such as a worker.
//
// Carries R-S2 (no other account reaches the service's sockets).
package ownsocket

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/egress"
)

// Listen makes a socket of mode 0600 at path, and the folder that it is in. One
// that a service left which is no more is replaced; anything else that is there
// is left alone and an error: the path is somebody's word. Closing the listener
// does not remove the socket.
func Listen(path string) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if err := clearWay(path); err != nil {
		return nil, err
	}
	// Linux gives the file the mode that the socket has when it is bound.
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }), err) //nolint:gosec // G115: a descriptor
	}}
	l, err := private.Listen(context.Background(), "unix", path) // it is there at once
	if err != nil {
		return nil, err
	}
	own, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(errors.New("not a unix socket"), l.Close())
	}
	own.SetUnlinkOnClose(false)
	return own, nil
}

// clearWay removes the socket that a service left which is no more.
func clearWay(path string) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case st.Mode().Type() != fs.ModeSocket:
		return errors.New("something that is not a socket is there; name another path")
	}
	conn, err := egress.Unix(path).DialContext(context.Background(), "unix", path) // it answers at once or never
	switch {
	case err == nil:
		return errors.Join(errors.New("another program listens there; name another path"), conn.Close())
	case errors.Is(err, unix.ECONNREFUSED):
		err = os.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
