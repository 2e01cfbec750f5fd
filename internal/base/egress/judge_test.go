package egress

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// The ranges are repeated here as addresses, so that a row missing from the table is
// detected.
//
// proves R-T7, R-S3
func TestAddressesOfSpecialRangesAreRefused(t *testing.T) {
	for name, list := range map[string]string{
		"loopback":         "127.0.0.1 127.255.255.254 127.1.2.3 ::1",
		"private":          "10.0.0.1 10.255.255.255 172.16.0.1 172.31.255.255 192.168.0.1 192.168.255.255",
		"link-local":       "169.254.0.1 169.254.255.255 fe80::1 febf:ffff::1",
		"site-local":       "fec0::1 feff:ffff::1",
		"unique local":     "fc00::1 fdff:ffff::1 fd12:3456:789a::1",
		"shared behind":    "100.64.0.0 100.127.255.255",
		"metadata":         "169.254.169.254 100.100.100.200 192.0.0.192 fd00:ec2::254 fd20:ce::254",
		"a cloud's":        "168.63.129.16 169.254.170.2",
		"unspecified":      "0.0.0.0 ::",
		"of this network":  "0.0.0.1 0.1.2.3 0.255.255.255",
		"broadcast":        "255.255.255.255",
		"multicast":        "224.0.0.1 239.255.255.255 232.1.1.1 ff02::1 ff0e::1",
		"reserved":         "240.0.0.1 255.255.255.254",
		"benchmarks":       "198.18.0.1 198.19.255.255 2001:2::1",
		"documentation":    "192.0.2.1 198.51.100.1 203.0.113.255 2001:db8::1 3fff::1 3fff:fff::1",
		"for protocols":    "192.0.0.100 192.0.0.255 2001:100::1 2001:1ff:ffff::1",
		"NAT64":            "192.0.0.170 192.0.0.171 64:ff9b::8.8.8.8 64:ff9b:1::8.8.8.8 64:ff9b:1:ffff::1",
		"6to4":             "192.88.99.1 2002:808:808::1 2002:7f00:1::1",
		"Teredo":           "2001:0:4136:e378:8000:63bf:3fff:fdd2",
		"-mapped":          "::ffff:8.8.8.8 ::ffff:127.0.0.1 ::ffff:a00:1",
		"-compatible":      "::8.8.8.8 ::127.0.0.1 ::2",
		"-translated":      "::ffff:0:8.8.8.8 ::ffff:0:7f00:1",
		"anycast":          "192.0.0.9 192.0.0.10 192.52.193.1 192.88.99.2 2001:1::1 2001:1::2 2001:1::3 2001:3::1",
		"sink":             "192.31.196.1 192.175.48.1 2001:4:112::1 2620:4f:8000::1",
		"continuity":       "192.0.0.1 192.0.0.7",
		"dummy":            "192.0.0.8 100:0:0:1::1",
		"discarding":       "100::1",
		"identity":         "2001:10::1 2001:20::1 2001:3f:ffff::1",
		"route":            "5f00::1",
		"NSAP":             "200::1 3ff:ffff::1",
		"6bone":            "3ffe::1",
		"outside 2000::/3": "4000::1 6000::1 8000::1 a000::1 c000::1 e000::1 f000::1 fe00::1 100:0:0:2::1 64:ff9a::1 64:ff9b:2::1 400::1 1::1",
		"the ISATAP form":  "2001:470::5efe:127.0.0.1 2606:4700::200:5efe:192.168.1.1 2a00::5efe:169.254.169.254",
		"has a zone":       "fe80::1%eth0 2606:4700::1111%eth0 ::1%lo",
		"link-local (169.": "169.254.169.253",
	} {
		for _, a := range addrs(strings.Fields(list)...) {
			err := Judge(a)
			if !errors.Is(err, ErrRefused) {
				t.Errorf("%s: %v, want a refusal", a, err)
			} else if !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v, want it to say %q", a, err, name)
			}
		}
	}
	if !errors.Is(Judge(netip.Addr{}), ErrRefused) {
		t.Error("the zero address is accepted")
	}
}

