package httpguard

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
)

// ListenUnix creates a unix socket of mode 0600 at path, and its directory (R-S2).
// It replaces the stale socket of a service that is gone and refuses any other
// file, because an operator may have chosen the wrong path. Closing the listener
// does not remove the socket.
//
// The socket never has a wider mode, and the process's umask stays as it is: a
// changed one would apply to the files of every other goroutine and to the
// workers started meanwhile.
func ListenUnix(path string) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	// Linux gives the file the mode of the socket at bind time.
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }), err) //nolint:gosec // G115: a descriptor
	}}
	l, err := private.Listen(context.Background(), "unix", path) // does not block
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

// ListenPublicUnix is ListenUnix with mode 0666: every account that reaches the
// directory may connect, and the server decides by the peer of each connection.
func ListenPublicUnix(path string) (*net.UnixListener, error) {
	l, err := ListenUnix(path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // G302: as it says
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// removeStale removes the socket of a service that is gone.
func removeStale(path string) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case st.Mode().Type() != fs.ModeSocket:
		return errors.New("the path exists and is not a socket; name another path")
	}
	conn, err := egress.Unix(path).DialContext(context.Background(), "unix", path) // connects at once or fails
	switch {
	case err == nil:
		return errors.Join(errors.New("another program listens on it; name another path"), conn.Close())
	case errors.Is(err, unix.ECONNREFUSED):
		err = os.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
