package redirect

import (
	"net/netip"
	"slices"
	"strings"
)

// scope is the area in which an address refers to the same host. A larger value is a smaller area.
type scope int

const (
	// scopePublic is the scope of globally reachable addresses.
	scopePublic scope = iota
	// scopePrivate is the scope of addresses that only hosts of one network can reach.
	scopePrivate
	// scopeHost is the scope of addresses that refer to a different host on each machine: loopback, link-local and metadata addresses.
	scopeHost
)

// addressRange is a range of addresses with a common meaning.
type addressRange struct {
	kind   string
	scope  scope
	prefix netip.Prefix
}

// addressRanges are the ranges of addresses that are not public. The first range that contains an address counts. Documentation addresses
// are omitted, because no host has them.
var addressRanges = slices.Concat(
	// Some metadata services have ordinary addresses: Alibaba, Azure and Oracle with IPv4; AWS (two services), Google and Oracle with
	// IPv6.
	rangesOf("metadata", scopeHost, "169.254.169.254/32", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32",
		"fd00:ec2::254/128", "fd00:ec2::23/128", "fd20:ce::254/128", "fd00:c1::a9fe:a9fe/128"),
	rangesOf("loopback", scopeHost, "127.0.0.0/8", "::1/128"),
	rangesOf("link-local", scopeHost, "169.254.0.0/16", "fe80::/10"),
	rangesOf("local", scopeHost, "0.0.0.0/8", "::/128"), // some systems treat them as loopback
	rangesOf("multicast", scopeHost, "224.0.0.0/4", "ff00::/8"),
	rangesOf("private", scopePrivate, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"),
	rangesOf("shared", scopePrivate, "100.64.0.0/10"), // used between providers and customers (RFC 6598) and inside clusters
	rangesOf("reserved", scopePrivate, "192.0.0.0/24", "198.18.0.0/15", "240.0.0.0/4"),
)

func rangesOf(kind string, s scope, prefixes ...string) []addressRange {
	ranges := make([]addressRange, 0, len(prefixes))
	for _, p := range prefixes {
		ranges = append(ranges, addressRange{kind, s, netip.MustParsePrefix(p)})
	}
	return ranges
}

// kindOf returns the kind and the scope of an address. If the address has several translations, the one with the smallest scope counts. An
// invalid address stands for a nonstandard form, such as 0x7f.1.
func kindOf(address netip.Addr) (kind string, nearest scope) {
	if !address.IsValid() {
		return "disguised", scopeHost
	}
	kind = "public"
	for _, a := range translations(address) {
		for _, r := range addressRanges {
			if r.prefix.Contains(a) {
				if r.scope > nearest {
					kind, nearest = r.kind, r.scope
				}
				break
			}
		}
	}
	return kind, nearest
}

// mayBePublic reports whether packets to an address may reach a public host.
func mayBePublic(address netip.Addr) bool {
	return slices.ContainsFunc(translations(address), func(a netip.Addr) bool {
		_, s := kindOf(a)
		return s == scopePublic
	})
}

// translations returns the addresses that packets to an address can reach: either the address itself or the IPv4 addresses in it. RFC 6052
// allows several interpretations, because only the network's own translator knows its prefix.
func translations(address netip.Addr) []netip.Addr {
	address = address.WithZone("").Unmap()
	if !address.Is6() {
		return []netip.Addr{address}
	}
	b := address.As16()
	four := func(i, j, k, l int) netip.Addr { return netip.AddrFrom4([4]byte{b[i], b[j], b[k], b[l]}) }
	in := func(prefix string) bool { return netip.MustParsePrefix(prefix).Contains(address) }
	switch {
	case in("::/127"): // the unspecified address and loopback
	case in("::/96"), in("::ffff:0:0:0/96"), in("64:ff9b::/96"): // compatible, translated, NAT64
		return []netip.Addr{four(12, 13, 14, 15)}
	case in("2002::/16"): // 6to4
		return []netip.Addr{four(2, 3, 4, 5)}
	case in("64:ff9b:1::/48"): // NAT64 of the local network, with a prefix of 48, 56, 64 or 96 bits
		all := []netip.Addr{four(6, 7, 9, 10), four(7, 9, 10, 11), four(9, 10, 11, 12), four(12, 13, 14, 15)}
		// For the wrong prefix lengths, the extracted address often starts with padding zeros.
		some := slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return a.As4()[0] == 0 })
		if len(some) == 0 {
			return all[:1]
		}
		return some
	}
	return []netip.Addr{address}
}

// literalAddress parses a host that is an address; ok is false for a name. Some resolvers accept other hosts that end in a number as
// addresses. For these, literalAddress returns an invalid address.
func literalAddress(host string) (address netip.Addr, ok bool) {
	if address, err := netip.ParseAddr(host); err == nil {
		return address, true
	}
	host = strings.TrimSuffix(host, ".")
	last := strings.ToLower(host[strings.LastIndex(host, ".")+1:])
	return netip.Addr{}, strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x")
}
