package redirect

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// maxRedirects is the maximum number of redirects that a web client follows.
const maxRedirects = 5

// Safe returns a copy of a client that follows up to five redirects. It rejects redirects from https to http, and redirects to an address
// that the server must not choose (see Judge).
func Safe(client *http.Client) *http.Client {
	bounded := *client
	bounded.Transport = Judge(client.Transport)
	bounded.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return fmt.Errorf("stopped after %d redirects", maxRedirects)
		}
		if req.URL.Scheme != "https" && slices.ContainsFunc(via, func(r *http.Request) bool { return r.URL.Scheme == "https" }) {
			return errors.New("refusing a redirect from https to http")
		}
		return nil
	}
	return &bounded
}

// WithAuthorities returns a copy of a client (nil for http.DefaultClient) that checks redirects and trusts only the certificates in pool.
// It fails if the type of the client's transport is unknown.
func WithAuthorities(client *http.Client, pool *x509.CertPool) (*http.Client, error) {
	own := http.Client{}
	if client != nil {
		own = *client
	}
	hops, ok := Judge(own.Transport).(*Transport)
	if !ok || hops.base == nil {
		return nil, fmt.Errorf("cannot set certificates on a transport of type %T", own.Transport)
	}
	t := hops.base.Clone()
	if t.TLSClientConfig == nil {
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	t.TLSClientConfig.RootCAs = pool
	own.Transport = NewTransport(t, hops.dial, hops.configured, hops.introduced)
	return &own, nil
}
