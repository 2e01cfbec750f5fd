package daemoncli

import (
	"context"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

// Supervisor is the service manager that started this process; the zero value means that nothing did.
type Supervisor struct {
	Notify   func(state string) error // sd_notify; nil: no messages are sent
	Watchdog time.Duration            // it ends a service that is silent for so long; 0: never
	Sockets  []*os.File               // listening sockets that it passed on
}

// The messages to a service manager, as sd_notify(3) defines them.
const (
	notifyReady    = "READY=1"
	notifyStopping = "STOPPING=1"
	notifyAlive    = "WATCHDOG=1"
)

// tell tells the service manager a state. A service that cannot tell is still one.
func (t *tree) tell(logger *slog.Logger, state string) {
	if t.Supervisor.Notify == nil {
		return
	}
	if err := t.Supervisor.Notify(state); err != nil {
		logger.WarnContext(context.Background(), "the service manager was not told", slog.String("state", state), slog.Any("error", err))
	}
}

// passed returns the listener for path that the service manager passed, or nil if it
// passed none. It refuses sockets for other paths: callers would wait there in vain.
func (t *tree) passed(path string) (own *net.UnixListener, err error) {
	for _, f := range t.Supervisor.Sockets {
		l, err := net.FileListener(f)
		if err != nil {
			return nil, api.Errorf(api.CodeInvalid, "socket %s of the service manager: %w", f.Name(), err)
		}
		u, ok := l.(*net.UnixListener)
		if !ok || u.Addr().String() != path || own != nil {
			_ = l.Close()
			return nil, api.Errorf(api.CodeInvalid, "socket %s of the service manager listens on %s, want one on %s", f.Name(), l.Addr(), path).WithHint("compare ListenStream= of the socket unit")
		}
		u.SetUnlinkOnClose(false)
		own = u
	}
	return own, nil
}

// watch tells the watchdog of the service manager that the service answers, until ctx
// ends. It asks as every caller does, by the socket: a service that accepts no
// connection, or is stuck, is silent. It answers also while its disk is full.
func (t *tree) watch(ctx context.Context, logger *slog.Logger, socket string) {
	every := t.Supervisor.Watchdog / 3
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := t.ask(ctx, every, socket); err == nil {
			t.tell(logger, notifyAlive)
		} else if ctx.Err() == nil {
			logger.WarnContext(ctx, "the service does not answer itself", slog.Any("error", err))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// ask returns the error of a service that does not answer in time. An answer that says
// why it cannot serve is one.
func (t *tree) ask(ctx context.Context, limit time.Duration, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn := client.New(client.Config{Socket: socket, UIDs: append([]int{t.UID}, t.UIDs...)})
	defer conn.Close()
	_, err := conn.Operator().Status(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if client.NoService(err) {
		return err
	}
	return nil
}

// supervised starts the notifications to the service manager, and
// returns what ends it.
func (t *tree) supervised(ctx context.Context, logger *slog.Logger, socket string) (end func()) {
	if t.Supervisor.Notify == nil || t.Supervisor.Watchdog <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); t.watch(ctx, logger, socket) }()
	return func() { cancel(); <-done }
}
