package telemetry

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
)

// Address is an address on this machine: a unix socket or a loopback port. The
// zero value is no address.
type Address struct {
	network string // unix or tcp
	where   string
}

// maxSocketPath is the longest path in a sockaddr_un, in bytes.
const maxSocketPath = 107

// ParseListen parses where metrics are served: unix:/path, 127.0.0.1:PORT or
// [::1]:PORT. It refuses all others, because metrics have no authentication.
func ParseListen(s string) (Address, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		return socketAt(path)
	}
	at, err := loopback(s)
	if err != nil {
		return Address{}, fmt.Errorf("%w; metrics are served on this machine only: write unix:/absolute/path or 127.0.0.1:9464", err)
	}
	return Address{"tcp", at.String()}, nil
}

// ParseCollector parses where spans are sent: http://127.0.0.1:PORT,
// http://[::1]:PORT or unix:/path, an OTLP receiver over HTTP.
func ParseCollector(s string) (Address, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		return socketAt(path)
	}
	const fix = "; spans go to this machine only: write http://127.0.0.1:4318 or unix:/absolute/path, and let a collector there forward them"
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return Address{}, errors.New("not of the form http://ADDRESS:PORT" + fix)
	}
	at, err := loopback(u.Host)
	if err == nil && at.Port() == 0 {
		err = errors.New("port 0 is not a port")
	}
	if err != nil {
		return Address{}, fmt.Errorf("%w%s", err, fix)
	}
	return Address{"tcp", at.String()}, nil
}

func socketAt(path string) (Address, error) {
	switch {
	case !filepath.IsAbs(path) || filepath.Clean(path) != path:
		return Address{}, errors.New("the path of a unix socket must be absolute and clean: write unix:/absolute/path")
	case len(path) > maxSocketPath:
		return Address{}, fmt.Errorf("the path of a unix socket can be at most %d bytes long; choose a shorter one", maxSocketPath)
	}
	return Address{"unix", path}, nil
}

// loopback parses a numeric loopback address and port. It takes no names, because
// what they resolve to may change.
func loopback(s string) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(s)
	switch {
	case err != nil:
		return at, errors.New("not a numeric address and port")
	case !at.Addr().IsLoopback() || at.Addr().Zone() != "" || at.Addr().Is4In6():
		return at, fmt.Errorf("%s is not a loopback address", at.Addr())
	}
	return at, nil
}

// dialer returns a dialer that connects only to a.
func (a Address) dialer() (*egress.Dialer, error) {
	if a.network == "unix" {
		return egress.Unix(a.where), nil
	}
	at, err := netip.ParseAddrPort(a.where)
	if err != nil {
		return nil, err
	}
	return egress.Only(at)
}

// String returns a as ParseListen reads it; empty for the zero value.
func (a Address) String() string {
	if a.network == "unix" {
		return "unix:" + a.where
	}
	return a.where
}

// IsZero reports whether a is the zero value.
func (a Address) IsZero() bool { return a == Address{} }
