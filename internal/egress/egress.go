// Package egress is the only way out: every outbound socket of every program
// of Bailiwick is opened by a Dialer of this package (R-T7, and of R-S3 what
// judges addresses). There are three, by construction, and no fourth:
//
//   - Unix reaches one unix socket.
//   - Only reaches one loopback address and port that somebody configured.
//   - Public reaches what is public and nothing else: it resolves a name once,
//     judges every answer by the table, connects to an answer that it judged
//     and never asks again, and a hook judges once more the address that the
//     kernel is about to be given.
//
// The package never takes a proxy or anything else from the environment, never
// follows a redirect without judging it like the first request, never believes
// one good answer among bad ones, and has no switch that turns it off. What
// cannot be seen from here: a translator of the network's own prefix that leads
// public addresses inside, and what other programs do. internal/arch holds that
// no package of the module dials, resolves or makes an HTTP client without it.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// ErrRefused marks what was not dialled because it must not be.
var ErrRefused = errors.New("refused by the egress filter")

// Resolver answers with the addresses of a host; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Config is how a public dialer works. The zero value is usable.
type Config struct {
	Resolver Resolver      // nil: the one of the system
	Timeout  time.Duration // for one connection, resolving included; 0: 10 seconds
}

const (
	defaultTimeout = 10 * time.Second
	maxAnswers     = 8 // of a name that are tried; all are judged
	leastTime      = time.Second
)

// Dialer opens outbound sockets to what it was made for. It is safe for
// concurrent use. The zero value reaches nothing.
type Dialer struct {
	unix    string         // the one path, or
	only    netip.AddrPort // the one place, or
	public  bool           // whatever is public
	cfg     Config
	control func(network, address string) error // called before the kernel is told to connect
}

// Unix returns a dialer that reaches the unix socket at path, whatever it is
// asked for. An abstract name is refused when it is dialled.
func Unix(path string) *Dialer {
	return &Dialer{unix: path, control: func(network, address string) error {
		if network != "unix" || address != path {
			return fmt.Errorf("%w: %s %q is not the unix socket %q", ErrRefused, network, address, path)
		}
		return nil
	}}
}

// Only returns a dialer that reaches that port of that loopback address,
// whatever it is asked for. Any other address is refused.
func Only(at netip.AddrPort) (*Dialer, error) {
	if a := at.Addr(); !a.IsLoopback() || a.Zone() != "" || a.Is4In6() || at.Port() == 0 {
		return nil, fmt.Errorf("%w: %s is not a loopback address and port: write 127.0.0.1:PORT or [::1]:PORT", ErrRefused, at)
	}
	return &Dialer{only: at, control: pinned(at)}, nil
}

// Public returns a dialer that reaches hosts whose addresses are all public.
func Public(cfg Config) *Dialer {
	if cfg.Resolver == nil {
		cfg.Resolver = system()
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	return &Dialer{public: true, cfg: cfg}
}

// DialContext connects. A dialer of one place goes there; a public one takes a
// network of TCP and HOST:PORT, the port in digits.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	switch {
	case d.unix != "":
		if strings.HasPrefix(d.unix, "@") || strings.Contains(d.unix, "\x00") {
			return nil, fmt.Errorf("%w: unix socket %q has no path in the file system", ErrRefused, d.unix)
		}
		return connect(ctx, "unix", d.unix, 0, d.control)
	case d.only.IsValid():
		return connect(ctx, "tcp", d.only.String(), defaultTimeout, d.control)
	case d.public:
		return d.dialPublic(ctx, network, address)
	}
	return nil, fmt.Errorf("%w: this dialer was made for no place", ErrRefused)
}

func (d *Dialer) dialPublic(ctx context.Context, network, address string) (net.Conn, error) {
	if network != "tcp" && network != "tcp4" && network != "tcp6" {
		return nil, fmt.Errorf("%w: network %q is not TCP", ErrRefused, network)
	}
	host, port, err := split(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	answers, err := d.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	var failures []error
	for i, a := range answers {
		if network == "tcp4" && !a.Is4() || network == "tcp6" && !a.Is6() {
			continue
		}
		at := netip.AddrPortFrom(a, port)
		conn, err := connect(ctx, "tcp", at.String(), share(ctx, len(answers)-i), pinnedPublic(at))
		if err == nil {
			return conn, nil
		}
		failures = append(failures, err)
	}
	if len(failures) == 0 {
		return nil, fmt.Errorf("host %q has no address for %s", host, network)
	}
	return nil, errors.Join(failures...)
}

// resolve returns the addresses of host to connect to, all of them judged. One
// that must not be dialled spoils the rest: whoever answers so is not asking
// for a connection to the others.
func (d *Dialer) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	addr, name, err := parseHost(host)
	if err != nil {
		return nil, err
	}
	if addr.IsValid() {
		return []netip.Addr{addr}, Judge(addr)
	}
	answers, err := lookup(ctx, d.cfg.Resolver, name)
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		if err := Judge(a); err != nil {
			return nil, fmt.Errorf("host %q: %w", host, err)
		}
	}
	return answers[:min(len(answers), maxAnswers)], nil
}

// share is what one of n attempts may take of the time that is left.
func share(ctx context.Context, n int) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return defaultTimeout
	}
	return max(time.Until(deadline)/time.Duration(n), leastTime)
}

// connect opens the socket. The hook sees the address in the form in which the
// kernel gets it, after everything that could have changed it.
func connect(ctx context.Context, network, address string, limit time.Duration, control func(network, address string) error) (net.Conn, error) {
	d := net.Dialer{
		Timeout: limit,
		ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
			return control(network, address)
		},
	}
	return d.DialContext(ctx, network, address)
}

// pinned lets through that address and port alone.
func pinned(at netip.AddrPort) func(network, address string) error {
	return func(network, address string) error {
		got, err := netip.ParseAddrPort(address)
		if err != nil || got != at || network != "tcp4" && network != "tcp6" {
			return fmt.Errorf("%w: %s %q is not %s", ErrRefused, network, address, at)
		}
		return nil
	}
}

// pinnedPublic lets through that address and port, if it is public.
func pinnedPublic(at netip.AddrPort) func(network, address string) error {
	same := pinned(at)
	return func(network, address string) error {
		if err := same(network, address); err != nil {
			return err
		}
		return Judge(at.Addr())
	}
}
