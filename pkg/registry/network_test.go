package registry_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ggcrregistry "github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/registry"
)

// network is a small internet: servers with names and certificates, reached through a proxy, for nothing else knows
// the names.
type network struct {
	t         testing.TB
	authority *x509.Certificate
	key       *ecdsa.PrivateKey
	proxy     *url.URL

	mu      sync.Mutex
	servers map[string]string // address by host:port
	seen    []seen
	tunnels []string
}

// seen is a request that arrived at a server.
type seen struct {
	host, method, path, authorization, ranged string
}

func newNetwork(t testing.TB) *network {
	n := &network{t: t, servers: map[string]string{}}
	var err error
	n.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	n.authority = n.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "authority of the test"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, &n.key.PublicKey)
	server := httptest.NewServer(http.HandlerFunc(n.forward))
	t.Cleanup(server.Close)
	n.proxy, err = url.Parse(server.URL)
	require.NoError(t, err)
	return n
}

func (n *network) issue(template *x509.Certificate, public *ecdsa.PublicKey) *x509.Certificate {
	n.t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent := n.authority
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, n.key)
	require.NoError(n.t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(n.t, err)
	return certificate
}

// pool trusts the network's authority.
func (n *network) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(n.authority)
	return pool
}

// access reaches the network.
func (n *network) access(opts registry.Options) *registry.Access {
	opts.Proxy = http.ProxyURL(n.proxy)
	if opts.Authorities == nil {
		opts.Authorities = n.pool()
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(n.t, err)
	template := &x509.Certificate{Subject: pkix.Name{CommonName: host}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = host, "443"
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	server := httptest.NewUnstartedServer(n.record(host, handler))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes fail here on purpose
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{n.issue(template, &key.PublicKey).Raw}, PrivateKey: key}}}
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

// forward is the proxy.
func (n *network) forward(w http.ResponseWriter, req *http.Request) {
	n.mu.Lock()
	address, ok := n.servers[req.Host]
	if !ok {
		address, ok = n.servers[net.JoinHostPort(req.Host, "80")]
	}
	n.tunnels = append(n.tunnels, req.Method+" "+req.Host)
	n.mu.Unlock()
	if !ok {
		http.Error(w, "no such host", http.StatusForbidden)
		return
	}
	if req.Method != http.MethodConnect {
		httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address}).ServeHTTP(w, req)
		return
	}
	server, err := net.Dial("tcp", address)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer server.Close()
	w.WriteHeader(http.StatusOK)
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	go func() {
		defer server.Close()
		_, _ = io.Copy(server, buffered)
	}()
	_, _ = io.Copy(client, server)
}

// through is how the proxy was used.
func (n *network) through() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.tunnels)
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
