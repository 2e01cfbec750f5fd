package unixframe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
)

// Serving is how connections are served.
type Serving struct {
	Most  int             // connections at once; others wait in the socket's queue, or are refused by the kernel
	Idle  time.Duration   // without a connection, after which nothing is served any more
	Every time.Duration   // how often Tick is called at least
	Tick  func()          // in between two connections
	Fault func(err error) // of an accept that is tried again
	Rest  func()          // once after connections, when none is served
	End   func() error    // when the idle time has passed
	// Accepted is called with the connections in their order, and what it returns at the same time as others.
	Accepted func(c *net.UnixConn) (serve func())
}

// Serve serves connections until none comes for the idle time, or ctx ends, and those that were accepted have been served.
func Serve(ctx context.Context, listener *net.UnixListener, s Serving) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var conns sync.WaitGroup
	defer conns.Wait()
	slots := make(chan struct{}, s.Most)
	last, served := time.Now(), true //nolint:forbidigo // the kernel's clock, for deadlines
	for ctx.Err() == nil {
		slots <- struct{}{}
		if err := listener.SetDeadline(time.Now().Add(min(s.Idle, s.Every))); err != nil { //nolint:forbidigo // likewise
			return err
		}
		conn, err := listener.AcceptUnix()
		s.Tick()
		switch now := time.Now(); { //nolint:forbidigo // likewise
		case errors.Is(err, os.ErrDeadlineExceeded):
			<-slots
			if served && len(slots) == 0 {
				s.Rest()
				served = false
			}
			if len(slots) > 0 {
				last = now
			} else if now.Sub(last) >= s.Idle {
				return s.End()
			}
			continue
		case err != nil && durable.IsFault(err):
			<-slots
			s.Fault(err)
			time.Sleep(s.Every / 10) //nolint:forbidigo // the kernel has no event for it
			continue
		case err != nil:
			<-slots
			return err
		default:
			last, served = now, true
		}
		serve := s.Accepted(conn)
		conns.Go(func() {
			defer func() { <-slots }()
			serve()
		})
	}
	return nil
}

// Inherited returns the socket that a service manager listens on for this process, as descriptor 3. The path stays when it is closed.
func Inherited() (*net.UnixListener, error) {
	syscall.CloseOnExec(3)
	listener, err := net.FileListener(os.NewFile(3, "socket"))
	if err != nil {
		return nil, fmt.Errorf("descriptor 3 is not the socket to serve: %w", err)
	}
	socket, ok := listener.(*net.UnixListener)
	if !ok {
		return nil, errors.New("descriptor 3 is not a unix socket")
	}
	socket.SetUnlinkOnClose(false)
	return socket, nil
}
