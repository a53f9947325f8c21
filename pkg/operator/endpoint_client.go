package operator

import (
	"bytes"
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
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/rollout"
)

// Leader is what a Lease tells of the replica that leads, or that led last.
type Leader struct {
	Identity

	// RenewedAt is when it last said so; zero if nobody ever led. Silent is how long ago that is.
	RenewedAt time.Time
	Silent    time.Duration
	// Gone: the Lease was given back, and Host is empty, or was not renewed in time.
	Gone bool
}

// FindLeader reads the Lease of the operator that looks after the ClusterVersion of that name. Without a Lease nobody
// leads. How old the Lease is the API server's clock tells alone: that of the reader may be wrong, and so may the leader's.
func FindLeader(ctx context.Context, cfg *rest.Config, namespace, name string) (Leader, error) {
	var dated dateReader
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(dated.wrap)
	client, err := coordinationv1client.NewForConfig(cfg)
	if err != nil {
		return Leader{}, fmt.Errorf("creating lease client: %w", err)
	}
	lease, err := client.Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Leader{Gone: true}, nil
	}
	if err != nil {
		return Leader{}, fmt.Errorf("reading Lease %s/%s: %w", namespace, name, err)
	}
	return leaderOf(lease, dated.now), nil
}

// dateReader remembers when a server answered last, by the server's clock; by ours if it does not say. It is for one
// request at a time.
type dateReader struct {
	next http.RoundTripper
	now  time.Time
}

func (r *dateReader) wrap(next http.RoundTripper) http.RoundTripper {
	r.next = next
	return r
}

// RoundTrip implements http.RoundTripper.
func (r *dateReader) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	r.now = time.Now()
	if err != nil {
		return nil, err
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		r.now = date
	}
	return resp, nil
}

// leaderOf reads a Lease at a moment of the API server's clock.
func leaderOf(lease *coordinationv1.Lease, now time.Time) Leader {
	spec, l := lease.Spec, Leader{Gone: true}
	if spec.RenewTime != nil {
		l.RenewedAt = renewedAt(lease)
		l.Silent = max(0, now.Sub(l.RenewedAt))
	}
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" {
		return l
	}
	l.Identity = ParseIdentity(*spec.HolderIdentity)
	if spec.LeaseDurationSeconds != nil {
		l.Gone = l.Silent > time.Duration(*spec.LeaseDurationSeconds)*time.Second
	}
	return l
}

// renewedAt is when the API server stored the last renewal; where it does not say, what the holder wrote.
func renewedAt(lease *coordinationv1.Lease) time.Time {
	var last time.Time
	for _, entry := range lease.ManagedFields {
		if entry.Time != nil && entry.FieldsV1 != nil && entry.Time.After(last) && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:renewTime"`)) {
			last = entry.Time.Time
		}
	}
	if last.IsZero() {
		return lease.Spec.RenewTime.Time
	}
	return last
}

// Trust says which certificate of the endpoint a client accepts: exactly one of the two is set.
type Trust struct {
	// Fingerprint of the one key, as the Lease tells it.
	Fingerprint string
	// CA in PEM has signed the certificate, which must be for the host of the URL.
	CA []byte
}

// Client reads what a replica serves. Its credentials are shown to a server only after the server's certificate has
// been found to be the one that Trust asks for.
type Client struct {
	url  string
	http *http.Client
}

