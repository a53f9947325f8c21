package redirect

import (
	"cmp"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
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
	asked := req.URL
	if address, ok := aliased(asked.Hostname()); ok {
		req = req.Clone(req.Context())
		req.URL.Host = withHostname(asked, address.String())
		req.Host = req.URL.Host
	}
	resp, err := t.inner.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if location, err := resp.Location(); err == nil {
		if hidden, ok := hide(location, asked); ok {
			resp.Header.Set("Location", hidden)
		}
	}
	challenges := resp.Header.Values("WWW-Authenticate")
	for i, challenge := range challenges {
		challenges[i] = realmPattern.ReplaceAllStringFunc(challenge, func(realm string) string {
			found := realmPattern.FindStringSubmatch(realm)
			text := cmp.Or(found[1], found[2])
			if u, err := url.Parse(text); err == nil {
				if hidden, ok := hide(u, asked); ok {
					return strings.Replace(realm, text, hidden, 1)
				}
			}
			return realm
		})
	}
	return resp, nil
}

// hide returns a URL with a name instead of an address that is not public; ok is false for other URLs. For the server that the library
// asked, the name is the host of that request, however the URL spells it.
func hide(u, asked *url.URL) (hidden string, ok bool) {
	address, _ := literalAddress(u.Hostname())
	if !address.IsValid() || address.Zone() != "" {
		return "", false // the library rejects addresses in nonstandard forms
	}
	if _, s := kindOf(address); s == scopePublic {
		return "", false
	}
	named := *u
	named.Host = withHostname(u, strings.ReplaceAll(address.String(), ":", "-")+aliasSuffix)
	if own, ok := addressOf(asked.Hostname()); ok && own == address && port(u) == port(asked) {
		named.Host = asked.Host
	}
	return named.String(), true
}

// addressOf returns the address that a host is or stands for.
func addressOf(host string) (netip.Addr, bool) {
	if address, ok := aliased(host); ok {
		return address, true
	}
	address, _ := literalAddress(host)
	return address, address.IsValid()
}

// aliased returns the address that a name stands for.
func aliased(host string) (netip.Addr, bool) {
	name, ok := strings.CutSuffix(host, aliasSuffix)
	if !ok {
		return netip.Addr{}, false
	}
	address, err := netip.ParseAddr(strings.ReplaceAll(name, "-", ":"))
	return address, err == nil
}

var aliasPattern = regexp.MustCompile(`[0-9a-f.-]+` + regexp.QuoteMeta(aliasSuffix))

// ShowAddresses returns an error with the same causes, whose text has the addresses instead of the names that replace them.
func ShowAddresses(err error) error {
	if !aliasPattern.MatchString(err.Error()) {
		return err
	}
	return shownError{err}
}

type shownError struct{ error }

// Error implements error.
func (e shownError) Error() string {
	return aliasPattern.ReplaceAllStringFunc(e.error.Error(), func(name string) string {
		address, ok := aliased(name)
		switch {
		case !ok:
			return name
		case address.Is6():
			return "[" + address.String() + "]"
		}
		return address.String()
	})
}

// Unwrap returns the cause.
func (e shownError) Unwrap() error { return e.error }

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
