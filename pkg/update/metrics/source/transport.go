package source

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Limits for connections, and for the files that configure them.
const (
	connectTimeout = 10 * time.Second
	idleTimeout    = 90 * time.Second
	maxConnections = 8
	maxCAFile      = 4 << 20
	maxTokenFile   = 64 << 10
)

// newHTTPClient returns a client for one server. It reuses connections and follows no redirects, because no server of this API needs them
// and the token is only for this server.
func newHTTPClient(target *url.URL, options PrometheusOptions) *http.Client {
	d := &dialer{target: target, options: options}
	return &http.Client{
		Transport: &transport{
			target:    target,
			tokenFile: options.TokenFile,
			inner: &http.Transport{ // without a proxy, because this is a service in the cluster
				DialContext:            d.dial,
				DialTLSContext:         d.dialTLS,
				MaxConnsPerHost:        maxConnections,
				IdleConnTimeout:        idleTimeout,
				MaxResponseHeaderBytes: maxHeader,
			},
		},
		CheckRedirect: func(req *http.Request, _ []*http.Request) error {
			return fmt.Errorf("refusing a redirect to %s: use the final URL", req.URL.Host)
		},
	}
}

// dialer connects to one host.
type dialer struct {
	target  *url.URL
	options PrometheusOptions
}

// dial connects to the target's host at its current address.
func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if d.options.Address != nil {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		ip, err := d.options.Address(ctx)
		if err != nil {
			return nil, err
		}
		address = net.JoinHostPort(ip, port)
	}
	return (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, network, address)
}

// dialTLS connects with TLS. It expects a certificate for the target's name and not for its address.
func (d *dialer) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	config := &tls.Config{ServerName: d.target.Hostname(), MinVersion: tls.VersionTLS12}
	if d.options.CAFile != "" {
		roots, err := readRoots(d.options.CAFile)
		if err != nil {
			return nil, err
		}
		config.RootCAs = roots
	}
	conn, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	secured := tls.Client(conn, config)
	within, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := secured.HandshakeContext(within); err != nil {
		return nil, errors.Join(err, ignoreClosed(conn.Close()))
	}
	return secured, nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func readRoots(file string) (*x509.CertPool, error) {
	text, err := readFile(file, maxCAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the CA certificates for Prometheus: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("reading the CA certificates for Prometheus: no certificate in %s", file)
	}
	return roots, nil
}

func readFile(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("more than %d bytes", limit)}
	}
	return text, nil
}

// transport sends the token only to the target, and limits the size of responses.
type transport struct {
	inner     http.RoundTripper
	target    *url.URL
	tokenFile string
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != t.target.Scheme || req.URL.Host != t.target.Host {
		return nil, fmt.Errorf("not following a redirect to %s from %s", req.URL.Host, t.target.Host)
	}
	if t.tokenFile != "" {
		text, err := readFile(t.tokenFile, maxTokenFile)
		if err != nil {
			return nil, fmt.Errorf("reading the token for Prometheus: %w", err)
		}
		token := strings.TrimSpace(string(text))
		if token == "" || !httpguts.ValidHeaderFieldValue(token) {
			return nil, fmt.Errorf("reading the token for Prometheus: no valid token in %s", t.tokenFile)
		}
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := t.inner.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	limit := int64(maxAlertAnswer)
	if strings.HasSuffix(req.URL.Path, "/query") {
		limit = maxQueryAnswer
	}
	resp.Body = http.MaxBytesReader(nil, resp.Body, limit)
	return resp, nil
}
