package serve

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/kube/certificate"
)

// Trust identifies the endpoint's certificate for a client. Exactly one field is set.
type Trust struct {
	// Fingerprint is the fingerprint of the server's key, as in the Lease.
	Fingerprint string
	// CA contains PEM certificates of CAs. The server's certificate must be signed by one of them and be valid for the host in the URL.
	CA []byte
}

// Client reads from the endpoint of a replica. It sends its credentials only after it has verified the server's certificate with Trust.
type Client struct {
	url  string
	http *http.Client
}

// DialFunc opens a connection to a replica.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// NewClient returns a client of the endpoint at https://host:port. It uses the credentials in cfg: a client certificate, a token, or a
// plugin. A nil dial connects directly. NewClient returns an error if the URL or the trust is invalid.
func NewClient(cfg *rest.Config, server string, trust Trust, dial DialFunc) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("server %q is not a URL like https://127.0.0.1:9099", server)
	}
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's credentials: %w", err)
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{}
	}
	if err := trust.configure(tlsConfig); err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: tlsConfig, TLSHandshakeTimeout: readHeaderTimeout, DialContext: dial}
	if dial == nil {
		transport.Proxy = http.ProxyFromEnvironment
	}
	authenticated, err := rest.HTTPWrappersForConfig(cfg, transport)
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's credentials: %w", err)
	}
	return &Client{url: u.Scheme + "://" + u.Host, http: &http.Client{
		Transport: authenticated,
		Timeout:   writeTimeout,
		// Redirects could lead to another server, so they are never followed.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// ErrUntrusted means that the server's certificate does not match Trust, for example because another replica has become the leader.
var ErrUntrusted = errors.New("the server's certificate does not belong to the leader")

// TLS returns a client configuration that trusts only this certificate and has no credentials.
func (t Trust) TLS() (*tls.Config, error) {
	config := &tls.Config{}
	return config, t.configure(config)
}

// configure replaces the trust settings of config, because the API server's certificate proves nothing here.
func (t Trust) configure(config *tls.Config) error {
	config.MinVersion = tls.VersionTLS12
	config.NextProtos = []string{"http/1.1"}
	config.ServerName = ""
	config.RootCAs, config.InsecureSkipVerify = nil, false
	switch {
	case len(t.CA) > 0:
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(t.CA) {
			return errors.New("the CA for the server contains no PEM certificate")
		}
	case t.Fingerprint != "":
		// The handshake proves that the server has the key. The certificate's signer and name do not matter.
		config.ServerName = certificate.PinnedName
		config.InsecureSkipVerify = true // VerifyConnection accepts one key and no other
		config.VerifyConnection = func(state tls.ConnectionState) error {
			got := certificate.Fingerprint(state.PeerCertificates[0])
			if subtle.ConstantTimeCompare([]byte(got), []byte(t.Fingerprint)) != 1 {
				return ErrUntrusted
			}
			return nil
		}
	default:
		return errors.New("neither a fingerprint nor a CA to trust is set")
	}
	return nil
}

// maxAnswer is the maximum size of a response. The snapshot of a rollout with ten thousand objects has a few megabytes.
const maxAnswer = 32 << 20

// Get returns a response with status 200, or 304 if known is the tag of an earlier response that is still current. The caller must close
// the response. Its body has a limited size. If the server refuses the request, the error is an apierrors.APIStatus.
func (c *Client) Get(ctx context.Context, path, known string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	if known != "" {
		req.Header.Set("If-None-Match", known)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusNotModified {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, refusal(resp)
}

// maxRefusal is the maximum size of an error response that is read.
const maxRefusal = 64 << 10

func refusal(resp *http.Response) error {
	var status metav1.Status
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err == nil && json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return fmt.Errorf("the server responded with %s: is it a version operator of this release?", resp.Status)
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }
