// Package egress opens every outbound socket of every Bailiwick program (R-T7, and
// the address checks of R-S3). A Dialer is one of four:
//
//   - Unix connects to one unix socket.
//   - Only connects to one configured loopback address and port.
//   - Signed connects to one address and port, or unix socket, that a human signed.
//   - Public connects to public addresses only: it resolves a name once, checks
//     every answer against the table, connects to a checked answer without
//     resolving again, and a hook checks the address once more before the kernel
//     connects.
//
// The package never reads a proxy or other settings from the environment, never
// follows a redirect unchecked, refuses a name if one of its addresses is refused,
// and cannot be disabled. It cannot detect a network-specific NAT64 prefix that
// leads to internal addresses. internal/testkit/arch checks that no other package of the
// module dials, resolves or creates an HTTP client.
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

// ErrRefused marks connections that the filter refused.
var ErrRefused = errors.New("refused by the egress filter")

// Resolver looks up the addresses of a host; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Config configures a public dialer. The zero value is usable.
type Config struct {
	Resolver Resolver      // nil: the system's
	Timeout  time.Duration // of one connection including the lookup; 0: 10 seconds
}

const (
	defaultTimeout = 10 * time.Second
	maxAnswers     = 8 // addresses of a name to try; all are checked
	leastTime      = time.Second
)

// Dialer opens outbound sockets to one kind of destination. It is safe for
// concurrent use. The zero value refuses everything.
type Dialer struct {
	unix    string         // the only path, or
	only    netip.AddrPort // the only address, or
	public  bool           // public addresses
	chosen  bool           // any address
	cfg     Config
	control func(network, address string) error // called before the kernel connects
}

// Unix returns a dialer that connects to the unix socket at path, whatever address
// it is given. Dialing an abstract socket is refused.
func Unix(path string) *Dialer {
	return &Dialer{unix: path, control: func(network, address string) error {
		if network != "unix" || address != path {
			return fmt.Errorf("%w: %s %q: want the unix socket %q", ErrRefused, network, address, path)
		}
		return nil
	}}
}

// Only returns a dialer that connects to the loopback address and port at, whatever
// address it is given. It refuses other addresses.
func Only(at netip.AddrPort) (*Dialer, error) {
	if a := at.Addr(); !a.IsLoopback() || a.Zone() != "" || a.Is4In6() || at.Port() == 0 {
		return nil, fmt.Errorf("%w: %s is not a loopback address and port: use 127.0.0.1:PORT or [::1]:PORT", ErrRefused, at)
	}
	return &Dialer{only: at, control: pinned(at)}, nil
}

// Signed returns a dialer that connects to the IP:PORT or unix:PATH that a human signed,
// whatever address it is given. It may be any address: no name is resolved and nothing
// else is reached.
func Signed(at string) (*Dialer, error) {
	if path, ok := strings.CutPrefix(at, "unix:"); ok {
		return Unix(path), nil
	}
	addr, err := netip.ParseAddrPort(at)
	if err != nil || addr.Addr().Zone() != "" || addr.Addr().Is4In6() || addr.Addr().IsUnspecified() || addr.Port() == 0 {
		return nil, fmt.Errorf("%w: %.80q is not an IP address and port, or unix:PATH", ErrRefused, at)
	}
	return &Dialer{only: addr, control: pinned(addr)}, nil
}

// Public returns a dialer for hosts whose addresses are all public.
func Public(cfg Config) *Dialer {
	if cfg.Resolver == nil {
		cfg.Resolver = system()
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	return &Dialer{public: true, cfg: cfg}
}

// Chosen returns a dialer for the hosts that a person at this machine names, such as the
// service of the team, whose addresses may be private. It is for the programs that people
// run, never for the service or a worker.
func Chosen() *Dialer {
	return &Dialer{chosen: true, cfg: Config{Resolver: system(), Timeout: defaultTimeout}}
}

// DialContext connects. Only a public dialer uses network, which must be TCP, and
// address, which must be HOST:PORT with a numeric port.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	switch {
	case d.unix != "":
		if strings.HasPrefix(d.unix, "@") || strings.Contains(d.unix, "\x00") {
			return nil, fmt.Errorf("%w: unix socket %q is not in the file system", ErrRefused, d.unix)
		}
		return connect(ctx, "unix", d.unix, 0, d.control)
	case d.only.IsValid():
		return connect(ctx, "tcp", d.only.String(), defaultTimeout, d.control)
	case d.public, d.chosen:
		return d.dialHost(ctx, network, address)
	}
	return nil, fmt.Errorf("%w: this dialer has no destination", ErrRefused)
}

func (d *Dialer) dialHost(ctx context.Context, network, address string) (net.Conn, error) {
	if network != "tcp" && network != "tcp4" && network != "tcp6" {
		return nil, fmt.Errorf("%w: network %q: want TCP", ErrRefused, network)
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
		conn, err := connect(ctx, "tcp", at.String(), share(ctx, len(answers)-i), d.pin(at))
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

// pin returns what holds a connection to an address that was checked.
func (d *Dialer) pin(at netip.AddrPort) func(network, address string) error {
	if d.chosen {
		return pinned(at)
	}
	return pinnedPublic(at)
}

// judge refuses an address that is not public, unless a person chose its host.
func (d *Dialer) judge(a netip.Addr) error {
	if d.chosen {
		return nil
	}
	return Judge(a)
}

// resolve returns the checked addresses of host. It refuses all if one is refused:
// such an answer is an attack or a misconfiguration.
func (d *Dialer) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	addr, name, err := parseHost(host)
	if err != nil {
		return nil, err
	}
	if addr.IsValid() {
		return []netip.Addr{addr}, d.judge(addr)
	}
	answers, err := lookup(ctx, d.cfg.Resolver, name)
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		if err := d.judge(a); err != nil {
			return nil, fmt.Errorf("host %q: %w", host, err)
		}
	}
	return answers[:min(len(answers), maxAnswers)], nil
}

// share returns the timeout of one of n attempts.
func share(ctx context.Context, n int) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return defaultTimeout
	}
	return max(time.Until(deadline)/time.Duration(n), leastTime)
}

// connect opens the socket. control sees the address exactly as the kernel gets
// it.
func connect(ctx context.Context, network, address string, limit time.Duration, control func(network, address string) error) (net.Conn, error) {
	d := net.Dialer{
		Timeout: limit,
		ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
			return control(network, address)
		},
	}
	return d.DialContext(ctx, network, address)
}

// pinned accepts only the address and port at.
func pinned(at netip.AddrPort) func(network, address string) error {
	return func(network, address string) error {
		got, err := netip.ParseAddrPort(address)
		if err != nil || got != at || network != "tcp4" && network != "tcp6" {
			return fmt.Errorf("%w: %s %q: want %s", ErrRefused, network, address, at)
		}
		return nil
	}
}

// pinnedPublic accepts only the address and port at, if it is public.
func pinnedPublic(at netip.AddrPort) func(network, address string) error {
	same := pinned(at)
	return func(network, address string) error {
		if err := same(network, address); err != nil {
			return err
		}
		return Judge(at.Addr())
	}
}
