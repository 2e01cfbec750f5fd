package broker

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

// recordHandshake is the first byte of a TLS connection: the type of a record.
const recordHandshake = 0x16

// extensionECH hides the name of the server from the broker (RFC 9849 §5).
const extensionECH = 0xfe0d

// peekHello reads the ClientHello of a TLS connection from r. It returns all that it
// has read, also with an error, and the name of the server, empty if there is no such
// extension.
func peekHello(ctx context.Context, r io.Reader) (read []byte, name string, err error) {
	in := &helloConn{r: io.LimitReader(r, maxHello)}
	var hello *tls.ClientHelloInfo
	stop := errors.New("stop")
	err = tls.Server(in, &tls.Config{ //nolint:gosec // no handshake takes place
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			hello = h
			return nil, stop
		},
	}).HandshakeContext(ctx)
	switch {
	case hello == nil && in.read.Len() >= maxHello:
		err = fmt.Errorf("the TLS ClientHello is larger than %d bytes", maxHello)
	case hello == nil:
		err = fmt.Errorf("no TLS ClientHello: %w", err)
	case slices.Contains(hello.Extensions, extensionECH):
		err = errors.New("the TLS ClientHello has an encrypted name (ECH), which cannot be checked; switch ECH off in the client")
	default:
		return in.read.Bytes(), strings.ToLower(hello.ServerName), nil
	}
	return in.read.Bytes(), "", err
}

// checkName says why the name in a ClientHello does not fit the target of a tunnel.
func checkName(name string, t target) error {
	switch {
	case t.isAddress() && name != "":
		return fmt.Errorf("the TLS ClientHello names the server %.260q, but the tunnel is to an address", name)
	case t.isAddress() || name == t.host:
		return nil
	case name == "":
		return errors.New("the TLS ClientHello names no server (SNI)")
	}
	return fmt.Errorf("the TLS ClientHello names another server, %.260q", name)
}

// helloConn keeps what it reads and sends nothing.
type helloConn struct {
	r    io.Reader
	read bytes.Buffer
}

func (c *helloConn) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	_, _ = c.read.Write(p[:n]) // a buffer takes everything
	return n, err
}

func (*helloConn) Write(p []byte) (int, error)      { return len(p), nil }
func (*helloConn) Close() error                     { return nil }
func (*helloConn) LocalAddr() net.Addr              { return nil }
func (*helloConn) RemoteAddr() net.Addr             { return nil }
func (*helloConn) SetDeadline(time.Time) error      { return nil }
func (*helloConn) SetReadDeadline(time.Time) error  { return nil }
func (*helloConn) SetWriteDeadline(time.Time) error { return nil }
