package daemoncli

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/base/httpguard"
)

// front is the service's socket and the address that names it. It stays while the
// service opens its state again: requests wait meanwhile.
type front struct {
	listener *net.UnixListener
	path     string
	file     fs.FileInfo // the socket file itself; nil: the service manager owns it
	address  *address
	remote   *remote // nil: remote callers are not served
}

// claimFront creates the socket and says which places no jail is shown. The state
// is open by then, so no other service has one.
func (t *tree) claimFront(ctx context.Context, set settings) (f *front, err error) {
	f = &front{}
	if f.address, err = claimAddress(ctx, t.Dirs.Address()); err != nil {
		return nil, err
	}
	failpoint.Hit(failpoint.ServiceOpened, "")
	f.path = t.socketPath()
	if f.listener, err = t.passed(f.path); err == nil && f.listener == nil {
		if f.listener, err = t.listen(f.path); err == nil {
			f.file, err = os.Lstat(f.path)
		}
	}
	if err == nil {
		err = writePrivate(t.Dirs.Private(), append(set.private(), f.path))
	}
	if err != nil {
		if f.listener != nil {
			err = errors.Join(err, f.listener.Close())
		}
		return nil, errors.Join(err, f.address.f.Close())
	}
	return f, nil
}

// writePrivate writes the file of private places.
func writePrivate(path string, places []string) error {
	return replaceChanged(path, []byte(strings.Join(places, "\n")+"\n"))
}

// replaceChanged writes a private file unless it has that content, so that a full disk
// does not keep a service from starting again.
func replaceChanged(path string, text []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) { //nolint:gosec // G304: in the state directory
		return nil
	}
	return durable.Replace(path, text, 0o600)
}

// listen returns a listener on the socket for one server, which closes it.
func (f *front) listen() (*net.UnixListener, error) {
	file, err := f.listener.File()
	if err != nil {
		return nil, err
	}
	l, err := net.FileListener(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	own := l.(*net.UnixListener) //nolint:forcetypeassert // of a unix socket
	own.SetUnlinkOnClose(false)
	return own, nil
}

// close removes the socket. It comes last: awaitEnd waits for it.
func (f *front) close() error {
	var err error
	if f.remote != nil {
		err = f.remote.listener.Close()
	}
	return errors.Join(err, f.listener.Close(), f.address.release(f.path, f.file))
}

// socketPath returns the path of --socket, or the first default whose parent
// directory exists.
func (t *tree) socketPath() string {
	if t.socket != "" {
		return t.socket
	}
	if t.Dirs.Runtime != "" {
		if _, err := os.Stat(filepath.Dir(t.Dirs.Runtime)); err == nil {
			return filepath.Join(t.Dirs.Runtime, "api.sock")
		}
	}
	return filepath.Join(t.Dirs.State, "api.sock")
}

// listen creates the service's socket. In mode system every account may connect: the
// policy decides on each call, by the account of the caller.
func (t *tree) listen(path string) (*net.UnixListener, error) {
	create := httpguard.ListenUnix
	if t.Dirs.System() {
		create = httpguard.ListenPublicUnix
	}
	l, err := create(path)
	if err != nil {
		return nil, api.Errorf(api.CodeUnavailable, "socket %s: %w", path, err).WithHint("choose another, shorter or writable path with --socket")
	}
	return l, nil
}
