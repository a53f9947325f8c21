// Package registry says how image registries are reached: what a pullspec names, which mirrors hold the same content,
// with which credentials, certificates and proxies they are spoken to, and what one answer may cost. It moves no image
// itself; those who do (package image for reading, assemble and mirror for writing) take their options from an Access.
package registry

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// AnyRegistry, in Options.Insecure, stands for every registry.
const AnyRegistry = "*"

// defaultAnswerBytes bounds a manifest as registries do themselves.
const defaultAnswerBytes = 4 << 20

// Options say how registries are reached. The zero value speaks TLS but for loopback addresses, with the system's
// certificates, the environment's proxy and the credentials that the user's container tools have stored.
type Options struct {
	// Keychain finds credentials; default authn.DefaultKeychain.
	Keychain authn.Keychain
	// Mirrors say where else content may be fetched from; default nowhere. See Candidates.
	Mirrors Mirrors
	// Authorities are the certificates to trust; default the system's.
	Authorities *x509.CertPool
	// Proxy chooses the proxy of a request; default http.ProxyFromEnvironment.
	Proxy func(*http.Request) (*url.URL, error)
	// Insecure lists registries, as host or host:port or AnyRegistry, that may be spoken to over HTTP, and over HTTPS
	// without checking certificates.
	Insecure []string
	// Transport carries the requests instead of one made from the settings above.
	Transport http.RoundTripper
	// AnswerBytes bounds every answer but blobs; default 4 MiB.
	AnswerBytes int64
}

// Access reaches registries. It is safe for concurrent use, and nothing of it is specific to one of them.
type Access struct {
	opts Options
}

// New returns the access that the options describe.
func New(opts Options) *Access {
	if opts.Keychain == nil {
		opts.Keychain = authn.DefaultKeychain
	}
	if opts.AnswerBytes == 0 {
		opts.AnswerBytes = defaultAnswerBytes
	}
	if opts.Transport == nil {
		opts.Transport = newTransport(opts)
	}
	return &Access{opts: opts}
}

func newTransport(opts Options) http.RoundTripper {
	base, ok := remote.DefaultTransport.(*http.Transport)
	if !ok {
		return remote.DefaultTransport
	}
	t := base.Clone()
	t.TLSClientConfig = &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: opts.Authorities,
		InsecureSkipVerify: slices.Contains(opts.Insecure, AnyRegistry),
	}
	if opts.Proxy != nil {
		t.Proxy = opts.Proxy
	}
	return t
}

// Reference reads a pullspec and refuses to speak to registries without TLS unless that was allowed. (The library
// itself allows it for private addresses, which would send credentials over them in the clear.)
func (a *Access) Reference(pullspec string) (name.Reference, error) {
	ref, err := name.ParseReference(pullspec)
	if err != nil {
		return nil, fmt.Errorf("pullspec %q: %w", pullspec, err)
	}
	host := ref.Context().RegistryStr()
	switch {
	case a.insecure(host):
		return name.ParseReference(pullspec, name.Insecure)
	case !a.allowed(ref.Context().Registry):
		return nil, fmt.Errorf("pullspec %q: registry %s would be spoken to without TLS: allow it as an insecure registry, or use a name with a certificate", pullspec, host)
	}
	return ref, nil
}

// allowed refuses registries that the library would speak to without TLS of its own accord.
func (a *Access) allowed(registry name.Registry) bool {
	host := registry.RegistryStr()
	return registry.Scheme() == "https" || loopback(host) || a.insecure(host)
}

func (a *Access) insecure(registry string) bool {
	host, _, err := net.SplitHostPort(registry)
	if err != nil {
		host = registry
	}
	return slices.ContainsFunc(a.opts.Insecure, func(s string) bool { return s == AnyRegistry || s == registry || s == host })
}

func loopback(registry string) bool {
	host, _, err := net.SplitHostPort(registry)
	if err != nil {
		host = strings.Trim(registry, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Remote returns what the library needs to reach registries as this access does. The library remembers the outcome of
// its first contact with a registry, failures too, so a Puller or Pusher made of it should not outlive an operation.
func (a *Access) Remote() []remote.Option {
	return []remote.Option{
		remote.WithAuthFromKeychain(a.opts.Keychain),
		remote.WithTransport(boundedTransport{inner: a.opts.Transport, limit: a.opts.AnswerBytes}),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}),
		remote.WithUserAgent("cvo"),
		remote.WithRetryBackoff(remote.Backoff{Duration: 200 * time.Millisecond, Factor: 3, Jitter: 0.1, Steps: 4}),
	}
}
