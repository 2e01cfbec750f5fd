package egress

import "net/netip"

// Range is a row of the table of refused addresses.
type Range struct {
	Prefix netip.Prefix
	Name   string // what the addresses are for
	Source string // the defining document
}

// Table lists the addresses that a public dialer refuses: every row of IANA's two
// registries of special-purpose addresses (as of 2025-10-09), including globally
// reachable ones, since none is an ordinary host; ranges that other documents
// deprecate; multicast; and metadata services of clouds at public addresses. If rows
// overlap, the longest prefix names the address.
func Table() []Range {
	return []Range{
		row("0.0.0.0/8", "of this network", "RFC 791 §3.2"),
		row("0.0.0.0/32", "the unspecified address", "RFC 1122 §3.2.1.3"),
		row("10.0.0.0/8", "private", "RFC 1918"),
		row("100.64.0.0/10", "shared behind a carrier's NAT", "RFC 6598"),
		row("100.100.100.200/32", "a cloud's metadata service", "Alibaba Cloud, instance metadata"),
		row("127.0.0.0/8", "loopback", "RFC 1122 §3.2.1.3"),
		row("168.63.129.16/32", "a cloud's host", "Microsoft Azure, WireServer"),
		row("169.254.0.0/16", "link-local", "RFC 3927"),
		row("169.254.169.254/32", "a cloud's metadata service", "Amazon EC2, Google Cloud, Azure, OpenStack, instance metadata"),
		row("169.254.170.2/32", "a cloud's credentials service", "Amazon ECS, task metadata"),
		row("172.16.0.0/12", "private", "RFC 1918"),
		row("192.0.0.0/24", "for protocols", "RFC 6890 §2.1"),
		row("192.0.0.0/29", "for IPv4 service continuity", "RFC 7335"),
		row("192.0.0.8/32", "the dummy address", "RFC 7600"),
		row("192.0.0.9/32", "the anycast of port control", "RFC 7723"),
		row("192.0.0.10/32", "the anycast of relays around NAT", "RFC 8155"),
		row("192.0.0.170/32", "for the discovery of NAT64", "RFC 8880, RFC 7050 §2.2"),
		row("192.0.0.171/32", "for the discovery of NAT64", "RFC 8880, RFC 7050 §2.2"),
		row("192.0.0.192/32", "a cloud's metadata service", "Oracle Cloud, instance metadata"),
		row("192.0.2.0/24", "for documentation", "RFC 5737"),
		row("192.31.196.0/24", "a sink of reverse names", "RFC 7535"),
		row("192.52.193.0/24", "the anycast of multicast relays", "RFC 7450"),
		row("192.88.99.0/24", "the anycast of 6to4 relays", "RFC 7526"),
		row("192.88.99.2/32", "the anycast of 6a44 relays", "RFC 6751"),
		row("192.168.0.0/16", "private", "RFC 1918"),
		row("192.175.48.0/24", "a sink of reverse names", "RFC 7534"),
		row("198.18.0.0/15", "for benchmarks", "RFC 2544"),
		row("198.51.100.0/24", "for documentation", "RFC 5737"),
		row("203.0.113.0/24", "for documentation", "RFC 5737"),
		row("224.0.0.0/4", "multicast", "RFC 5771"),
		row("240.0.0.0/4", "reserved", "RFC 1112 §4"),
		row("255.255.255.255/32", "broadcast", "RFC 919 §7, RFC 8190"),

		row("::/96", "the IPv4-compatible form", "RFC 4291 §2.5.5.1"),
		row("::/128", "the unspecified address", "RFC 4291 §2.5.2"),
		row("::1/128", "loopback", "RFC 4291 §2.5.3"),
		row("::ffff:0:0/96", "the IPv4-mapped form", "RFC 4291 §2.5.5.2"),
		row("::ffff:0:0:0/96", "the IPv4-translated form", "RFC 2765 §2.1"),
		row("64:ff9b::/96", "the NAT64 form", "RFC 6052"),
		row("64:ff9b:1::/48", "the local NAT64 form", "RFC 8215"),
		row("100::/64", "for discarding", "RFC 6666"),
		row("100:0:0:1::/64", "the dummy prefix", "RFC 9780"),
		row("200::/7", "a mapped NSAP", "RFC 4048"),
		row("2001::/23", "for protocols", "RFC 2928"),
		row("2001::/32", "the Teredo form", "RFC 4380, RFC 8190"),
		row("2001:1::1/128", "the anycast of port control", "RFC 7723"),
		row("2001:1::2/128", "the anycast of relays around NAT", "RFC 8155"),
		row("2001:1::3/128", "the anycast of service registration", "RFC 9665"),
		row("2001:2::/48", "for benchmarks", "RFC 5180"),
		row("2001:3::/32", "the anycast of multicast relays", "RFC 7450"),
		row("2001:4:112::/48", "a sink of reverse names", "RFC 7535"),
		row("2001:10::/28", "a hash of an identity", "RFC 4843"),
		row("2001:20::/28", "a hash of an identity", "RFC 7343"),
		row("2001:30::/28", "the identity of an aircraft", "RFC 9374"),
		row("2001:db8::/32", "for documentation", "RFC 3849"),
		row("2002::/16", "the 6to4 form", "RFC 3056, RFC 7526"),
		row("2620:4f:8000::/48", "a sink of reverse names", "RFC 7534"),
		row("3ffe::/16", "of the former 6bone", "RFC 3701"),
		row("3fff::/20", "for documentation", "RFC 9637"),
		row("5f00::/16", "a segment of a route", "RFC 9602"),
		row("fc00::/7", "unique local", "RFC 4193"),
		row("fd00:ec2::254/128", "a cloud's metadata service", "Amazon EC2, instance metadata"),
		row("fd20:ce::254/128", "a cloud's metadata service", "Google Cloud, instance metadata"),
		row("fe80::/10", "link-local", "RFC 4291 §2.5.6"),
		row("fec0::/10", "site-local", "RFC 3879"),
		row("ff00::/8", "multicast", "RFC 4291 §2.7"),
	}
}

func row(prefix, name, source string) Range {
	return Range{netip.MustParsePrefix(prefix), name, source}
}
