package registry_test

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ggcrregistry "github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/fixture/authority"
)

// network is a small internet: servers with names and certificates, reached through a proxy, for nothing else knows
// the names.
type network struct {
	t         testing.TB
	authority *authority.Authority
	proxy     *fixture.Proxy

	mu      sync.Mutex
	servers map[string]string // address by host:port
	seen    []seen
}

// seen is a request that arrived at a server.
type seen struct {
	host, method, path, authorization, ranged string
}

func newNetwork(t testing.TB) *network {
	n := &network{t: t, servers: map[string]string{}}
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

// access reaches the network.
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

func pullSecret(t testing.TB, content string) *registry.PullSecret {
	t.Helper()
	secret, err := registry.ParsePullSecret([]byte(content))
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
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes fail here on purpose
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	n.t.Cleanup(server.Close)
	n.add(net.JoinHostPort(name, port), server)
}

// servePlain adds a server without TLS.
func (n *network) servePlain(host string, handler http.Handler) {
	server := httptest.NewServer(n.record(host, handler))
	n.t.Cleanup(server.Close)
	n.add(net.JoinHostPort(host, "80"), server)
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

// requests are those that arrived at a host, with a path that contains part.
func (n *network) requests(host, part string) []seen {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(n.seen), func(s seen) bool { return s.host != host || !strings.Contains(s.path, part) })
}

// images is an empty registry.
func images() http.Handler {
	return ggcrregistry.New(ggcrregistry.WithReferrersSupport(true), ggcrregistry.Logger(log.New(io.Discard, "", 0)))
}

// withBasicAuth lets one user in.
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

// breaking breaks the connection of blobs after some bytes, so often.
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