// The control of the test before: addresses next to the ranges are accepted.
func TestPublicAddressesAreAccepted(t *testing.T) {
	for _, s := range append(publicSamples(), "93.184.215.14", "192.0.3.0", "198.51.99.255", "203.0.114.0", "192.88.98.255", "192.88.100.0", "168.63.129.15", "168.63.129.17",
		"2001:db7::1", "2001:db9::1", "2001:200::", "2a00:1450:4001::200e", "2620:4f:8001::1", "3fff:1000::1", "2001:470:0:0:300:5efe:7f00:1") {
		if err := Judge(netip.MustParseAddr(s)); err != nil {
			t.Error(err)
		}
	}
}

func TestRefusalsNameTheEmbeddedAddress(t *testing.T) {
	for text, want := range map[string]string{
		"::ffff:10.0.0.1":              "10.0.0.1",
		"64:ff9b::169.254.169.254":     "169.254.169.254",
		"64:ff9b:1::192.168.0.1":       "192.168.0.1",
		"2002:c0a8:1::":                "192.168.0.1",
		"2001:0:0:0:0:0:80ff:fffe":     "127.0.0.1",
		"::10.0.0.1":                   "10.0.0.1",
		"::ffff:0:10.0.0.1":            "10.0.0.1",
		"2606:4700::0:5efe:10.0.0.1":   "10.0.0.1",
		"2606:4700::200:5efe:10.0.0.1": "10.0.0.1",
	} {
		err := Judge(netip.MustParseAddr(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want it to name %s", text, err, want)
		}
	}
}

func TestEveryRangeHasAMaskedPrefixAndASource(t *testing.T) {
	seen := map[netip.Prefix]bool{}
	for _, r := range Table() {
		if r.Prefix != r.Prefix.Masked() || r.Name == "" || r.Source == "" || seen[r.Prefix] {
			t.Errorf("row %+v", r)
		}
		seen[r.Prefix] = true
	}
}

// Judge agrees with net/netip, and with itself on the other embeddings of the same
// address.
func FuzzJudge(f *testing.F) {
	for _, r := range Table() {
		f.Add(r.Prefix.Addr().AsSlice())
		f.Add(last(r.Prefix).AsSlice())
	}
	for _, s := range append(spellings(), publicSamples()...) {
		f.Add(netip.MustParseAddr(s).AsSlice())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		err := Judge(a)
		if err != nil && !errors.Is(err, ErrRefused) {
			t.Fatalf("%s: %v is not a refusal", a, err)
		}
		inside := a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsInterfaceLocalMulticast() || a.IsUnspecified() || !a.IsGlobalUnicast() || a.Is4In6()
		if inside && err == nil {
			t.Fatalf("%s is accepted", a)
		}
		again := Judge(netip.MustParseAddr(a.String()))
		if (again == nil) != (err == nil) {
			t.Fatalf("%s: %v, but after formatting and parsing: %v", a, err, again)
		}
		if a.Is4() {
			wrapped(t, a, err)
		}
	})
}

// wrapped checks all embeddings of an address.
func wrapped(t *testing.T, a netip.Addr, err error) {
	t.Helper()
	text := a.String()
	b := a.As4()
	for _, s := range []string{"::ffff:" + text, "64:ff9b::" + text, "64:ff9b:1::" + text, "::ffff:0:" + text} {
		if Judge(netip.MustParseAddr(s)) == nil {
			t.Errorf("%s is accepted", s)
		}
	}
	six := netip.AddrFrom16([16]byte{0x20, 0x02, b[0], b[1], b[2], b[3]})
	if Judge(six) == nil {
		t.Errorf("%s is accepted", six)
	}
	if isatap := netip.MustParseAddr("2606:4700::5efe:" + text); (Judge(isatap) == nil) != (err == nil) {
		t.Errorf("%s and %s differ", isatap, a)
	}
}
