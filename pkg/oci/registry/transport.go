package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"

	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/cluster-version/cvo/pkg/oci/registry/location"
	"github.com/cluster-version/cvo/pkg/oci/registry/redirect"
	"github.com/cluster-version/cvo/pkg/oci/registry/transport"
)

// newTransport returns the transport of all requests to registries, without credentials.
func (a *Access) newTransport() http.RoundTripper {
	checked, unchecked := a.opts.Transport, a.opts.Transport
	if checked == nil {
		checked, unchecked = a.baseTransport(false), a.baseTransport(true)
	}
	secure := &transport.Secure{
		Insecure:  a.insecure,
		Plain:     a.opts.PlainCredentials,
		Checked:   redirect.NewTransport(checked, a.opts.Dial, a.configured, a.hosts),
		Unchecked: redirect.NewTransport(unchecked, a.opts.Dial, a.configured, a.hosts),
	}
	return redirect.HideAddresses(transport.New(secure, transport.Options{
		AnswerBytes: a.opts.AnswerBytes, MaxPerRegistry: a.opts.MaxPerRegistry, Stall: a.opts.Stall, Backoff: a.opts.Backoff,
		Client: a.pullClient,
	}))
}

// configured reports whether the mirror sets or the insecure registries include a host.
func (a *Access) configured(host string) bool {
	return slices.ContainsFunc(a.opts.Insecure, func(s string) bool { return s != AnyRegistry && location.Matches(s, host) }) ||
		a.opts.Mirrors.Serves(host)
}

func (a *Access) baseTransport(insecure bool) http.RoundTripper {
	base, ok := remote.DefaultTransport.(*http.Transport)
	if !ok {
		base, _ = http.DefaultTransport.(*http.Transport)
	}
	t := base.Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: a.opts.Authorities, InsecureSkipVerify: insecure}
	t.MaxIdleConnsPerHost = a.opts.MaxPerRegistry
	// Layers are already compressed. To resume a download, the client must count the bytes as they were sent.
	t.DisableCompression = true
	t.DialContext = a.dialContext
	if a.opts.Proxy != nil {
		t.Proxy = a.opts.Proxy
	}
	return t
}

// dialContext connects to a host from the configuration.
func (a *Access) dialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return a.opts.Dial(ctx, network, address, nil)
}

// Authorities returns the system's certificates and the certificates in the PEM bundles. It fails if a bundle contains none.
func Authorities(bundles ...[]byte) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("reading the system's certificates: %w", err)
	}
	for _, pem := range bundles {
		if !pool.AppendCertsFromPEM(pem) {
			return nil, errors.New("the bundle contains no PEM certificate")
		}
	}
	return pool, nil
}
