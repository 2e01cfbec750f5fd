package httpguard

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// HostList is the set of accepted Host headers.
type HostList struct {
	exact   map[string]bool // HOST or HOST:PORT in lower case
	anyPort map[string]bool // HOST with any port or none: a proxy may have another
}

// NewHostList accepts the hosts that the operator names.
func NewHostList(allowed []string) (HostList, error) {
	l := HostList{exact: map[string]bool{}, anyPort: map[string]bool{}}
	for _, s := range allowed {
		host, withPort := s, false
		if h, p, err := net.SplitHostPort(s); err == nil {
			if _, err := strconv.ParseUint(p, 10, 16); err != nil {
				return l, fmt.Errorf("--allow-host %q: port %q: want a number up to 65535", s, p)
			}
			host, withPort = h, true
		}
		if !IsHost(strings.Trim(host, "[]")) {
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

// Add accepts the listening address itself. Clients omit the default port.
func (l HostList) Add(a Address, secure bool) {
	hosts := []string{"127.0.0.1", "::1", "localhost"}
	if !a.Loopback() {
		if hosts = nil; !a.Addrs[0].IsUnspecified() {
			hosts = []string{a.Addrs[0].WithZone("").String()}
		}
	}
	port := strconv.Itoa(int(a.Port))
	for _, h := range hosts {
		with := net.JoinHostPort(h, port)
		l.exact[with] = true
		if a.Port == 80 && !secure || a.Port == 443 && secure {
			l.exact[strings.TrimSuffix(with, ":"+port)] = true
		}
	}
}

// IsHost reports whether s has the form of a host name or an IP address.
func IsHost(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	return s != "" && len(s) < 254 && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789-.") == "" && !strings.HasPrefix(s, ".") && !strings.HasSuffix(s, ".")
}

// Allows checks a Host header.
func (l HostList) Allows(header string) bool {
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
