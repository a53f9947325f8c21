package registry_test

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ggcrregistry "github.com/google/go-containerregistry/pkg/registry"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/oci/registry/credentials"
	"github.com/cluster-version/cvo/pkg/oci/registry/mirrorset"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/fixture/authority"
)

// network is a small internet of servers with names and certificates. Clients reach them through a proxy, because only the proxy resolves
// the names.
type network struct {
	t         testing.TB
	authority *authority.Authority
	proxy     *fixture.Proxy

	mu      sync.Mutex
	servers map[string]string // address by host:port
	seen    []seen
	// resolved holds the addresses of each host:port for clients without a proxy. Each connection uses the next address, and the last one
	// repeats.
	resolved map[string][]netip.Addr
}

// seen is a request that a server received.
type seen struct {
	host, method, path, authorization, ranged string
}

func newNetwork(t testing.TB) *network {
	n := &network{t: t, servers: map[string]string{}, resolved: map[string][]netip.Addr{}}
	var err error
	n.authority, err = authority.New("authority of the test")
	require.NoError(t, err)
	n.proxy = fixture.StartProxy(t, func(hostPort string) (string, bool) {
		n.mu.Lock()
		defer n.mu.Unlock()
		address, found := n.servers[hostPort]
		return address, found
	})
	return n
}

// access returns access to the network through the proxy.
func (n *network) access(opts registry.Options) *registry.Access {
	proxy, err := url.Parse(n.proxy.URL)
	require.NoError(n.t, err)
	opts.Proxy = http.ProxyURL(proxy)
	if opts.Authorities == nil {
		opts.Authorities = n.authority.Pool()
	}
	if opts.Keychain == nil {
		opts.Keychain = pullSecret(n.t, `{}`)
	}
	if opts.Backoff == 0 {
		opts.Backoff = time.Millisecond
	}
	return registry.New(opts)
}

// direct returns access to the network without the proxy.
func (n *network) direct(opts registry.Options) *registry.Access {
	opts.Dial = n.dial
	opts.Authorities = n.authority.Pool()
	opts.Keychain = pullSecret(n.t, `{}`)
	opts.Backoff = time.Millisecond
	opts.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	return registry.New(opts)
}

// serveAt adds a server with the given addresses.
func (n *network) serveAt(host string, handler http.Handler, addresses ...string) {
	n.t.Helper()
	n.serve(host, handler)
	if !strings.Contains(host, ":") {
		host += ":443"
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range addresses {
		n.resolved[host] = append(n.resolved[host], netip.MustParseAddr(a))
	}
}

// dial is the redirect.DialFunc of clients without a proxy.
func (n *network) dial(ctx context.Context, protocol, hostPort string, allow func(netip.Addr) error) (net.Conn, error) {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	server, found := n.servers[hostPort]
	address, err := netip.ParseAddr(host)
	if all := n.resolved[hostPort]; len(all) > 0 {
		address, err = all[0], nil
		n.resolved[hostPort] = all[min(1, len(all)-1):]
	}
	n.mu.Unlock()
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: protocol, Err: &net.DNSError{Name: host, IsNotFound: true}}
	}
	if allow != nil {
		if err := allow(address); err != nil {
			return nil, &net.OpError{Op: "dial", Net: protocol, Err: err}
		}
	}
	if !found {
		return nil, &net.OpError{Op: "dial", Net: protocol, Err: syscall.ECONNREFUSED}
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, protocol, server)
	if err != nil {
		return nil, err
	}
	return fakeAddrConn{conn, net.TCPAddrFromAddrPort(netip.AddrPortFrom(address, 443))}, nil
}

// fakeAddrConn is a connection with a fake remote address.
type fakeAddrConn struct {
	net.Conn
	remote net.Addr
}

// RemoteAddr implements net.Conn.
func (c fakeAddrConn) RemoteAddr() net.Addr { return c.remote }

// mirrors returns mirrors of a source that apply to references by digest.
func mirrors(t testing.TB, source string, locations ...configv1.ImageMirror) mirrorset.Mirrors {
	t.Helper()
	set := &configv1.ImageDigestMirrorSet{}
	set.Spec.ImageDigestMirrors = []configv1.ImageDigestMirrors{{Source: source, Mirrors: locations}}
	m, err := mirrorset.New(set)
	require.NoError(t, err)
	return m
}

func pullSecret(t testing.TB, content string) *credentials.PullSecret {
	t.Helper()
	secret, err := credentials.ParsePullSecret([]byte(content))
	require.NoError(t, err)
	return secret
}

// serve adds a server with a certificate for its name.
func (n *network) serve(host string, handler http.Handler) {
	n.t.Helper()
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = host, "443"
	}
	certificate, err := n.authority.Issue(name)
	require.NoError(n.t, err)
	server := httptest.NewUnstartedServer(n.record(host, handler))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // some handshakes fail intentionally
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	n.t.Cleanup(server.Close)
	n.add(net.JoinHostPort(name, port), server)
}

// servePlain adds a server without TLS.
func (n *network) servePlain(host string, handler http.Handler) {
	server := httptest.NewServer(n.record(host, handler))
	n.t.Cleanup(server.Close)
	if !strings.Contains(host, ":") {
		host = net.JoinHostPort(host, "80")
	}
	n.add(host, server)
}

func (n *network) add(address string, server *httptest.Server) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.servers[address] = server.Listener.Addr().String()
}

func (n *network) record(host string, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		n.mu.Lock()
		n.seen = append(n.seen, seen{host, req.Method, req.URL.Path, req.Header.Get("Authorization"), req.Header.Get("Range")})
		n.mu.Unlock()
		handler.ServeHTTP(w, req)
	})
}

// requests returns the requests to a host, or to every host if it is empty, whose path contains part.
func (n *network) requests(host, part string) []seen {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(n.seen), func(s seen) bool { return host != "" && s.host != host || !strings.Contains(s.path, part) })
}

// images returns an empty registry.
func images() http.Handler {
	return ggcrregistry.New(ggcrregistry.WithReferrersSupport(true), ggcrregistry.Logger(log.New(io.Discard, "", 0)))
}

// withBasicAuth requires the credentials of one user.
func withBasicAuth(user, password string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if u, p, _ := req.BasicAuth(); u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="images"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// breaking closes the first connections that download a blob after the given number of bytes.
func breaking(times int, after int, next http.Handler) http.Handler {
	var mu sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		hit := times > 0 && req.Method == http.MethodGet && strings.Contains(req.URL.Path, "sha256:") && !strings.Contains(req.URL.Path, "/manifests/")
		if hit {
			times--
		}
		mu.Unlock()
		if !hit {
			next.ServeHTTP(w, req)
			return
		}
		next.ServeHTTP(&breakingWriter{ResponseWriter: w, left: after}, req)
	})
}

type breakingWriter struct {
	http.ResponseWriter
	left int
}

func (w *breakingWriter) Write(p []byte) (int, error) {
	if len(p) < w.left {
		w.left -= len(p)
		return w.ResponseWriter.Write(p)
	}
	_, _ = w.ResponseWriter.Write(p[:w.left])
	_ = http.NewResponseController(w.ResponseWriter).Flush()
	panic(http.ErrAbortHandler) // net/http's way to break a connection
}
