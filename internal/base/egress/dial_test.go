//go:build linux

package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// said returns the greeting of the server that conn reached.
func said(t *testing.T, conn net.Conn, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func refused(t *testing.T, what string, conn net.Conn, err error) {
	t.Helper()
	if err == nil {
		_ = conn.Close()
		t.Errorf("%s was accepted", what)
	} else if !errors.Is(err, ErrRefused) {
		t.Errorf("%s: %v, want a refusal", what, err)
	}
}

// The name resolves to a public address when it is checked, and to loopback
// afterwards. Checking a name and then dialing it reaches loopback (the control);
// the dialer connects to the checked address.
//
// proves R-T7, R-S3
func TestDNSRebindingReachesTheCheckedAddress(t *testing.T) {
	if !inside(t) {
		return
	}
	g := greet(t, here, loopback)
	z := &zone{answers: map[string][][]netip.Addr{
		"naive.example.":  {addrs("93.184.215.14"), addrs("127.0.0.1")},
		"rebind.example.": {addrs("93.184.215.14"), addrs("127.0.0.1")},
	}}
	r := z.serve(t)

	judged, err := r.LookupNetIP(t.Context(), "ip4", "naive.example.")
	if err != nil || Judge(judged[0].Unmap()) != nil {
		t.Fatal(judged, err)
	}
	naive := net.Dialer{Resolver: r}
	conn, err := naive.DialContext(t.Context(), "tcp4", g.at("naive.example."))
	if got := said(t, conn, err); got != loopback.String() {
		t.Fatalf("control: reached %s; the name was not rebound", got)
	}

	d := Public(Config{Resolver: r})
	conn, err = d.DialContext(t.Context(), "tcp", g.at("rebind.example"))
	if got := said(t, conn, err); got != here.String() {
		t.Errorf("reached %s", got)
	}
	if n := z.count("rebind.example."); n != 1 {
		t.Errorf("%d lookups, want 1", n)
	}
	<-g.met
	<-g.met
	conn, err = d.DialContext(t.Context(), "tcp", g.at("rebind.example"))
	refused(t, "a rebound name", conn, err)
	g.none(t)
}

// proves R-T7, R-S3
func TestOneRefusedAddressRefusesTheName(t *testing.T) {
	if !inside(t) {
		return
	}
	g := greet(t, here, there, loopback)
	many := addrs("93.184.215.14", "93.184.215.14", "93.184.215.14", "93.184.215.14", "93.184.215.14", "93.184.215.14", "93.184.215.14", "93.184.215.14", "10.0.0.1")
	z := &zone{answers: map[string][][]netip.Addr{
		"good.example.":   {addrs("93.184.215.14", "151.101.1.6")},
		"dead.example.":   {addrs("93.184.215.15", "93.184.215.14")}, // the first is unreachable
		"mixed.example.":  {addrs("93.184.215.14", "127.0.0.1")},
		"last.example.":   {many},
		"six.example.":    {addrs("93.184.215.14", "::1")},
		"mapped.example.": {addrs("93.184.215.14", "::ffff:10.0.0.1")},
		"nat64.example.":  {addrs("64:ff9b::127.0.0.1")},
		"ula.example.":    {addrs("fd00::1")},
		"meta.example.":   {addrs("169.254.169.254")},
		"oracle.example.": {addrs("192.0.0.192")},
		"site.example.":   {addrs("fec0::1")},
		"none.example.":   {nil},
	}}
	d := Public(Config{Resolver: z.serve(t)})
	for _, name := range []string{"good.example", "dead.example"} {
		conn, err := d.DialContext(t.Context(), "tcp", g.at(name))
		if got := said(t, conn, err); got != here.String() && got != there.String() {
			t.Errorf("%s reached %s", name, got)
		}
		<-g.met
	}
	for _, name := range []string{"mixed", "last", "six", "mapped", "nat64", "ula", "meta", "oracle", "site"} {
		for _, network := range []string{"tcp", "tcp4", "tcp6"} {
			conn, err := d.DialContext(t.Context(), network, g.at(name+".example"))
			refused(t, name+" over "+network, conn, err)
		}
	}
	if conn, err := d.DialContext(t.Context(), "tcp", g.at("none.example")); err == nil {
		t.Error("connected to a name without an address:", conn.Close())
	}
	g.none(t)
}

// inetAton resolves every spelling of an address that the C library accepts; in
// these tests, all of them are loopback.
type inetAton struct{}

func (inetAton) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{loopback}, nil
}