// DialFunc opens a connection to a replica.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// NewClient returns a client of the endpoint at https://host:port with the credentials of cfg: client certificate,
// token, or what its plugin provides. dial may be nil to connect directly.
func NewClient(cfg *rest.Config, server string, trust Trust, dial DialFunc) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("server %q is not a URL like https://127.0.0.1:9099", server)
	}
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("reading the credentials of the cluster: %w", err)
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
		return nil, fmt.Errorf("reading the credentials of the cluster: %w", err)
	}
	return &Client{url: u.Scheme + "://" + u.Host, http: &http.Client{
		Transport: authenticated,
		Timeout:   writeTimeout,
		// Nobody else's server is any business of ours.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Connect returns a client for the replica that leads according to its Lease and listens at server. It refuses a leader
// whose certificate the Lease does not tell.
func Connect(ctx context.Context, cfg *rest.Config, namespace, name, server string) (*Client, error) {
	leader, err := FindLeader(ctx, cfg, namespace, name)
	if err != nil {
		return nil, err
	}
	if leader.Gone {
		return nil, fmt.Errorf("nobody leads: Lease %s/%s is not held", namespace, name)
	}
	return NewClient(cfg, server, Trust{Fingerprint: leader.Fingerprint}, nil)
}

// ErrUntrusted says that the server's certificate is not the one that Trust asks for, such as when another replica has
// taken over since.
var ErrUntrusted = errors.New("the server's certificate is not that of the replica that leads")

// TLS is what a client is set up with that trusts nobody else and shows no credentials.
func (t Trust) TLS() (*tls.Config, error) {
	config := &tls.Config{} //nolint:gosec // configure sets the version
	return config, t.configure(config)
}

// configure replaces whatever the configuration trusted: what the API server proves itself with is no proof here.
func (t Trust) configure(config *tls.Config) error {
	config.MinVersion = tls.VersionTLS12
	config.NextProtos = []string{"http/1.1"}
	config.ServerName = ""
	config.RootCAs, config.InsecureSkipVerify = nil, false
	switch {
	case len(t.CA) > 0:
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(t.CA) {
			return errors.New("the CA for the server holds no certificate in PEM")
		}
	case t.Fingerprint != "":
		// The handshake proves that the server has the key; who signed its certificate and for which name is moot.
		config.ServerName = pinnedName
		config.InsecureSkipVerify = true //nolint:gosec // VerifyConnection accepts one key and no other
		config.VerifyConnection = func(state tls.ConnectionState) error {
			got := Fingerprint(state.PeerCertificates[0])
			if subtle.ConstantTimeCompare([]byte(got), []byte(t.Fingerprint)) != 1 {
				return ErrUntrusted
			}
			return nil
		}
	default:
		return errors.New("nothing says which certificate to trust")
	}
	return nil
}

// Rollout asks the leader for its account of the rollout, with or without the objects. known is the tag of an earlier
// answer, or empty; if nothing has changed since, the snapshot is nil. What the server refuses is an
// apierrors.APIStatus, with the reasons ReasonNotLeader and ReasonNoRollout among others.
func (c *Client) Rollout(ctx context.Context, objects bool, known string) (snapshot *rollout.Snapshot, tag string, err error) {
	path := RolloutPath
	if !objects {
		path += "?objects=false"
	}
	resp, err := c.get(ctx, path, known)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotModified {
		return nil, known, nil
	}
	snapshot = &rollout.Snapshot{}
	if err := json.NewDecoder(bounded(resp)).Decode(snapshot); err != nil {
		return nil, "", fmt.Errorf("reading the account of the rollout: %w", err)
	}
	return snapshot, resp.Header.Get("ETag"), nil
}

// Metrics asks a replica for its metrics in Prometheus' text format.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) {
	resp, err := c.get(ctx, MetricsPath, "")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(bounded(resp))
}

// maxAnswer bounds an answer: the account of a rollout of ten thousand objects takes some megabytes.
const maxAnswer = 32 << 20

// bounded fails where an answer is longer than any that is meant.
func bounded(resp *http.Response) io.Reader { return http.MaxBytesReader(nil, resp.Body, maxAnswer) }

// get returns an answer of 200 or 304; the caller closes it.
func (c *Client) get(ctx context.Context, path, known string) (*http.Response, error) {
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
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, refusal(resp)
}

// maxRefusal bounds what is read of an error.
const maxRefusal = 64 << 10

func refusal(resp *http.Response) error {
	var status metav1.Status
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err == nil && json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return fmt.Errorf("the server answered %s: is it a version operator of this release?", resp.Status)
}

// Close lets go of idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }
