package mcpserve

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

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/egress"
)

// HTTPConfig is how the streamable HTTP transport is served. It is opt-in and
// fails closed (R-T2).
type HTTPConfig struct {
	Address      string // HOST:PORT, of --http
	Acknowledged string // BAILIWICK_HTTP_ALLOW_ANY
	Cert, Key    string // files
	Hosts        []string
	Origins      []string
	Issuer       string // whose tokens are good too
	Resource     string // our URL, as the issuer's tokens name it
	Rate         int    // requests a second of one principal; 0: 50
	// Listening is told the URL when clients can come. Nil: nobody is.
	Listening func(url string)

	// Of tests; nil or zero: what is used.
	lookup   func(context.Context, string) ([]netip.Addr, error)
	selfTest func(context.Context) error
	limits   *httpLimits
}

// acknowledgement is what an operator has to say to be reachable from elsewhere.
const (
	acknowledgementName = "BAILIWICK_HTTP_ALLOW_ANY"
	acknowledgement     = "yes-i-understand-the-risk"
)

// httpLimits bound what one client can take.
type httpLimits struct {
	headerTime, bodyTime, idleTime, writeTime, failedWait, endTime time.Duration

	connections int
	atOnce      int // requests of one principal, and connections that are kept for it
	failedBurst int // failures that are answered at once
}

func defaultHTTPLimits() httpLimits {
	return httpLimits{
		headerTime: 5 * time.Second, bodyTime: 30 * time.Second, idleTime: time.Minute, writeTime: 30 * time.Second,
		failedWait: time.Second, endTime: 10 * time.Second, connections: 256, atOnce: 64, failedBurst: 10,
	}
}

const (
	defaultRate = 50
	maxRate     = 1_000_000
	// maxHeaderBytes is what net/http is told so that it refuses with 431 at
	// maxHead: it allows as much more as headSlack.
	maxHeaderBytes = maxHead - headSlack
)

// HTTP answers MCP clients over HTTP until ctx is done. Before the first can
// come it makes sure, in this order, that there is a token that they could
// show, that the address is this machine's alone or somebody has said that it
// need not be and given it TLS, that the audit log can be written, and that the
// egress filter works. Each refusal is one line that names the fix.
func (s *Server) HTTP(ctx context.Context, cfg HTTPConfig) error {
	address, e, err := s.prepareHTTP(&cfg)
	if err != nil {
		return err
	}
	secure, err := s.permitHTTP(ctx, cfg, &address)
	if err != nil {
		return err
	}
	sockets, err := address.listen(ctx)
	if err != nil {
		return fmt.Errorf("--http %s: %w", cfg.Address, err)
	}
	e.hosts.add(address, secure != nil) // its port is known now
	server := &http.Server{
		Handler: e, ReadHeaderTimeout: cfg.limits.headerTime, IdleTimeout: cfg.limits.idleTime, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, guardKey{}, c)
		},
	}
	ended := make(chan error, len(sockets))
	for _, l := range sockets {
		go func() { ended <- server.Serve(&listener{Listener: l, floor: e.floor, secure: secure}) }()
	}
	if cfg.Listening != nil {
		scheme := "http://"
		if secure != nil {
			scheme = "https://"
		}
		cfg.Listening(scheme + address.text() + mcpPath)
	}
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	return errors.Join(err, endHTTP(server, cfg.limits.endTime)) //nolint:contextcheck // that of the server is over
}

// endHTTP lets answers that are under way end, and then ends them.
func endHTTP(server *http.Server, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		return server.Close()
	}
	return nil
}

// prepareHTTP refuses flags that are malformed.
func (s *Server) prepareHTTP(cfg *HTTPConfig) (httpAddress, *edge, error) {
	if cfg.limits == nil {
		limits := defaultHTTPLimits()
		cfg.limits = &limits
	}
	if cfg.lookup == nil {
		cfg.lookup = egress.Lookup
	}
	if cfg.selfTest == nil {
		cfg.selfTest = egress.SelfTest
	}
	if cfg.Rate == 0 {
		cfg.Rate = defaultRate
	}
	address, err := parseHTTPAddress(cfg.Address)
	if err != nil {
		return address, nil, err
	}
	if cfg.Rate < 1 || cfg.Rate > maxRate {
		return address, nil, fmt.Errorf("--rate %d: want 1 to %d", cfg.Rate, maxRate)
	}
	hosts, err := newHostNames(cfg.Hosts)
	if err != nil {
		return address, nil, err
	}
	from, err := newOrigins(cfg.Origins)
	if err != nil {
		return address, nil, err
	}
	meta, err := newMetadata(cfg.Issuer, cfg.Resource)
	if err != nil {
		return address, nil, err
	}
	now, limits := s.cfg.Now, cfg.limits
	return address, &edge{
		hosts: hosts, origins: from, metadata: meta, holders: newHolders(s.cfg.Conn, s.forCaller, now),
		failures: &failures{wait: limits.failedWait, now: now, bucket: bucket{rate: failedRate, burst: float64(limits.failedBurst)}, said: bucket{rate: saidRate, burst: 3}},
		rates:    newRates(float64(cfg.Rate), limits.atOnce, now), sessions: newSessions(now), floor: newFloor(limits.connections, limits.atOnce, limits.writeTime, now),
		bodyTime: limits.bodyTime, now: now, logger: s.cfg.Logger, sdk: newSDKHandler(quiet(s.cfg.Logger)),
	}, nil
}

// permitHTTP is the order of R-T2.
func (s *Server) permitHTTP(ctx context.Context, cfg HTTPConfig, address *httpAddress) (secure *tls.Config, err error) {
	ready, err := s.cfg.Conn.Runtime().HTTPReady(ctx)
	if err != nil {
		why := err.Error()
		if e, ok := errors.AsType[*api.Error](err); ok {
			why = e.Message // without the hint, which is on a line of its own
		}
		return nil, fmt.Errorf("--http: the service, which knows the tokens, cannot be asked (%s): run bailiwick up, or name its socket with --socket", why)
	}
	if !ready.Token {
		return nil, errors.New("--http: there is no client token that is good, so nobody could come in: run bailiwick token create PRINCIPAL")
	}
	if !address.loopback() && cfg.Acknowledged != acknowledgement {
		return nil, fmt.Errorf("--http %s: others than this machine can reach that: name 127.0.0.1, ::1 or localhost, or set %s=%s", cfg.Address, acknowledgementName, acknowledgement)
	}
	if err := address.find(ctx, cfg.lookup); err != nil {
		return nil, err
	}
	if secure, err = loadTLS(cfg.Cert, cfg.Key); err != nil {
		return nil, err
	}
	if !address.loopback() && secure == nil {
		return nil, fmt.Errorf("--http %s: tokens would cross the network in the clear: add --tls-cert FILE and --tls-key FILE", cfg.Address)
	}
	if !address.loopback() && address.hosts[0].IsUnspecified() && len(cfg.Hosts) == 0 {
		return nil, fmt.Errorf("--http %s: a request may come for any name there: say which are yours with --allow-host NAME", cfg.Address)
	}
	if !ready.Audit {
		return nil, errors.New("--http: the audit log cannot be written, so what comes in would not be on record: see bailiwick doctor")
	}
	if err := cfg.selfTest(ctx); err != nil {
		return nil, fmt.Errorf("--http: the egress filter does not hold here, so nothing may be reached from elsewhere: use stdio: %w", err)
	}
	return secure, nil
}
