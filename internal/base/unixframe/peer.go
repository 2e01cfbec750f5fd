package unixframe

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Peer returns the process that connected, and its account at that time, by what the kernel says.
func Peer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	ctlErr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) //nolint:gosec // G115: a descriptor
	return cred, errors.Join(ctlErr, err)
}

// WhileConnected returns a context that ends with the connection, whose peer has sent its request. The caller stops it before it
// answers.
func WhileConnected(ctx context.Context, c *net.UnixConn) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	_ = c.SetDeadline(time.Time{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		var b [1]byte
		if _, err := c.Read(b[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel(errors.New("the service is gone"))
		}
	}()
	return ctx, func() {
		_ = c.SetReadDeadline(time.Unix(1, 0))
		<-done
		cancel(nil)
	}
}
