package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
)

// connect answers CONNECT HOST:PORT. The tunnel carries TLS to that host or, if it is
// not TLS, HTTP/1.1, whose requests are checked one by one.
func (b *Broker) connect(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close") // of a refused one; the next may be a tunnel again
	t, err := parseTarget(r.Host, "")
	if err != nil {
		b.refuse(w, b.begin(formConnect, r.Host, "", ""), err.Error())
		return
	}
	x := b.begin(formConnect, t.String(), "", "")
	why := badConnect(r)
	if why == "" {
		why = b.mayReach(x, t)
	}
	if why != "" {
		b.refuse(w, x, why)
		return
	}
	var up net.Conn
	if !b.vault.ends(t) {
		if up, err = b.cfg.Dial(r.Context(), "tcp", t.String()); err != nil {
			b.fail(w, x, err)
			return
		}
		defer up.Close() //nolint:errcheck // the tunnel reports its end
	}
	c, err := hijack(w, t)
	if err != nil {
		x.end(err)
		return
	}
	if err = c.SetDeadline(b.cfg.Now().Add(b.cfg.bounds.head)); err == nil {
		_, err = io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
	}
	x.line.Status = http.StatusOK
	if err == nil {
		err = b.tunnel(x, t, c, up)
	} else {
		_ = c.Close()
	}
	x.end(err)
}

// badConnect says why a CONNECT request is refused whatever its target, or returns the
// empty text.
func badConnect(r *http.Request) string {
	if r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
		return "a CONNECT request has no body"
	}
	return headOf(r.Context()).problem
}

// mayReach says why t is refused, or returns the empty text.
func (b *Broker) mayReach(x *exchange, t target) string {
	if why := x.over(); why != "" {
		return why
	}
	if !matches(b.rules, t) {
		return "it is not in the egress list of this dispatch"
	}
	if err := b.quota.request(t); err != nil {
		return err.Error()
	}
	return ""
}

// tunnel serves what follows the answer to CONNECT. It closes c, or hands it to the
// server of tunnels. up is nil if the broker ends TLS.
func (b *Broker) tunnel(x *exchange, t target, c *tunnelConn, up net.Conn) error {
	first, err := c.r.Peek(1)
	if err != nil {
		return errors.Join(ignoreEOF(err), c.Close())
	}
	if first[0] != recordHandshake {
		if up == nil {
			x.refused(http.StatusForbidden, "a brokered secret is for this host, which is therefore reached by TLS only")
			return c.Close()
		}
		c.scheme, x.ended = "http", true // each request has its own line
		return b.give(c, c)
	}
	hello, name, err := peekHello(b.ctx, c.r)
	if err == nil {
		err = checkName(name, t)
	}
	if err != nil {
		x.refused(http.StatusForbidden, err.Error())
		_, _ = c.Write([]byte(alertUnrecognized))
		return c.Close()
	}
	c.early = hello
	if up == nil {
		return b.endTLS(x, t, c)
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return errors.Join(err, c.Close())
	}
	return b.splice(x, t, c, up)
}

// alertUnrecognized is a fatal TLS alert, unrecognized_name.
const alertUnrecognized = "\x15\x03\x03\x00\x02\x02\x70"

// endTLS ends the TLS of a tunnel to t with the attempt's own CA.
func (b *Broker) endTLS(x *exchange, t target, c *tunnelConn) error {
	s := tls.Server(c, &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return b.vault.authority.leaf(t)
		},
	})
	ctx, cancel := context.WithTimeout(b.ctx, b.cfg.bounds.head)
	defer cancel()
	if err := s.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return fmt.Errorf("TLS with the agent (does it trust the dispatch's own CA?): %w", err)
	}
	c.scheme, x.ended = "https", true // each request has its own line
	return b.give(c, s)
}

// give hands a tunnel to its server, which sets deadlines of its own.
func (b *Broker) give(c *tunnelConn, to net.Conn) error {
	if err := c.SetDeadline(time.Time{}); err != nil {
		return errors.Join(err, c.Close())
	}
	return b.inside.give(to)
}

// fail answers an allowed request that failed. What the egress filter refuses is a
// refused request.
func (b *Broker) fail(w http.ResponseWriter, x *exchange, err error) {
	if errors.Is(err, egress.ErrRefused) {
		b.refuse(w, x, err.Error())
		return
	}
	x.line.Status = http.StatusBadGateway
	x.end(err)
	http.Error(w, fmt.Sprintf("bailiwick: %s: %s", x.line.Host, x.line.Error), http.StatusBadGateway)
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
