package redirect

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

//threat:registry-signature-store
func TestAddressesAreClassified(t *testing.T) {
	for _, tt := range []struct {
		name, kind string
		scope      scope
		addresses  []string
	}{
		{"recognizes public addresses", "public", scopePublic, []string{
			"8.8.8.8", "2001:4860::1", "64:ff9b::808:808", "::ffff:8.8.8.8", "2002:808:808::1", "64:ff9b:1:808:8:800::", "64:ff9b:1::808:808",
		}},
		{"recognizes metadata services", "metadata", scopeHost, []string{
			"169.254.169.254", "64:ff9b::a9fe:a9fe", "::ffff:169.254.169.254", "::169.254.169.254", "2002:a9fe:a9fe::",
			"64:ff9b:1::a9fe:a9fe", "64:ff9b:1:a9fe:a9:fe00::", "64:ff9b:1:a9fe:a9:fe00::1", "64:ff9b:1:a9:fe:a9fe::", "64:ff9b:1:0:a9:fea9:fe00::",
			"fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16",
		}},
		{"recognizes loopback", "loopback", scopeHost, []string{"127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"}},
		{"recognizes link-local addresses", "link-local", scopeHost, []string{"169.254.1.1", "fe80::1", "fe80::1%eth0"}},
		{"recognizes addresses of this host", "local", scopeHost, []string{"0.0.0.0", "0.1.2.3", "::", "::ffff:0.0.0.0"}},
		{"recognizes multicast", "multicast", scopeHost, []string{"224.0.0.1", "ff02::1"}},
		{"recognizes private addresses", "private", scopePrivate, []string{"10.1.2.3", "172.16.0.1", "192.168.0.1", "fd12::1", "64:ff9b::a01:203", "::ffff:10.0.0.1"}},
		{"recognizes shared addresses", "shared", scopePrivate, []string{"100.64.0.1"}},
		{"recognizes reserved addresses", "reserved", scopePrivate, []string{"198.18.0.1", "255.255.255.255"}},
		{"rejects addresses in a nonstandard form", "disguised", scopeHost, []string{""}},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			for _, text := range tt.addresses {
				address, _ := netip.ParseAddr(text)
				kind, scope := kindOf(address)
				assert.Equal(t, tt.kind, kind, text)
				assert.Equal(t, tt.scope, scope, text)
			}
		})
	}
}

func TestLiteralAddressesAreRecognized(t *testing.T) {
	for _, host := range []string{"registry.example", "registry.example.", "a1", "cdn-01.example.c0m", "169.254.169.254.nip.io", "localhost"} {
		_, literal := literalAddress(host)
		assert.False(t, literal, host)
	}
	for _, host := range []string{"127.0.0.1", "::1", "fe80::1%eth0", "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe"} {
		address, literal := literalAddress(host)
		assert.True(t, literal && address.IsValid(), host)
	}
	for _, host := range []string{"2130706433", "0x7f000001", "127.1", "127.0.0.1.", "0300.0250.1", ""} {
		address, literal := literalAddress(host)
		assert.True(t, literal && !address.IsValid(), host)
	}
}
