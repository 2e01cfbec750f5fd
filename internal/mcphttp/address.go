package mcphttp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// listenAddress is where to listen.
type listenAddress struct {
	host  string // as given: an IP address, localhost, or "" for all
	addrs []netip.Addr
	port  uint16
}

// loopback reports whether only this machine can reach the address. It compares
// the text: another address of 127.0.0.0/8, or an IPv4-mapped one, is an address
// like any other.
func (a listenAddress) loopback() bool {
	return a.host == "127.0.0.1" || a.host == "::1" || a.host == "localhost"
}

// parseAddress reads HOST:PORT. It refuses names, whose addresses can change,
// except localhost, which resolve checks.
func parseAddress(s string) (listenAddress, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return listenAddress{}, fmt.Errorf("--http %q: want HOST:PORT, such as 127.0.0.1:7717", s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return listenAddress{}, fmt.Errorf("--http %q: port %q: want a number up to 65535", s, port)
	}
	a := listenAddress{host: host, port: uint16(n)} //nolint:gosec // G115: 16 bits
	switch host {
	case "localhost":
	case "":
		a.addrs = []netip.Addr{netip.IPv6Unspecified()}
	default:
		addr, err := netip.ParseAddr(host)
		if err != nil {
			return a, fmt.Errorf("--http %q: host %q: want an IP address or localhost", s, host)
		}
		a.addrs = []netip.Addr{addr}
	}
	return a, nil
}

// resolve looks up localhost; each of its addresses must be loopback.
func (a *listenAddress) resolve(ctx context.Context, lookup func(context.Context, string) ([]netip.Addr, error)) error {
	if a.host != "localhost" {
		return nil
	}
	found, err := lookup(ctx, a.host)
	if err != nil || len(found) == 0 {
		return errors.New("--http: localhost has no address on this machine: use 127.0.0.1 or ::1")
	}
	a.addrs = nil
	for _, addr := range found {
		if addr = addr.Unmap(); !addr.IsLoopback() {
			return fmt.Errorf("--http: localhost resolves to %s, which is not loopback: use 127.0.0.1 or ::1, or correct /etc/hosts", addr)
		}
		if !slices.Contains(a.addrs, addr) {
			a.addrs = append(a.addrs, addr)
		}
	}
	return nil
}

// listen opens one socket for each address. If the port is 0, the system's
// choice for the first address is used for all.
func (a *listenAddress) listen(ctx context.Context) ([]net.Listener, error) {
	var all []net.Listener
	var config net.ListenConfig
	for _, addr := range a.addrs {
		l, err := config.Listen(ctx, "tcp", netip.AddrPortFrom(addr, a.port).String())
		if err != nil {
			for _, l := range all {
				err = errors.Join(err, l.Close())
			}
			return nil, err
		}
		if tcp, ok := l.Addr().(*net.TCPAddr); ok && a.port == 0 {
			a.port = uint16(tcp.Port) //nolint:gosec // G115: a port
		}
		all = append(all, l)
	}
	return all, nil
}

// hostPort returns HOST:PORT as in a URL.
func (a listenAddress) hostPort() string {
	host := a.host
	if host == "" {
		host = "::"
	}
	return net.JoinHostPort(host, strconv.Itoa(int(a.port)))
}

// loadTLS reads a certificate and its key. It returns nil without files: plain
// HTTP.
func loadTLS(cert, key string) (*tls.Config, error) {
	if cert == "" && key == "" {
		return nil, nil
	}
	if cert == "" || key == "" {
		return nil, errors.New("--tls-cert and --tls-key: give both")
	}
	info, err := os.Stat(key)
	if err != nil {
		return nil, fmt.Errorf("--tls-key: %w", err)
	}
	if info.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("--tls-key %s: readable or writable by everyone (mode %#o): chmod o= %s", key, info.Mode().Perm(), key)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", cert, key, err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}, nil
}

// hostList is the set of accepted Host headers.
type hostList struct {
	exact   map[string]bool // HOST or HOST:PORT in lower case
	anyPort map[string]bool // HOST with any port or none: a proxy may have another
}

// newHostList accepts the hosts that the operator names.
func newHostList(allowed []string) (hostList, error) {
	l := hostList{exact: map[string]bool{}, anyPort: map[string]bool{}}
	for _, s := range allowed {
		host, withPort := s, false
		if h, p, err := net.SplitHostPort(s); err == nil {
			if _, err := strconv.ParseUint(p, 10, 16); err != nil {
				return l, fmt.Errorf("--allow-host %q: port %q: want a number up to 65535", s, p)
			}
			host, withPort = h, true
		}
		if !isHost(strings.Trim(host, "[]")) {
			return l, fmt.Errorf("--allow-host %q: want a host name or IP address, with or without a port", s)
		}
		if withPort {
			l.exact[strings.ToLower(s)] = true
		} else {
			l.anyPort[strings.ToLower(strings.Trim(host, "[]"))] = true
		}
	}
	return l, nil
}

// add accepts the listening address itself. Clients omit the default port.
func (l hostList) add(a listenAddress, secure bool) {
	hosts := []string{"127.0.0.1", "::1", "localhost"}
	if !a.loopback() {
		if hosts = nil; !a.addrs[0].IsUnspecified() {
			hosts = []string{a.addrs[0].WithZone("").String()}
		}
	}
	port := strconv.Itoa(int(a.port))
	for _, h := range hosts {
		with := net.JoinHostPort(h, port)
		l.exact[with] = true
		if a.port == 80 && !secure || a.port == 443 && secure {
			l.exact[strings.TrimSuffix(with, ":"+port)] = true
		}
	}
}

// isHost reports whether s has the form of a host name or an IP address.
func isHost(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	return s != "" && len(s) < 254 && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789-.") == "" && !strings.HasPrefix(s, ".") && !strings.HasSuffix(s, ".")
}

// allows checks a Host header.
func (l hostList) allows(header string) bool {
	header = strings.ToLower(header)
	if l.exact[header] {
		return true
	}
	host := header
	if h, p, err := net.SplitHostPort(header); err == nil {
		if strings.Trim(p, "0123456789") != "" || p == "" {
			return false
		}
		if host = h; strings.Contains(h, ":") {
			host = "[" + h + "]"
		}
		if !strings.HasPrefix(header, host) { // brackets around something other than IPv6
			return false
		}
	}
	// IPv6 addresses need brackets, and nothing else may have them.
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if host, ok = strings.CutSuffix(inner, "]"); !ok || !strings.Contains(host, ":") {
			return false
		}
	} else if strings.Contains(host, ":") {
		return false
	}
	return l.anyPort[host]
}
