package httpguard

import (
	"regexp"
	"testing"
)

// Only the spellings of the configured hosts are accepted.
//
// proves R-T3
func FuzzHosts(f *testing.F) {
	for _, s := range []string{"127.0.0.1:7717", "mcp.example", "MCP.example:1", "[2001:db8::1]:9", "mcp.example:", "2001:db8::1", "mcp.example@evil", "mcp.example:1:2", "[mcp.example]", "[mcp.example]:1", "[mcp.example", "evil.example"} {
		f.Add(s)
	}
	a, err := ParseAddress("--http", "127.0.0.1:7717")
	if err != nil {
		f.Fatal(err)
	}
	n, err := NewHostList([]string{"mcp.example", "[2001:db8::1]"})
	if err != nil {
		f.Fatal(err)
	}
	n.Add(a, false)
	ours := regexp.MustCompile(`(?i)^((127\.0\.0\.1|localhost|\[::1\]):7717|(mcp\.example|\[2001:db8::1\])(:[0-9]+)?)$`)
	f.Fuzz(func(t *testing.T, host string) {
		if n.Allows(host) && !ours.MatchString(host) {
			t.Errorf("%q is accepted", host)
		}
	})
}

// proves R-T2
func TestLoopbackAddressesAreRecognisedLiterally(t *testing.T) {
	for address, local := range map[string]bool{
		"127.0.0.1:1": true, "[::1]:1": true, "localhost:1": true,
		"127.0.0.2:1": false, "[::ffff:127.0.0.1]:1": false, "0.0.0.0:1": false, "[::]:1": false, ":1": false, "192.0.2.1:1": false, "[fe80::1%lo]:1": false,
	} {
		a, err := ParseAddress("--http", address)
		if err != nil || a.Loopback() != local {
			t.Errorf("%s: loopback is %v, %v", address, a.Loopback(), err)
		}
	}
	for _, address := range []string{
		"", "1", "127.0.0.1", "127.1:1", "0x7f.0.0.1:1", "2130706433:1", "0177.0.0.1:1", "localhost.:1", "LOCALHOST:1", "mcp.example:1", "127.0.0.1:http", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:", "::1:1",
	} {
		if a, err := ParseAddress("--http", address); err == nil {
			t.Errorf("%q is accepted as %+v", address, a)
		}
	}
}

// Clients omit the default port from Host.
func TestHostMayOmitTheDefaultPort(t *testing.T) {
	for _, c := range []struct {
		address string
		secure  bool
		host    string
		want    bool
	}{
		{"192.0.2.7:443", true, "192.0.2.7", true},
		{"192.0.2.7:443", true, "192.0.2.7:443", true},
		{"192.0.2.7:443", true, "192.0.2.8", false},
		{"192.0.2.7:443", false, "192.0.2.7", false},
		{"192.0.2.7:80", true, "192.0.2.7", false},
		{"[2001:db8::1]:443", true, "[2001:db8::1]", true},
		{"[2001:db8::1]:443", true, "2001:db8::1", false},
		{"127.0.0.1:80", false, "LocalHost", true},
		{"127.0.0.1:80", false, "[::1]", true},
		{"127.0.0.1:7717", false, "localhost", false},
		{":443", true, "192.0.2.7", false},
	} {
		n, err := NewHostList(nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := ParseAddress("--http", c.address)
		if err != nil {
			t.Fatal(err)
		}
		n.Add(a, c.secure)
		if got := n.Allows(c.host); got != c.want {
			t.Errorf("%s (TLS %v), Host %s: allowed %v", c.address, c.secure, c.host, got)
		}
	}
}