// A resolver may return an A record in its mapped form, and an AAAA record may be a
// mapped address: both connect to the IPv4 address.
func TestMappedAnswersAreCheckedAsIPv4(t *testing.T) {
	d := Public(Config{Resolver: fixed{netip.MustParseAddr("::ffff:93.184.215.14")}})
	if got, err := d.resolve(t.Context(), "example.com"); err != nil || len(got) != 1 || got[0] != here {
		t.Error(got, err)
	}
	d = Public(Config{Resolver: fixed{netip.MustParseAddr("::ffff:10.0.0.1")}})
	if _, err := d.resolve(t.Context(), "example.com"); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
}

type fixed []netip.Addr

func (f fixed) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) { return f, nil }

func spelt() []string {
	return []string{
		"127.0.0.1", "2130706433", "017700000001", "0x7f000001", "0x7F.0x0.0x0.0x1", "0x7f.1", "127.1", "127.0.1", "0177.0.0.1", "0177.0.0.01", "127.0.0.1.", "127.000.000.001",
		"127.0.0.0x1", "0127.0.0.1", "00000127.0.0.1", "1.0x", "08.8.8.8", "010.0.0.1", "127.0.0.256", "127.0.0.1e0",
		"::1", "::ffff:127.0.0.1", "::ffff:7f00:1", "0:0:0:0:0:0:0:1", "0000:0000:0000:0000:0000:0000:0000:0001", "::1%lo", "::1%25lo", "fe80::1%1", "::FFFF:127.0.0.1", "[::1]",
		"64:ff9b::7f00:1", "2002:7f00:1::", "fec0::1", "fd00:ec2::254", "169.254.169.254", "0xA9FEA9FE", "2852039166", "0251.0376.0251.0376", "192.0.0.192", "3221225664",
		"localhost", "localhost.", "LOCALHOST", "metadata", "localhost.localdomain", "metadata.google.internal", "127.0.0.1.nip.io", "a.b",
		"127。0。0。1", "127．0．0．1", "１２７.0.0.1", "①②⑦.0.0.1", "ⓛocalhost.example", "ex\u00adample.com", "xn--.com%00", "a%2eb", "%31%32%37.0.0.1", "127.0.0.1%00.example.com",
		"127.0.0.1\x00.example.com", "127.0.0.1 .example.com", "exa mple.com", "a_b.example.com", "-a.example.com", "a..b", ".", "..", "", " 127.0.0.1", "127.0.0.1 ", "\t127.0.0.1", "127.0.0.1\n", "user@127.0.0.1", "127.0.0.1/8",
		"2606:4700:0:0:0:0:0:1111", "2606:4700::0001", "0", "0.0.0.0", "::", "1", "4294967295", "999999999999", strings.Repeat("a.", 127) + "com", strings.Repeat("a", 64) + ".com", "0x7f.0.0.1.0x", "example.0x7f", "example.1",
	}
}

// proves R-T7, R-S3
func TestNoSpellingOfAnAddressBypassesTheFilter(t *testing.T) {
	g := greet(t, loopback)
	d := Public(Config{Resolver: inetAton{}})
	for _, host := range spelt() {
		for _, address := range []string{g.at(host), host + g.at("")} {
			conn, err := d.DialContext(t.Context(), "tcp", address)
			refused(t, address, conn, err)
		}
	}
	g.none(t)
	// The controls: the resolver alone leads to loopback, and names and addresses in
	// canonical form pass the form check.
	for _, host := range []string{"127.0.0.1", "::ffff:127.0.0.1"} {
		conn, err := net.Dial("tcp", g.at(host))
		if got := said(t, conn, err); got != loopback.String() {
			t.Errorf("control: reached %q", got)
		}
	}
	for _, host := range []string{"example.com", "A.Example.COM", "a-b.c0.example", "8.8.8.8", "2606:4700::1111", "2606:4700::ABCD", "xn--bcher-kva.example", "1.2.3.4.example.com"} {
		if err := CheckHost(host); err != nil {
			t.Error(err)
		}
	}
}

