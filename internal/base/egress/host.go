package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Lookup returns every address of a name without checking them, for callers that do
// not dial them, such as a check that localhost is loopback.
func Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	return lookup(ctx, system(), name)
}

func system() Resolver { return net.DefaultResolver }

func lookup(ctx context.Context, r Resolver, name string) ([]netip.Addr, error) {
	answers, err := r.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil, err
	}
	if len(answers) == 0 {
		return nil, fmt.Errorf("host %q has no address", name)
	}
	// The resolver returns A records as IPv4-mapped addresses.
	plain := make([]netip.Addr, len(answers))
	for i, a := range answers {
		plain[i] = a.Unmap()
	}
	return plain, nil
}

func split(address string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || text[0] == '+' || text[0] == '0' {
		return "", 0, fmt.Errorf("%w: port %q: want a number from 1 to 65535", ErrRefused, text)
	}
	return host, uint16(n), nil
}

// ParseTarget parses HOST:PORT. The host is as CheckHost accepts it, in lower case,
// without brackets.
func ParseTarget(address string) (host string, port uint16, err error) {
	host, port, err = split(address)
	if err == nil {
		err = CheckHost(host)
	}
	return strings.ToLower(host), port, err
}

// CheckHost refuses an ambiguous host. It accepts an IP address in canonical form
// without a zone, or a fully qualified name of letters, digits and hyphens. It
// refuses 2130706433, 0x7f.1, 0177.0.0.1, 127.1, [fe80::1%25eth0], names with other
// characters or a trailing dot, and names that a search list would complete.
func CheckHost(host string) error {
	_, _, err := parseHost(host)
	return err
}

const maxName = 253 // RFC 1035 §2.3.4, without the root's dot

// parseHost returns the address in host, or the name to look up, with a trailing
// dot so that no search list applies.
func parseHost(host string) (netip.Addr, string, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		switch {
		case addr.Zone() != "":
			return netip.Addr{}, "", bad(host, "has a zone")
		case addr.String() != strings.ToLower(host):
			return netip.Addr{}, "", bad(host, "is not the canonical form of "+addr.String())
		}
		return addr, "", nil
	}
	if err := checkName(host); err != nil {
		return netip.Addr{}, "", bad(host, err.Error())
	}
	return netip.Addr{}, host + ".", nil
}

func bad(host, why string) error {
	return fmt.Errorf("%w: host %.80q %s", ErrRefused, host, why)
}

func checkName(host string) error {
	labels := strings.Split(host, ".")
	switch {
	case len(host) > maxName:
		return errors.New("is too long")
	case len(labels) < 2:
		return errors.New("is not fully qualified: add its domain")
	}
	for _, label := range labels {
		switch {
		case label == "":
			return errors.New("has an empty label: remove a trailing dot")
		case len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' || strings.Trim(strings.ToLower(label), "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
			return errors.New("has characters other than letters, digits and hyphens")
		}
	}
	// In the URL standard, a host that ends in a number is an IPv4 address.
	last := strings.ToLower(labels[len(labels)-1])
	if hex, ok := strings.CutPrefix(last, "0x"); ok && strings.Trim(hex, "0123456789abcdef") == "" || strings.Trim(last, "0123456789") == "" {
		return errors.New("is an IPv4 address in a non-canonical form")
	}
	return nil
}
