package redirect

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// aliasSuffix ends the names that replace addresses. No server has such a name (RFC 6761).
const aliasSuffix = ".address.invalid"

// HideAddresses returns a transport over inner for the registry library, which rejects private addresses in redirects, token servers and
// upload locations before a Transport can judge them. It replaces these addresses by names in responses, and restores them in requests.
func HideAddresses(inner http.RoundTripper) http.RoundTripper { return aliasing{inner} }

type aliasing struct{ inner http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t aliasing) RoundTrip(req *http.Request) (*http.Response, error) {
	if name, ok := strings.CutSuffix(req.URL.Hostname(), aliasSuffix); ok {
		if address, err := netip.ParseAddr(strings.ReplaceAll(name, "-", ":")); err == nil {
			req = req.Clone(req.Context())
			req.URL.Host = withHostname(req.URL, address.String())
			req.Host = req.URL.Host
		}
	}
	resp, err := t.inner.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if location, err := resp.Location(); err == nil && location.Hostname() != req.URL.Hostname() {
		if hidden, ok := alias(location); ok {
			resp.Header.Set("Location", hidden)
		}
	}
	challenges := resp.Header.Values("WWW-Authenticate")
	for _, realm := range realms(resp) {
		if hidden, ok := alias(realm); ok && realm.Host != req.URL.Host {
			for i := range challenges {
				challenges[i] = strings.ReplaceAll(challenges[i], realm.String(), hidden)
			}
		}
	}
	return resp, nil
}

// alias returns the URL with a name instead of an address that is not public; ok is false for other URLs.
func alias(u *url.URL) (hidden string, ok bool) {
	address, _ := literalAddress(u.Hostname())
	if !address.IsValid() || address.Zone() != "" {
		return "", false // the library rejects addresses in nonstandard forms
	}
	if _, s := kindOf(address); s == scopePublic {
		return "", false
	}
	named := *u
	named.Host = withHostname(u, strings.ReplaceAll(address.String(), ":", "-")+aliasSuffix)
	return named.String(), true
}

// withHostname returns the host of a URL with another name or address, and the same port.
func withHostname(u *url.URL, name string) string {
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	if port := u.Port(); port != "" {
		name += ":" + port
	}
	return name
}
