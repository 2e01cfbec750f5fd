package egress

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// Every accepted host has the same meaning in a URL.
func FuzzHost(f *testing.F) {
	for _, s := range []string{"example.com", "A-b.c0.example", "8.8.8.8", "2606:4700::1111", "xn--bcher-kva.example", "127.0.0.1", "::ffff:127.0.0.1", "0x7f.1", "127.1", "2130706433", "a.0x7f", "a.1", "localhost", "example.com.", "::1%lo", "127。0。0。1", "a%2eb.c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, host string) {
		addr, name, err := parseHost(host)
		if err != nil {
			if !errors.Is(err, ErrRefused) {
				t.Fatalf("%q: %v is not a refusal", host, err)
			}
			return
		}
		if addr.IsValid() {
			again, err := netip.ParseAddr(addr.String())
			if name != "" || err != nil || again != addr || addr.Zone() != "" || !strings.EqualFold(addr.String(), host) || net.ParseIP(host) == nil {
				t.Fatalf("%q is accepted as %s", host, addr)
			}
			return
		}
		if name != host+"." || net.ParseIP(host) != nil || strings.ContainsAny(host, "%:/@?#[]\\ _") || len(name) > maxName+1 {
			t.Fatalf("%q is accepted as the name %q", host, name)
		}
		u, err := url.Parse("https://" + host + ":443/")
		if err != nil || u.Hostname() != host {
			t.Fatalf("%q is a different host in a URL: %v, %v", host, u, err)
		}
	})
}
