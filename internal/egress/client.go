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

// DialFunc opens a connection, as the method DialContext of a Dialer does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// ClientConfig is how an HTTP client works. The zero value is usable.
type ClientConfig struct {
	Dial      DialFunc       // nil: that of Public(Config{})
	Timeout   time.Duration  // for an exchange, its body included; 0: 10 seconds
	MaxBody   int64          // bytes of an answer that are read; 0: 1 MiB
	Redirects int            // that are followed; 0: none
	Roots     *x509.CertPool // who may vouch for a host; nil: whom the system trusts
}

const (
	defaultMaxBody = 1 << 20
	maxHeader      = 32 << 10
	maxIdle        = 32
	idleTime       = 30 * time.Second
)

// Client returns an HTTP client for what is elsewhere. It speaks HTTPS alone,
// also after a redirect, takes no proxy from anywhere, decompresses nothing, and
// is bounded in every direction. An answer that is longer than it may be is an
// error of its reader, never a short answer.
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
		Transport: &judged{Transport: t, maxBody: cfg.MaxBody},
		Timeout:   cfg.Timeout,
		CheckRedirect: func(_ *http.Request, via []*http.Request) error {
			if len(via) > cfg.Redirects {
				return fmt.Errorf("%w: a redirect beyond the %d that are followed", ErrRefused, cfg.Redirects)
			}
			return nil
		},
	}
}

// Local returns an HTTP client for a service that dial reaches whatever the URL
// says, which is how it is with a unix socket. It follows no redirect and takes
// no proxy; time and size are the caller's to bound.
func Local(dial DialFunc) *http.Client {
	return &http.Client{
		Transport:     transport(dial),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
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

// judged refuses a request by its URL before anything else sees it. The first
// one and those that redirects lead to come by here alike.
type judged struct {
	*http.Transport // also for CloseIdleConnections
	maxBody         int64
}

func (j *judged) RoundTrip(r *http.Request) (*http.Response, error) {
	err := CheckHost(r.URL.Hostname())
	switch {
	case r.URL.Scheme != "https":
		err = fmt.Errorf("%w: scheme %.20q is not https", ErrRefused, r.URL.Scheme)
	case r.URL.User != nil:
		err = fmt.Errorf("%w: the URL has a user", ErrRefused)
	}
	if err != nil {
		if r.Body != nil {
			err = errors.Join(err, r.Body.Close()) // a RoundTripper always closes it
		}
		return nil, err
	}
	resp, err := j.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = &bounded{ReadCloser: resp.Body, left: j.maxBody}
	return resp, nil
}

// bounded reads as many bytes as there may be, and fails at the next.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, errTooLong
	}
	// One byte more than there may be tells the end from too much.
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	b.left -= int64(n)
	if b.left < 0 {
		return n - 1, errTooLong
	}
	return n, err
}

var errTooLong = fmt.Errorf("%w: the answer is longer than it may be", ErrRefused)
