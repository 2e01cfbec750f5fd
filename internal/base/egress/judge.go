package egress

import (
	"fmt"
	"net/netip"
)

// Judge returns nil for a public address, and otherwise an ErrRefused that names the
// range and its source. An IPv6 address that embeds an IPv4 address is refused if
// that one is.
func Judge(addr netip.Addr) error { return judge(Table(), addr) }

func judge(table []Range, addr netip.Addr) error {
	switch {
	case !addr.IsValid():
		return fmt.Errorf("%w: invalid address", ErrRefused)
	case addr.Zone() != "":
		return fmt.Errorf("%w: address %s has a zone", ErrRefused, addr)
	}
	in, found := Range{}, false
	for _, r := range table {
		if r.Prefix.Contains(addr) && (!found || r.Prefix.Bits() > in.Prefix.Bits()) {
			in, found = r, true
		}
	}
	inner, how := embedded(addr)
	switch {
	case found && inner.IsValid():
		return fmt.Errorf("%w: address %s is %s of %s (%s, %s)", ErrRefused, addr, in.Name, inner, in.Prefix, in.Source)
	case found:
		return fmt.Errorf("%w: address %s is %s (%s, %s)", ErrRefused, addr, in.Name, in.Prefix, in.Source)
	case inner.IsValid():
		if err := judge(table, inner); err != nil {
			return fmt.Errorf("address %s is %s of an IPv4 address: %w", addr, how, err)
		}
	case addr.Is6() && !global().Contains(addr):
		return fmt.Errorf("%w: address %s is outside %s, the only range with global unicast addresses (IANA IPv6 address space)", ErrRefused, addr, global())
	}
	return nil
}

// embedded returns the IPv4 address embedded in an IPv6 address, and the form.
func embedded(addr netip.Addr) (netip.Addr, string) {
	if !addr.Is6() {
		return netip.Addr{}, ""
	}
	b := addr.As16()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	switch {
	case addr.Is4In6():
		return addr.Unmap(), "the mapped form"
	case compatible().Contains(addr) && at(12) != netip.AddrFrom4([4]byte{}) && at(12) != netip.AddrFrom4([4]byte{3: 1}):
		return at(12), "the compatible form"
	case wellKnown64().Contains(addr), translated().Contains(addr):
		return at(12), "the translated form"
	case local64().Contains(addr):
		return at(12), "the translated form" // usually with a /96 (RFC 6052 §2.2)
	case sixToFour().Contains(addr):
		return at(2), "the 6to4 form"
	case teredo().Contains(addr):
		return netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}), "the Teredo form"
	case b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe: // RFC 5214 §6.1, within any prefix
		return at(12), "the ISATAP form"
	}
	return netip.Addr{}, ""
}

func global() netip.Prefix      { return netip.MustParsePrefix("2000::/3") }
func compatible() netip.Prefix  { return netip.MustParsePrefix("::/96") }
func wellKnown64() netip.Prefix { return netip.MustParsePrefix("64:ff9b::/96") }
func local64() netip.Prefix     { return netip.MustParsePrefix("64:ff9b:1::/48") }
func translated() netip.Prefix  { return netip.MustParsePrefix("::ffff:0:0:0/96") }
func sixToFour() netip.Prefix   { return netip.MustParsePrefix("2002::/16") }
func teredo() netip.Prefix      { return netip.MustParsePrefix("2001::/32") }
