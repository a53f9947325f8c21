package registry

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// newTransport stacks what happens to a request, from the outside in. The library puts authentication and redirects
// around it, so each hop and each request for a token passes here on its own.
func (a *Access) newTransport() http.RoundTripper {
	checked, unchecked := a.opts.Transport, a.opts.Transport
	if checked == nil {
		checked, unchecked = a.baseTransport(false), a.baseTransport(true)
	}
	var t http.RoundTripper = &secureTransport{access: a, checked: checked, unchecked: unchecked}
	t = &stallTransport{inner: t, limit: a.opts.Stall}
	t = &retryTransport{inner: t, backoff: a.opts.Backoff}
	t = &resumeTransport{inner: t, access: a}
	// A download keeps its place while it is resumed, so that what it waits for never waits for it.
	t = newLimitTransport(t, a.opts.MaxPerRegistry)
	return boundedTransport{inner: t, limit: a.opts.AnswerBytes}
}

func (a *Access) baseTransport(insecure bool) http.RoundTripper {
	base, ok := remote.DefaultTransport.(*http.Transport)
	if !ok {
		base, _ = http.DefaultTransport.(*http.Transport)
	}
	t := base.Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: a.opts.Authorities, InsecureSkipVerify: insecure}
	t.MaxIdleConnsPerHost = a.opts.MaxPerRegistry
	// Layers are compressed already, and a download can be resumed only where bytes are counted as they are sent.
	t.DisableCompression = true
	if a.opts.Proxy != nil {
		t.Proxy = a.opts.Proxy
	}
	return t
}

// Authorities are the system's certificates and those in some PEM files.
func Authorities(bundles ...[]byte) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("reading the system's certificates: %w", err)
	}
	for _, pem := range bundles {
		if !pool.AppendCertsFromPEM(pem) {
			return nil, errors.New("there is no PEM certificate in it")
		}
	}
	return pool, nil
}

// secureTransport speaks without TLS, or without checking certificates, only to those for whom that was allowed. It
// sees every hop: redirects and token servers, and the plain HTTP that the library would try with private addresses.
type secureTransport struct {
	access             *Access
	checked, unchecked http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *secureTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	switch {
	case t.access.insecure(req.URL.Host):
		return t.unchecked.RoundTrip(req)
	case req.URL.Scheme != "https" && !loopback(req.URL.Host):
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, fmt.Errorf("%s %w", req.URL.Host, ErrWithoutTLS)
	default:
		return t.checked.RoundTrip(req)
	}
}

// firstRequest is the request that led here through redirects.
func firstRequest(req *http.Request) *http.Request {
	for req.Response != nil && req.Response.Request != nil {
		req = req.Response.Request
	}
	return req
}

// blobRequest reports whether a request is for a blob, or was redirected from one.
func blobRequest(req *http.Request) bool {
	return strings.Contains(firstRequest(req).URL.Path, "/blobs/")
}
