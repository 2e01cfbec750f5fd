package httpguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
)

// Address is where a server listens.
type Address struct {
	Port  uint16
	Addrs []netip.Addr // of localhost, set by Resolve

	host string // as given: an IP address, localhost, or "" for all
	flag string // that it was given with
}

// Loopback reports whether only this machine can reach the address. It compares
// the text: another address of 127.0.0.0/8, or an IPv4-mapped one, is an address
// like any other.
func (a Address) Loopback() bool {
	return a.host == "127.0.0.1" || a.host == "::1" || a.host == "localhost"
}

// ParseAddress reads HOST:PORT, the value of a flag. It refuses names, whose
// addresses can change, except localhost, which Resolve checks.
func ParseAddress(flag, s string) (Address, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return Address{}, fmt.Errorf("%s %q: want HOST:PORT, such as 127.0.0.1:7717", flag, s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return Address{}, fmt.Errorf("%s %q: port %q: want a number up to 65535", flag, s, port)
	}
	a := Address{host: host, flag: flag, Port: uint16(n)} //nolint:gosec // G115: 16 bits
	switch host {
	case "localhost":
	case "":
		a.Addrs = []netip.Addr{netip.IPv6Unspecified()}
	default:
		addr, err := netip.ParseAddr(host)
		if err != nil {
			return a, fmt.Errorf("%s %q: host %q: want an IP address or localhost", flag, s, host)
		}
		a.Addrs = []netip.Addr{addr}
	}
	return a, nil
}

// Resolve looks up localhost; each of its addresses must be loopback.
func (a *Address) Resolve(ctx context.Context, lookup func(context.Context, string) ([]netip.Addr, error)) error {
	if a.host != "localhost" {
		return nil
	}
	found, err := lookup(ctx, a.host)
	if err != nil || len(found) == 0 {
		return fmt.Errorf("%s: localhost has no address on this machine: use 127.0.0.1 or ::1", a.flag)
	}
	a.Addrs = nil
	for _, addr := range found {
		if addr = addr.Unmap(); !addr.IsLoopback() {
			return fmt.Errorf("%s: localhost resolves to %s, which is not loopback: use 127.0.0.1 or ::1, or correct /etc/hosts", a.flag, addr)
		}
		if !slices.Contains(a.Addrs, addr) {
			a.Addrs = append(a.Addrs, addr)
		}
	}
	return nil
}

// Listen opens one socket for each address. If the port is 0, the system's
// choice for the first address is used for all.
func (a *Address) Listen(ctx context.Context) ([]net.Listener, error) {
	var all []net.Listener
	var config net.ListenConfig
	for _, addr := range a.Addrs {
		l, err := config.Listen(ctx, "tcp", netip.AddrPortFrom(addr, a.Port).String())
		if err != nil {
			for _, l := range all {
				err = errors.Join(err, l.Close())
			}
			return nil, err
		}
		if tcp, ok := l.Addr().(*net.TCPAddr); ok && a.Port == 0 {
			a.Port = uint16(tcp.Port) //nolint:gosec // G115: a port
		}
		all = append(all, l)
	}
	return all, nil
}

// HostPort returns HOST:PORT as in a URL.
func (a Address) HostPort() string {
	host := a.host
	if host == "" {
		host = "::"
	}
	return net.JoinHostPort(host, strconv.Itoa(int(a.Port)))
}
