package mcpserve

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

// httpAddress is where to listen.
type httpAddress struct {
	name  string // as it was given: an address, or localhost
	hosts []netip.Addr
	port  uint16
}

// loopback reports whether only this machine can reach it. It is meant
// literally: another address of the loopback network, or a mapped one, is an
// address like any other.
func (a httpAddress) loopback() bool {
	return a.name == "127.0.0.1" || a.name == "::1" || a.name == "localhost"
}

// parseHTTPAddress reads HOST:PORT. A name is refused, since it may mean
// another address tomorrow; but for localhost, which find looks up.
func parseHTTPAddress(s string) (httpAddress, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return httpAddress{}, fmt.Errorf("--http %q: want HOST:PORT, such as 127.0.0.1:7717", s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return httpAddress{}, fmt.Errorf("--http %q: port %q: want a number up to 65535", s, port)
	}
	a := httpAddress{name: host, port: uint16(n)} //nolint:gosec // G115: 16 bits
	switch host {
	case "localhost":
	case "":
		a.hosts = []netip.Addr{netip.IPv6Unspecified()}
	default:
		h, err := netip.ParseAddr(host)
		if err != nil {
			return a, fmt.Errorf("--http %q: host %q: want an IP address or localhost", s, host)
		}
		a.hosts = []netip.Addr{h}
	}
	return a, nil
}

// find looks localhost up: every address that it has here must be loopback.
func (a *httpAddress) find(ctx context.Context, lookup func(context.Context, string) ([]netip.Addr, error)) error {
	if a.name != "localhost" {
		return nil
	}
	found, err := lookup(ctx, a.name)
	if err != nil || len(found) == 0 {
		return errors.New("--http: localhost has no address here: name 127.0.0.1 or ::1")
	}
	a.hosts = nil
	for _, h := range found {
		if h = h.Unmap(); !h.IsLoopback() {
			return fmt.Errorf("--http: localhost is %s here, which is not this machine alone: name 127.0.0.1 or ::1, or mend /etc/hosts", h)
		}
		if !slices.Contains(a.hosts, h) {
			a.hosts = append(a.hosts, h)
		}
	}
	return nil
}

// listen opens the sockets, one for each address; what the system chose for
// port 0 holds for all of them.
func (a *httpAddress) listen(ctx context.Context) ([]net.Listener, error) {
	var all []net.Listener
	var config net.ListenConfig
	for _, h := range a.hosts {
		l, err := config.Listen(ctx, "tcp", netip.AddrPortFrom(h, a.port).String())
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

// text is the host as it stands in a URL.
func (a httpAddress) text() string {
	host := a.name
	if host == "" {
		host = "::"
	}
	return net.JoinHostPort(host, strconv.Itoa(int(a.port)))
}

// loadTLS reads a certificate and its key. No files: nil, plain HTTP.
func loadTLS(cert, key string) (*tls.Config, error) {
	if cert == "" && key == "" {
		return nil, nil
	}
	if cert == "" || key == "" {
		return nil, errors.New("--tls-cert and --tls-key: name both")
	}
	info, err := os.Stat(key)
	if err != nil {
		return nil, fmt.Errorf("--tls-key: %w", err)
	}
	if info.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("--tls-key %s: everybody may read it (mode %#o): chmod o= %s", key, info.Mode().Perm(), key)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", cert, key, err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}, nil
}

// hostNames are the values that a Host header may have.
type hostNames struct {
	names  map[string]bool // lower-case, with a port
	always map[string]bool // with any port, or none: behind a proxy there is another
}

// newHostNames allows what the operator names.
func newHostNames(allowed []string) (hostNames, error) {
	n := hostNames{names: map[string]bool{}, always: map[string]bool{}}
	for _, s := range allowed {
		host, withPort := s, false
		if h, p, err := net.SplitHostPort(s); err == nil {
			if _, err := strconv.ParseUint(p, 10, 16); err != nil {
				return n, fmt.Errorf("--allow-host %q: port %q: want a number up to 65535", s, p)
			}
			host, withPort = h, true
		}
		if !isHost(strings.Trim(host, "[]")) {
			return n, fmt.Errorf("--allow-host %q: want a host name or address, and nothing else", s)
		}
		if withPort {
			n.names[strings.ToLower(s)] = true
		} else {
			n.always[strings.ToLower(strings.Trim(host, "[]"))] = true
		}
	}
	return n, nil
}

// add allows the address itself. Clients leave the port out where it is the
// usual one.
func (n hostNames) add(a httpAddress, secure bool) {
	names := []string{"127.0.0.1", "::1", "localhost"}
	if !a.loopback() {
		if names = nil; !a.hosts[0].IsUnspecified() {
			names = []string{a.hosts[0].WithZone("").String()}
		}
	}
	port := strconv.Itoa(int(a.port))
	for _, h := range names {
		with := net.JoinHostPort(h, port)
		n.names[with] = true
		if a.port == 80 && !secure || a.port == 443 && secure {
			n.names[strings.TrimSuffix(with, ":"+port)] = true
		}
	}
}

// isHost reports whether s is written like a host name or an address.
func isHost(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	return s != "" && len(s) < 254 && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789-.") == "" && !strings.HasPrefix(s, ".") && !strings.HasSuffix(s, ".")
}

// allowed judges a Host header.
func (n hostNames) allowed(host string) bool {
	host = strings.ToLower(host)
	if n.names[host] {
		return true
	}
	name := host
	if h, p, err := net.SplitHostPort(host); err == nil {
		if strings.Trim(p, "0123456789") != "" || p == "" {
			return false
		}
		if name = h; strings.Contains(h, ":") {
			name = "[" + h + "]"
		}
		if !strings.HasPrefix(host, name) { // brackets around what needs none
			return false
		}
	}
	// Brackets are for addresses of IPv6, which are not without.
	if inner, ok := strings.CutPrefix(name, "["); ok {
		if name, ok = strings.CutSuffix(inner, "]"); !ok || !strings.Contains(name, ":") {
			return false
		}
	} else if strings.Contains(name, ":") {
		return false
	}
	return n.always[name]
}
