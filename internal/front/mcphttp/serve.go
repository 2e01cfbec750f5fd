// Package mcphttp serves the tools of mcpserve over streamable HTTP.
//
// It is opt-in and refuses to start where a mistake would expose the tools. It
// decides nothing: the service authenticates each request and authorises each
// call. This package bounds what a client can take, checks Host and Origin,
// follows the framing of each connection before net/http parses it, and binds
// sessions and declared ceilings to the client that opened them.
//
// It carries R-T2 to R-T6.
package mcphttp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/time/rate"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/base/httpguard"
	"github.com/bailiwick-dev/bailiwick/internal/front/mcpserve"
)

// Config says where and how to serve.
type Config struct {
	Conn   *client.RuntimeConn // to the service
	Now    func() time.Time
	Logger *slog.Logger

	Address      string // HOST:PORT, of --http
	Acknowledged string // value of BAILIWICK_HTTP_ALLOW_ANY
	Cert, Key    string // TLS files
	Hosts        []string
	Origins      []string
	Issuer       string // OAuth issuer whose tokens the service also accepts
	Resource     string // URL of this server, as tokens of Issuer name it
	Rate         int    // requests a second of one principal; 0: DefaultRate
	// Listening is called with the URL once clients can connect; may be nil.
	Listening func(url string)

	// For tests; the zero values are the real ones.
	lookup   func(context.Context, string) ([]netip.Addr, error)
	selfTest func(context.Context) error
	limits   *limits
}

// AcknowledgementName is the variable that an operator sets to Acknowledgement
// to serve on an address that other machines can reach.
const (
	AcknowledgementName = "BAILIWICK_HTTP_ALLOW_ANY"
	Acknowledgement     = "yes-i-understand-the-risk"
)

// limits bound what one client can take.
type limits struct {
	headerTime, bodyTime, idleTime, writeTime, failureDelay, shutdownTime time.Duration

	connections  int
	perPrincipal int // concurrent requests, and pinned connections, of one principal
	failureBurst int // failed authentications that are answered without delay
}

func defaultLimits() limits {
	return limits{
		headerTime: 5 * time.Second, bodyTime: 30 * time.Second, idleTime: time.Minute, writeTime: 30 * time.Second,
		failureDelay: time.Second, shutdownTime: 10 * time.Second, connections: 256, perPrincipal: 64, failureBurst: 10,
	}
}

const (
	// DefaultRate is how many requests a second one principal may make.
	DefaultRate = 50
	maxRate     = 1_000_000
)

// Serve answers MCP clients until ctx is done. Before it listens it checks, in
// this order: a client token exists; the address is loopback, or the operator
// acknowledged the risk and configured TLS; the audit log is writable; the
// egress filter works. Each refusal is one line that names the fix.
func Serve(ctx context.Context, cfg Config) error {
	address, e, err := prepare(&cfg)
	if err != nil {
		return err
	}
	secure, err := permit(ctx, cfg, &address)
	if err != nil {
		return err
	}
	listeners, err := address.Listen(ctx)
	if err != nil {
		return fmt.Errorf("--http %s: %w", cfg.Address, err)
	}
	e.hosts.Add(address, secure != nil) // the port is known only now
	server := &http.Server{
		Handler: e, ReadHeaderTimeout: cfg.limits.headerTime, IdleTimeout: cfg.limits.idleTime, MaxHeaderBytes: httpguard.MaxHeaderBytes,
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { failed <- server.Serve(&listener{Listener: l, pool: e.pool, secure: secure}) }()
	}
	if cfg.Listening != nil {
		scheme := "http://"
		if secure != nil {
			scheme = "https://"
		}
		cfg.Listening(scheme + address.HostPort() + Path)
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	return errors.Join(err, shutdown(server, cfg.limits.shutdownTime)) //nolint:contextcheck // ctx is done by now
}

// shutdown waits up to timeout for answers under way, then closes all
// connections.
func shutdown(server *http.Server, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		return server.Close()
	}
	return nil
}

