// Package registry says how image registries are reached: what a pullspec names, which mirrors hold the same content,
// with which credentials, certificates and proxies they are spoken to, what happens when a request fails or a download
// breaks, and what one answer may cost. It moves no image itself; those who do (package image for reading, assemble and
// mirror for writing) take their options from an Access.
package registry

import (
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

// userAgent is how registries see us.
const userAgent = "cvo"

// Options say how registries are reached. The zero value speaks TLS but for loopback addresses, with the system's
// certificates, the environment's proxy and the credentials that the user's container tools have stored.
type Options struct {
	// Keychain finds credentials; default DefaultKeychain.
	Keychain authn.Keychain
	// Mirrors say where else content may be fetched from; default nowhere. See Candidates.
	Mirrors Mirrors
	// Authorities are the certificates to trust; default the system's. See Authorities for both.
	Authorities *x509.CertPool
	// Proxy chooses the proxy of a request; default http.ProxyFromEnvironment.
	Proxy func(*http.Request) (*url.URL, error)
	// Insecure lists registries, as host or host:port or AnyRegistry, that may be spoken to over HTTP, and over HTTPS
	// without checking certificates. It says nothing about hosts that they redirect to.
	Insecure []string
	// Transport carries the requests instead of one made from the settings above.
	Transport http.RoundTripper
	// AnswerBytes bounds every answer but blobs; default 4 MiB.
	AnswerBytes int64
	// MaxPerRegistry bounds the downloads from one registry at the same time, and apart from them its other requests;
	// default 32. Uploads are not held back, for they may be waiting for a download of the same registry: who uploads
	// in parallel bounds that by Access.MaxPerRegistry.
	MaxPerRegistry int
	// Stall is how long a registry may send or take nothing before the connection is given up; default one minute.
	Stall time.Duration
	// Backoff is about the first pause before a request is sent again; default 200 ms. Each further one is twice as
	// long, and all are random within a half of it.
	Backoff time.Duration
}

// Access reaches registries. It is safe for concurrent use, and nothing of it is specific to one of them.
type Access struct {
	opts      Options
	transport http.RoundTripper
}

// New returns the access that the options describe.
func New(opts Options) *Access {
	if opts.Keychain == nil {
		opts.Keychain = DefaultKeychain()
	}
	setDefault(&opts.AnswerBytes, 4<<20) // as registries bound manifests themselves
	setDefault(&opts.MaxPerRegistry, 32)
	setDefault(&opts.Stall, time.Minute)
	setDefault(&opts.Backoff, 200*time.Millisecond)
	a := &Access{opts: opts}
	a.transport = a.newTransport()
	return a
}

func setDefault[T int | int64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// MaxPerRegistry is how many requests of a kind one registry gets at a time.
func (a *Access) MaxPerRegistry() int { return a.opts.MaxPerRegistry }

// Reference reads a pullspec.
func (a *Access) Reference(pullspec string) (name.Reference, error) {
	ref, err := name.ParseReference(pullspec)
	if err != nil {
		return nil, fmt.Errorf("pullspec %q: %w", pullspec, err)
	}
	if a.insecure(ref.Context().RegistryStr()) {
		return name.ParseReference(pullspec, name.Insecure)
	}
	return ref, nil
}

// registry is the registry at a host.
func (a *Access) registry(host string) (name.Registry, error) {
	if a.insecure(host) {
		return name.NewRegistry(host, name.Insecure)
	}
	return name.NewRegistry(host)
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
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

// Transport carries requests as the options say, without credentials. It is for those who put something between it and
// the library, which Remote gives it to.
func (a *Access) Transport() http.RoundTripper { return a.transport }

// Remote returns what the library needs to reach registries as this access does. The library remembers the outcome of
// its first contact with a registry, failures too, so a Puller or Pusher made of it should not outlive an operation.
func (a *Access) Remote() []remote.Option {
	return []remote.Option{
		remote.WithAuthFromKeychain(a.opts.Keychain),
		remote.WithTransport(a.transport),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}),
		remote.WithUserAgent(userAgent),
		remote.WithJobs(a.opts.MaxPerRegistry),
		// Requests are repeated by our transport. What is left to the library is to begin a whole upload anew.
		remote.WithRetryStatusCodes(),
		remote.WithRetryPredicate(worthBeginningAnew),
		remote.WithRetryBackoff(remote.Backoff{Duration: a.opts.Backoff, Factor: 3, Jitter: 0.5, Steps: 4}),
	}
}
