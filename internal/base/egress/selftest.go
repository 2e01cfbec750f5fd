package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// SelfTest checks that the filter works in this process on this machine: the table
// refuses each of its ranges at both ends and all embedded forms, and accepts public
// addresses; the hook stops a connection to loopback that a dialer for that address
// can make. It listens on loopback for a moment. HTTP is not served if it fails
// (R-T2).
func SelfTest(ctx context.Context) error {
	if err := testTable(Judge); err != nil {
		return fmt.Errorf("egress self-test: %w", err)
	}
	if err := testHook(ctx, pinnedPublic); err != nil {
		return fmt.Errorf("egress self-test: %w", err)
	}
	return nil
}

func testTable(judge func(netip.Addr) error) error {
	for _, r := range Table() {
		for _, a := range []netip.Addr{r.Prefix.Addr(), last(r.Prefix)} {
			if !errors.Is(judge(a), ErrRefused) {
				return fmt.Errorf("%s would be accepted, but is %s (%s)", a, r.Name, r.Prefix)
			}
		}
	}
	for _, s := range spellings() {
		if !errors.Is(judge(netip.MustParseAddr(s)), ErrRefused) {
			return fmt.Errorf("%s would be accepted", s)
		}
	}
	for _, s := range publicSamples() {
		if err := judge(netip.MustParseAddr(s)); err != nil {
			return fmt.Errorf("a public address is refused: %w", err)
		}
	}
	return nil
}

// spellings returns non-public addresses in all forms.
func spellings() []string {
	return []string{
		"127.0.0.1", "::ffff:127.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b:1::10.0.0.1",
		"2002:7f00:1::", "2001::80ff:fffe", "2001:470::5efe:192.168.0.1", "2001:470::200:5efe:10.0.0.1", "fe80::1%lo", "4000::1",
		"169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::169.254.169.254", "192.0.0.192", "fec0::1",
		"0.0.0.0", "10.1.2.3", "100.64.0.1", "172.16.0.1", "192.168.1.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "::", "::1", "fc00::1", "fe80::1", "ff02::1",
	}
}

// publicSamples returns public addresses, most next to ranges of the table.
func publicSamples() []string {
	return []string{
		"1.0.0.0", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0",
		"172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
		"2000::1", "2001:200::1", "2001:4860:4860::8888", "2003::1", "2606:4700::1111", "3ffd::1", "2001:470::5efe:8.8.8.8",
	}
}

func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// testHook dials a loopback listener with the hook, which must refuse, and without
// it.
func testHook(ctx context.Context, hook func(netip.AddrPort) func(network, address string) error) error {
	const limit = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("cannot listen on loopback to test the filter: %w", err)
	}
	defer l.Close() //nolint:errcheck // used only here
	at, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil {
		return err
	}
	if conn, err := connect(ctx, "tcp", at.String(), limit, hook(at)); err == nil {
		return errors.Join(errors.New("a connection to loopback was accepted"), conn.Close())
	} else if !errors.Is(err, ErrRefused) {
		return fmt.Errorf("a connection to loopback failed, but not because of the filter: %w", err)
	}
	d, err := Only(at)
	if err != nil {
		return err
	}
	conn, err := d.DialContext(ctx, "tcp", at.String())
	if err != nil {
		return fmt.Errorf("the control connection failed, so the test proves nothing: %w", err)
	}
	return conn.Close()
}
