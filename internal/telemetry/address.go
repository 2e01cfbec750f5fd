package telemetry

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/egress"
)

// Address is a place on this machine: a unix socket, or a port of a loopback
// address. The zero value is none.
type Address struct {
	network string // unix or tcp
	where   string
}

// maxSocketPath is what fits into the kernel's sockaddr_un.
const maxSocketPath = 107

// ParseListen reads where metrics are served: unix:/path, 127.0.0.1:PORT or
// [::1]:PORT. Nothing else is taken, because metrics ask nobody who they are.
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

// ParseCollector reads where spans are sent: http://127.0.0.1:PORT,
// http://[::1]:PORT or unix:/path, an OTLP receiver over HTTP.
func ParseCollector(s string) (Address, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		return socketAt(path)
	}
	const fix = "; spans go to this machine only: write http://127.0.0.1:4318 or unix:/absolute/path, and let a collector there pass them on"
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return Address{}, errors.New("not of the form http://ADDRESS:PORT" + fix)
	}
	at, err := loopback(u.Host)
	if err == nil && at.Port() == 0 {
		err = errors.New("port 0 is nowhere")
	}
	if err != nil {
		return Address{}, fmt.Errorf("%w%s", err, fix)
	}
	return Address{"tcp", at.String()}, nil
}

func socketAt(path string) (Address, error) {
	switch {
	case !filepath.IsAbs(path) || filepath.Clean(path) != path:
		return Address{}, errors.New("the path of a unix socket must be absolute and plain: write unix:/absolute/path")
	case len(path) > maxSocketPath:
		return Address{}, fmt.Errorf("the path of a unix socket can be at most %d bytes long; choose a shorter one", maxSocketPath)
	}
	return Address{"unix", path}, nil
}

// loopback takes numbers only: what a name resolves to is somebody else's
// decision, and may change.
func loopback(s string) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(s)
	switch {
	case err != nil:
		return at, errors.New("not an address and a port in numbers")
	case !at.Addr().IsLoopback() || at.Addr().Zone() != "" || at.Addr().Is4In6():
		return at, fmt.Errorf("%s is not a loopback address", at.Addr())
	}
	return at, nil
}

// dialer reaches a and nothing else.
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

// String is the address as people write it; empty for none.
func (a Address) String() string {
	if a.network == "unix" {
		return "unix:" + a.where
	}
	return a.where
}

// IsZero says whether there is no address.
func (a Address) IsZero() bool { return a == Address{} }