func TestOnlyTCPAndNumericPortsAreDialled(t *testing.T) {
	d := Public(Config{Resolver: inetAton{}})
	for _, network := range []string{"", "udp", "udp4", "ip", "ip4:icmp", "unix", "unixgram", "tcp5"} {
		conn, err := d.DialContext(t.Context(), network, "8.8.8.8:53")
		refused(t, network, conn, err)
	}
	for _, address := range []string{"8.8.8.8", "8.8.8.8:", "8.8.8.8:0", "8.8.8.8:http", "8.8.8.8:65536", "8.8.8.8:-1", "8.8.8.8:+80", "8.8.8.8:080", "8.8.8.8:80:80", "", ":80", "/tmp/socket"} {
		conn, err := d.DialContext(t.Context(), "tcp", address)
		refused(t, address, conn, err)
	}
}

// Without the check before it, the hook alone refuses the address.
//
// proves R-T7
func TestTheHookChecksTheAddressBeforeTheKernelConnects(t *testing.T) {
	g := greet(t, loopback)
	at := netip.AddrPortFrom(loopback, g.port)
	conn, err := connect(t.Context(), "tcp", at.String(), time.Minute, pinnedPublic(at))
	refused(t, "loopback", conn, err)
	public := netip.AddrPortFrom(here, g.port)
	conn, err = connect(t.Context(), "tcp", at.String(), time.Minute, pinnedPublic(public))
	refused(t, "another address than the one that was judged", conn, err)
	conn, err = connect(t.Context(), "tcp", at.String(), time.Minute, pinned(netip.AddrPortFrom(loopback, g.port^1)))
	refused(t, "another port", conn, err)
	conn, err = connect(t.Context(), "udp", at.String(), time.Minute, pinned(at))
	refused(t, "another network", conn, err)
	g.none(t)
	conn, err = connect(t.Context(), "tcp", at.String(), time.Minute, pinned(at))
	if got := said(t, conn, err); got != loopback.String() {
		t.Errorf("control: reached %q", got)
	}
}

func TestOnlyConnectsToItsAddressAlone(t *testing.T) {
	g := greet(t, loopback)
	d, err := Only(netip.AddrPortFrom(loopback, g.port))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := d.DialContext(t.Context(), "udp", "8.8.8.8:53")
	if got := said(t, conn, err); got != loopback.String() {
		t.Errorf("reached %q", got)
	}
	for _, s := range []string{"127.0.0.1:0", "10.0.0.1:80", "8.8.8.8:80", "0.0.0.0:80", "[::]:80", "[::ffff:127.0.0.1]:80", "[::1%lo]:80", "[fe80::1]:80"} {
		if _, err := Only(netip.MustParseAddrPort(s)); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", s, err)
		}
	}
	if _, err := Only(netip.AddrPort{}); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
}

// proves R-G5
func TestSignedConnectsToWhatWasSignedAlone(t *testing.T) {
	g := greet(t, loopback)
	d, err := Signed(netip.AddrPortFrom(loopback, g.port).String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := d.DialContext(t.Context(), "udp", "8.8.8.8:53")
	if got := said(t, conn, err); got != loopback.String() {
		t.Errorf("reached %q", got)
	}
	for _, s := range []string{"", "example.com:80", "127.0.0.1", "127.0.0.1:0", "0.0.0.0:80", "[::]:80", "[::ffff:10.0.0.1]:80", "[fe80::1%lo]:80"} {
		if _, err := Signed(s); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, s := range []string{"10.0.0.1:5432", "[fd00::1]:5432", "169.254.169.254:80", "unix:/run/postgresql/s"} { // control
		if _, err := Signed(s); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestUnixConnectsToItsSocketAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("socket"))
			_ = conn.Close()
		}
	}()
	conn, err := Unix(path).DialContext(t.Context(), "tcp", "8.8.8.8:53")
	if got := said(t, conn, err); got != "socket" {
		t.Errorf("reached %q", got)
	}
	conn, err = connect(t.Context(), "unix", path, 0, Unix(filepath.Join(dir, "other")).control)
	refused(t, "another socket", conn, err)
	if _, err := Unix(filepath.Join(dir, "other")).DialContext(t.Context(), "unix", path); !errors.Is(err, os.ErrNotExist) {
		t.Error("a missing socket:", err)
	}
	for _, name := range []string{"@abstract", "\x00abstract", "/a\x00b", ""} {
		conn, err := Unix(name).DialContext(t.Context(), "unix", name)
		refused(t, name, conn, err)
	}
	conn, err = new(Dialer).DialContext(t.Context(), "tcp", "8.8.8.8:53")
	refused(t, "the zero dialer", conn, err)
}
