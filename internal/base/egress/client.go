package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// DialFunc opens a connection, as Dialer.DialContext does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// ClientConfig configures an HTTP client. The zero value is usable.
type ClientConfig struct {
	Dial      DialFunc       // nil: Public(Config{}).DialContext
	Timeout   time.Duration  // of an exchange including its body; 0: 10 seconds
	MaxBody   int64          // largest response body in bytes; 0: 1 MiB
	Redirects int            // maximum number to follow
	Roots     *x509.CertPool // nil: the system's
	Allow     func() bool    // asked before each request, which it can refuse; nil: always
}

const (
	defaultMaxBody = 1 << 20
	maxHeader      = 32 << 10
	maxRelayHeader = 256 << 10
	relayBuffer    = 32 << 10
	maxIdle        = 32
	idleTime       = 30 * time.Second
)

// Client returns an HTTP client for public hosts. It uses HTTPS only, also after a
// redirect, ignores proxy settings, does not decompress, and is bounded in time and
// size. Reading a body beyond MaxBody fails; it is never truncated.
func Client(cfg ClientConfig) *http.Client {
	if cfg.Dial == nil {
		cfg.Dial = Public(Config{}).DialContext
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.MaxBody == 0 {
		cfg.MaxBody = defaultMaxBody
	}
	t := transport(cfg.Dial)
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cfg.Roots}
	t.TLSHandshakeTimeout, t.ResponseHeaderTimeout = cfg.Timeout, cfg.Timeout
	return &http.Client{
		Transport: &checkedTransport{Transport: t, maxBody: cfg.MaxBody, allow: cfg.Allow},
		Timeout:   cfg.Timeout,
		CheckRedirect: func(_ *http.Request, via []*http.Request) error {
			if len(via) > cfg.Redirects {
				return fmt.Errorf("%w: more than %d redirects", ErrRefused, cfg.Redirects)
			}
			return nil
		},
	}
}

// Local returns an HTTP client for the service that dial connects to whatever the
// URL, such as a unix socket. It follows no redirects and ignores proxy settings;
// the caller bounds time and size.
func Local(dial DialFunc) *http.Client {
	return &http.Client{
		Transport:     transport(dial),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Remote returns an HTTP client for the service at the host that a person chose, over TLS
// 1.3 and HTTP/1.1. It verifies the server against roots, or the system's if nil, follows
// no redirects and ignores proxy settings; the caller bounds time and size.
func Remote(roots *x509.CertPool) *http.Client {
	t := transport(Chosen().DialContext)
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots}
	t.TLSHandshakeTimeout = defaultTimeout
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Relay returns a transport that passes on requests of others over HTTP/1.1 and
// HTTP/2. It follows no redirects, ignores proxy settings, does not decompress, and
// verifies servers of https URLs against roots, or the system's if nil; the caller
// bounds time and size.
func Relay(dial DialFunc, roots *x509.CertPool) *http.Transport {
	t := transport(dial)
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	t.TLSHandshakeTimeout = defaultTimeout
	t.ForceAttemptHTTP2 = true
	t.MaxResponseHeaderBytes = maxRelayHeader
	t.ReadBufferSize, t.WriteBufferSize = relayBuffer, relayBuffer
	return t
}

// overWindow is how much of an answer Over holds before it is read, in bytes.
const overWindow = 256 << 10

// Over returns a client of unencrypted HTTP/2 on a connection that the peer opened. It
// fails once the peer is silent for twice the time of ping. The caller closes it.
func Over(conn net.Conn, ping time.Duration) (*http.ClientConn, error) {
	t := transport(func(context.Context, string, string) (net.Conn, error) { return conn, nil })
	t.Protocols = new(http.Protocols)
	t.Protocols.SetUnencryptedHTTP2(true)
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: ping, PingTimeout: ping, WriteByteTimeout: ping, MaxReceiveBufferPerStream: overWindow}
	return t.NewClientConn(context.Background(), "http", "peer:80")
}

func transport(dial DialFunc) *http.Transport {
	return &http.Transport{
		DialContext:            dial,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTime,
	}
}

// checkedTransport checks the URL of each request, including redirected ones.
type checkedTransport struct {
	*http.Transport // provides CloseIdleConnections, too
	maxBody         int64
	allow           func() bool // may be nil
}

// ErrTooOften marks requests that ClientConfig.Allow refused.
var ErrTooOften = errors.New("too many requests: try again in some seconds")

func (t *checkedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	err := CheckHost(r.URL.Hostname())
	switch {
	case r.URL.Scheme != "https":
		err = fmt.Errorf("%w: scheme %.20q: want https", ErrRefused, r.URL.Scheme)
	case r.URL.User != nil:
		err = fmt.Errorf("%w: the URL contains a user", ErrRefused)
	case err == nil && t.allow != nil && !t.allow():
		err = ErrTooOften
	}
	if err != nil {
		if r.Body != nil {
			err = errors.Join(err, r.Body.Close()) // a RoundTripper must always close it
		}
		return nil, err
	}
	resp, err := t.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = &bounded{ReadCloser: resp.Body, left: t.maxBody}
	return resp, nil
}

// bounded reads up to a number of bytes and fails at the next one.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, errTooLong
	}
	// One byte more than the limit tells the end from too much.
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	b.left -= int64(n)
	if b.left < 0 {
		return n - 1, errTooLong
	}
	return n, err
}

var errTooLong = fmt.Errorf("%w: the response body is too large", ErrRefused)
