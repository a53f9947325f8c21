package transport

import (
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/registry/location"
	"github.com/cluster-version/cvo/pkg/oci/registry/redirect"
)

// Secure restricts connections without TLS, or with unchecked certificates, to the configured hosts. It checks every hop: redirects, token
// servers, and the library's own attempts to use plain HTTP for private addresses.
type Secure struct {
	// Insecure reports whether a registry may be contacted without TLS or with an unchecked certificate.
	Insecure func(registry string) bool
	// Checked carries the requests to all other hosts. Unchecked carries the requests to insecure registries.
	Checked, Unchecked http.RoundTripper
	// Plain allows credentials over plain HTTP to insecure registries, and to the servers that they name over plain HTTP.
	Plain bool
}

// RoundTrip implements http.RoundTripper.
func (t *Secure) RoundTrip(req *http.Request) (*http.Response, error) {
	exposed := !t.Plain && isExposed(req)
	if exposed {
		var err error
		if req, err = withoutCredentials(req); err != nil {
			return nil, err
		}
	}
	resp, err := t.send(req)
	if exposed && err == nil {
		redirect.DistrustRealms(resp.Header)
	}
	return resp, err
}

func (t *Secure) send(req *http.Request) (*http.Response, error) {
	switch {
	case t.Insecure(req.URL.Host):
		return t.Unchecked.RoundTrip(req)
	case isPlain(req):
		closeBody(req)
		return nil, fmt.Errorf("%s %w", req.URL.Host, failure.ErrWithoutTLS)
	default:
		return t.Checked.RoundTrip(req)
	}
}

func isPlain(req *http.Request) bool {
	return req.URL.Scheme != "https" && !location.IsLoopback(req.URL.Host)
}

// isExposed reports whether the network can read a request, or could choose its server: by a redirect, or as a token server.
func isExposed(req *http.Request) bool {
	for !isPlain(req) && !redirect.IsDistrusted(req.URL) {
		if req.Response == nil || req.Response.Request == nil {
			return false
		}
		req = req.Response.Request
	}
	return true
}

// withoutCredentials returns a request without the password that it carries. It fails for a request to a token server with a password or a
// refresh token in its body: RFC 6749 sends them as a form, and no other request to a registry has a form.
func withoutCredentials(req *http.Request) (*http.Request, error) {
	if kind, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type")); kind == "application/x-www-form-urlencoded" {
		closeBody(req)
		return nil, fmt.Errorf("%s %w", req.URL.Host, failure.ErrPlainCredentials)
	}
	if scheme, _, _ := strings.Cut(req.Header.Get("Authorization"), " "); !strings.EqualFold(scheme, "Basic") {
		return req, nil
	}
	plain := req.Clone(req.Context())
	plain.Header.Del("Authorization")
	plain.URL = redirect.Distrust(req.URL) // for the explanation of a refusal
	return plain, nil
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}
