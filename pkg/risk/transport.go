package risk

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

// Limits of connections, and of the files that say how they are made.
const (
	connectTimeout = 10 * time.Second
	idleTimeout    = 90 * time.Second
	maxConnections = 8
	maxCAFile      = 4 << 20
	maxTokenFile   = 64 << 10
)

// newHTTPClient returns a client for one server, whose connections are kept and used again. It follows no redirect: no
// server of this API has one to give, and what is shown to this one is for nobody else.
func newHTTPClient(target *url.URL, options PrometheusOptions) *http.Client {
	d := &dialer{target: target, options: options}
	return &http.Client{
		Transport: &transport{
			target:    target,
			tokenFile: options.TokenFile,
			inner: &http.Transport{ // and no proxy: this is a service of the cluster
				DialContext:            d.dial,
				DialTLSContext:         d.dialTLS,
				MaxConnsPerHost:        maxConnections,
				IdleConnTimeout:        idleTimeout,
				MaxResponseHeaderBytes: maxHeader,
			},
		},
		CheckRedirect: func(req *http.Request, _ []*http.Request) error {
			return fmt.Errorf("it redirects to %s, which is not followed: give the URL where it answers", req.URL.Host)
		},
	}
}

// dialer connects to one host.
type dialer struct {
	target  *url.URL
	options PrometheusOptions
}

// dial connects to the host of the target at the address that it has now.
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

// dialTLS is dial and a handshake that expects the certificate of the target's name, whatever its address.
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
		return nil, fmt.Errorf("reading the authorities for Prometheus: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("reading the authorities for Prometheus: there is no certificate in %s", file)
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
		return nil, &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("it has more than %d bytes", limit)}
	}
	return text, nil
}

// transport shows the token to the target and to nobody else, and bounds answers.
type transport struct {
	inner     http.RoundTripper
	target    *url.URL
	tokenFile string
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != t.target.Scheme || req.URL.Host != t.target.Host {
		return nil, fmt.Errorf("%s is not asked instead of %s", req.URL.Host, t.target.Host)
	}
	if t.tokenFile != "" {
		text, err := readFile(t.tokenFile, maxTokenFile)
		if err != nil {
			return nil, fmt.Errorf("reading the token for Prometheus: %w", err)
		}
		token := strings.TrimSpace(string(text))
		if token == "" || !httpguts.ValidHeaderFieldValue(token) {
			return nil, fmt.Errorf("reading the token for Prometheus: there is none in %s", t.tokenFile)
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
