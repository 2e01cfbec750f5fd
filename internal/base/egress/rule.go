package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Rule is a line of an egress list: HOST:PORT, or *.HOST:PORT for every name below
// HOST, at any depth, but not HOST itself.
type Rule struct {
	host string // in lower case
	all  bool   // names below host
	port uint16
}

// ParseRule parses a line of an egress list. It refuses an address that is not public.
func ParseRule(text string) (Rule, error) {
	rest, all := strings.CutPrefix(text, "*.")
	switch {
	case strings.Contains(text, "/"):
		return Rule{}, fmt.Errorf("%q: want HOST:PORT, without a scheme or a path, such as proxy.golang.org:443", text)
	case text != strings.ToLower(text):
		return Rule{}, fmt.Errorf("%q: write it in lower case", text)
	case CheckHost(rest) == nil:
		if strings.Contains(rest, ":") {
			text = strings.TrimSuffix(text, rest) + "[" + rest + "]"
		}
		return Rule{}, fmt.Errorf("%q has no port: add :443 for https, as in %s:443", text, text)
	}
	host, port, err := split(rest)
	if err != nil {
		return Rule{}, fmt.Errorf("%q: want HOST:PORT or *.HOST:PORT: %s", text, reason(err))
	}
	if strings.Contains(host, "*") {
		return Rule{}, fmt.Errorf("%q: a wildcard is the whole first label, as in *.example.com:443", text)
	}
	addr, _, err := parseHost(host)
	switch {
	case err != nil:
	case addr.IsValid() && all:
		err = errors.New("an address has no names below it")
	case addr.IsValid():
		err = Judge(addr)
	}
	if err != nil {
		return Rule{}, fmt.Errorf("%q: %s", text, reason(err))
	}
	return Rule{host, all, port}, nil
}

// Matches reports whether r allows a host, as CheckHost accepts it, and port.
func (r Rule) Matches(host string, port uint16) bool {
	host = strings.ToLower(host)
	if r.all {
		return r.port == port && strings.HasSuffix(host, "."+r.host)
	}
	return r.port == port && host == r.host
}

// Wildcard reports whether r is for names below a host.
func (r Rule) Wildcard() bool { return r.all }

// reason is the text of an error of this package without the sentinel.
func reason(err error) string { return strings.TrimPrefix(err.Error(), ErrRefused.Error()+": ") }

// ParseEndpoint parses the URL of a model endpoint: https://HOST[:PORT][/PATH] with a
// public host, or http:// with an address and port of loopback, which local is then.
func ParseEndpoint(text string) (u *url.URL, local netip.AddrPort, err error) {
	u, err = url.Parse(text)
	if err != nil || u.Host == "" || u.Opaque != "" {
		return nil, local, errors.New("want a URL such as https://api.example.com or http://127.0.0.1:11434")
	}
	switch {
	case u.User != nil:
		return nil, local, errors.New("the URL has a user name; a key goes into credential")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(text, "#"):
		return nil, local, errors.New("the URL has a query or a fragment; an endpoint ends with its path")
	case u.RawPath != "" || strings.Contains(u.Path, "//") || strings.Contains(u.Path+"/", "/../") || strings.Contains(u.Path+"/", "/./"):
		return nil, local, errors.New("the path of the URL is not clean")
	}
	switch u.Scheme {
	case "https":
		return u, local, checkRemote(u)
	case "http":
		local, err = netip.ParseAddrPort(u.Host)
		if err != nil || !local.Addr().IsLoopback() || local.Port() == 0 || local.String() != u.Host {
			return nil, netip.AddrPort{}, errors.New("http is only for this machine, by address and port: http://127.0.0.1:PORT; others need https")
		}
		return u, local, nil
	}
	return nil, local, fmt.Errorf("scheme %q: want https, or http to an address of this machine", u.Scheme)
}

func checkRemote(u *url.URL) error {
	port := u.Port()
	if port == "" {
		port = "443"
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != port || strings.HasSuffix(u.Host, ":") {
		return fmt.Errorf("port %q: want a number from 1 to 65535", u.Port())
	}
	rule, err := ParseRule(net.JoinHostPort(u.Hostname(), port))
	if err == nil && rule.Wildcard() {
		err = errors.New("an endpoint has one host")
	}
	if err != nil {
		return fmt.Errorf("host %w", err)
	}
	return nil
}
