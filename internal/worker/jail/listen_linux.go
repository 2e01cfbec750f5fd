package jail

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// listenBacklog is how many connections wait for the owner to accept them. The kernel drops further attempts, which the
// agent's own TCP tries again.
const listenBacklog = 64

// listen opens a listener of the jail. Without SO_REUSEADDR and SO_REUSEPORT nothing else in the jail can bind its address while
// it is open, and the owner alone keeps it open: pid 1 closes its own descriptor before a command runs.
func listen(port int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("open the listener: %w", err)
	}
	if err = unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err == nil {
		err = unix.Listen(fd, listenBacklog)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("listen on 127.0.0.1:%d in the jail: %w", port, err)
	}
	return fd, nil
}

// takeListener makes a listener of a descriptor of pid 1, and closes the descriptor.
func takeListener(fd int) (net.Listener, error) {
	f := os.NewFile(uintptr(fd), "listener of a jail") //nolint:gosec // a descriptor
	defer func() { _ = f.Close() }()
	return net.FileListener(f)
}

// Listener accepts the connections that processes of the jail make to 127.0.0.1:[ListenPort]. It is nil unless Spec.Listen
// is set, and Close closes it.
func (j *Jail) Listener() net.Listener { return j.listener }

// Ports returns the listeners of Spec.Ports, by port. Close closes them.
func (j *Jail) Ports() map[int]net.Listener { return j.ports }
