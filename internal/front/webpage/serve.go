// Package webpage serves the page: runs, dispatches, what waits for people, and the
// log, for a browser on this machine.
//
// It is a client of the service as the local account, and holds no state and no key.
// It listens on loopback only, and answers only the account that runs it and
// browsers that were given a code on its terminal. It reads; with Steer it also makes
// the calls of the CLI that steer a run. It never decides: approvals are signed
// elsewhere. What a browser sends is parsed, and never forwarded as it is. What the
// service answers is text wherever it is shown.
package webpage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"golang.org/x/time/rate"

	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/base/httpguard"
)

// DefaultAddress is where the page is served unless another address is given. Browsers
// keep cookies and permissions by it.
const DefaultAddress = "127.0.0.1:7718"

// Config says where and for whom to serve.
type Config struct {
	Conn    *client.Conn // to the service
	UID     int          // of the account that may connect
	Now     func() time.Time
	Logger  *slog.Logger
	Address string // HOST:PORT, of --addr
	Steer   bool   // serve the forms that steer a run, too
	// SignAddress is where the signing page is served, of --sign-addr; empty: nowhere. A
	// passkey is for one port, so it should stay the same.
	SignAddress string
	Control     string // path of the unix socket that gives codes to bailiwick web open
	// Listening is called with the URL and a code once browsers can connect; may be nil.
	Listening func(Invitation)

	// For tests; the zero values are the real ones.
	lookup  func(context.Context, string) ([]netip.Addr, error)
	without guard // the guard that is off; empty: none
}

// guard names a check, for the tests that show what it refuses.
type guard string

const (
	guardPeer    guard = "peer"
	guardHost    guard = "host"
	guardFetch   guard = "fetch"
	guardSession guard = "session"
	guardHeaders guard = "headers"
	guardToken   guard = "token"
)

const (
	headerTime   = 5 * time.Second
	bodyTime     = 30 * time.Second
	idleTime     = time.Minute
	shutdownTime = 5 * time.Second
)

// Serve answers browsers until ctx is done. It refuses an address that other machines
// can reach.
func Serve(ctx context.Context, cfg Config) error {
	if cfg.lookup == nil {
		cfg.lookup = egress.Lookup
	}
	address, err := httpguard.ParseAddress("--addr", cfg.Address)
	if err == nil && !address.Loopback() {
		err = fmt.Errorf("--addr %s: the page is served on this machine only: use 127.0.0.1, ::1 or localhost", cfg.Address)
	}
	if err == nil {
		err = address.Resolve(ctx, cfg.lookup)
	}
	if err != nil {
		return err
	}
	s, err := newSite(cfg)
	if err != nil {
		return err
	}
	sign, err := s.listenSign(ctx)
	if err != nil {
		return err
	}
	control, err := httpguard.ListenUnix(cfg.Control)
	if err != nil {
		return fmt.Errorf("%s: %w", cfg.Control, err)
	}
	listeners, err := address.Listen(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("--addr %s: %w", cfg.Address, err), closeControl(control, cfg.Control))
	}
	s.hosts.Add(address, false) // the port is known only now
	s.url = "http://" + address.HostPort() + "/"
	server := s.server(ctx, s)
	failed := make(chan error, len(listeners)+8)
	for _, l := range listeners {
		go func() { failed <- server.Serve(s.listener(l)) }()
	}
	var signing *http.Server
	if sign != nil {
		signing = s.server(ctx, sign.site)
		for _, l := range sign.listeners {
			go func() { failed <- signing.Serve(s.listener(l)) }()
		}
	}
	go func() { failed <- s.giveCodes(control) }()
	if cfg.Listening != nil {
		cfg.Listening(s.invite())
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	return errors.Join(err, closeControl(control, cfg.Control), shutdown(server), shutdown(signing)) //nolint:contextcheck // ctx is done by now
}

// server returns the server of the page or of the signing page.
func (s *site) server(ctx context.Context, handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: httpguard.MaxHeaderBytes,
		ErrorLog:    slog.NewLogLogger(s.Logger.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx }, // ends streams at the shutdown
	}
}

// listener is l with the guards of connections.
func (s *site) listener(l net.Listener) net.Listener {
	if s.without == guardPeer {
		return l
	}
	return &httpguard.LocalListener{Listener: l, UID: s.UID, Refused: s.logRefused()}
}

// logRefused returns a function that logs refused connections: five at once, then one in
// ten seconds with the number of those in between.
func (s *site) logRefused() func(error) {
	limit, omitted := rate.NewLimiter(rate.Every(10*time.Second), 5), 0
	return func(err error) { // called by the one goroutine that accepts
		if !limit.AllowN(s.Now(), 1) {
			omitted++
			return
		}
		s.Logger.LogAttrs(context.Background(), slog.LevelWarn, "refused a connection", slog.Any("err", err), slog.Int("omitted", omitted))
		omitted = 0
	}
}

// closeControl removes the socket: nothing gives codes any more.
func closeControl(l net.Listener, path string) error {
	return errors.Join(l.Close(), os.Remove(path))
}

// shutdown waits a moment for answers under way, then closes all connections.
func shutdown(server *http.Server) error {
	if server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		return server.Close()
	}
	return nil
}