// prepare fills in defaults and refuses malformed flags.
func prepare(cfg *Config) (httpguard.Address, *edge, error) {
	if cfg.limits == nil {
		l := defaultLimits()
		cfg.limits = &l
	}
	if cfg.lookup == nil {
		cfg.lookup = egress.Lookup
	}
	if cfg.selfTest == nil {
		cfg.selfTest = egress.SelfTest
	}
	if cfg.Rate == 0 {
		cfg.Rate = DefaultRate
	}
	address, err := httpguard.ParseAddress("--http", cfg.Address)
	if err != nil {
		return address, nil, err
	}
	if cfg.Rate < 1 || cfg.Rate > maxRate {
		return address, nil, fmt.Errorf("--rate %d: want 1 to %d", cfg.Rate, maxRate)
	}
	hosts, err := httpguard.NewHostList(cfg.Hosts)
	if err != nil {
		return address, nil, err
	}
	origins, err := newOrigins(cfg.Origins)
	if err != nil {
		return address, nil, err
	}
	meta, err := newMetadata(cfg.Issuer, cfg.Resource)
	if err != nil {
		return address, nil, err
	}
	tools, err := mcpserve.New(mcpserve.Config{Conn: cfg.Conn, Now: cfg.Now, Logger: cfg.Logger})
	if err != nil {
		return address, nil, err
	}
	now, l := cfg.Now, cfg.limits
	return address, &edge{
		hosts: hosts, origins: origins, metadata: meta, auth: newAuthenticator(cfg.Conn, tools.ForCaller, now),
		failures: &failures{
			now: now, delay: l.failureDelay, warnings: rate.NewLimiter(warningRate, 3), prompt: rate.NewLimiter(failureRate, l.failureBurst),
		},
		throttle: newThrottle(cfg.Rate, l.perPrincipal, now), sessions: newSessions(now), pool: newPool(l.connections, l.perPrincipal, l.writeTime, now),
		bodyTime: l.bodyTime, now: now, logger: cfg.Logger, sdk: newSDKHandler(mcpserve.DebugLogger(cfg.Logger)),
	}, nil
}

// permit makes the checks of R-T2 in their fixed order.
func permit(ctx context.Context, cfg Config, address *httpguard.Address) (secure *tls.Config, err error) {
	ready, err := cfg.Conn.Runtime().HTTPReady(ctx)
	if err != nil {
		why := err.Error()
		if e, ok := errors.AsType[*api.Error](err); ok {
			why = e.Message // its hint would be a second line
		}
		return nil, fmt.Errorf("--http: cannot reach the service, which verifies client tokens (%s): run %s, or name its socket with --socket", why, client.HowToStart(err))
	}
	if !ready.Token {
		return nil, errors.New("--http: no client token is valid, so every request would be refused: run bailiwick token create PRINCIPAL")
	}
	if !address.Loopback() && cfg.Acknowledged != Acknowledgement {
		return nil, fmt.Errorf("--http %s: other machines can reach this address: use 127.0.0.1, ::1 or localhost, or set %s=%s", cfg.Address, AcknowledgementName, Acknowledgement)
	}
	if err := address.Resolve(ctx, cfg.lookup); err != nil {
		return nil, err
	}
	if secure, err = loadTLS(cfg.Cert, cfg.Key, cfg.Now, cfg.Logger); err != nil {
		return nil, err
	}
	if !address.Loopback() && secure == nil {
		return nil, fmt.Errorf("--http %s: tokens would cross the network unencrypted: add --tls-cert FILE and --tls-key FILE", cfg.Address)
	}
	if !address.Loopback() && address.Addrs[0].IsUnspecified() && len(cfg.Hosts) == 0 {
		return nil, fmt.Errorf("--http %s: requests for any host name reach this address: list the names to accept with --allow-host NAME", cfg.Address)
	}
	if !ready.Audit {
		return nil, errors.New("--http: the audit log cannot be written, so requests would not be recorded: run bailiwick doctor")
	}
	if err := cfg.selfTest(ctx); err != nil {
		return nil, fmt.Errorf("--http: the egress filter failed its self-test on this machine: use stdio, or fix the cause: %w", err)
	}
	return secure, nil
}
