// Package registry provides access to image registries. It takes settings: mirrors, credentials, certificates, a proxy and limits. It
// returns an Access, which parses pullspecs and creates clients. Subpackages implement registry names, credentials, mirror sets, redirects
// and the transport. It does not transfer images itself. Packages image (reading), assemble and mirror (writing) do, with the options of
// an Access.
package registry

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/cluster-version/cvo/pkg/oci/registry/credentials"
	"github.com/cluster-version/cvo/pkg/oci/registry/location"
	"github.com/cluster-version/cvo/pkg/oci/registry/mirrorset"
	"github.com/cluster-version/cvo/pkg/oci/registry/redirect"
	"github.com/cluster-version/cvo/pkg/oci/registry/transport"
)

// AnyRegistry in Options.Insecure matches every registry.
const AnyRegistry = "*"

// userAgent is the user agent of all requests.
const userAgent = "cvo"

// Options configure the access to registries. The zero value requires TLS except for loopback addresses. It uses the
// system's certificates, the environment's proxy and the stored credentials of the user's container tools.
type Options struct {
	// Keychain provides credentials; default credentials.Default.
	Keychain authn.Keychain
	// Mirrors are additional locations of content; default none. See Candidates.
	Mirrors mirrorset.Mirrors
	// Authorities are the trusted certificates; default the system's. Use the function Authorities to add to the system's.
	Authorities *x509.CertPool
	// Proxy chooses the proxy of a request; default http.ProxyFromEnvironment.
	Proxy func(*http.Request) (*url.URL, error)
	// Insecure lists registries (host, host:port or AnyRegistry) that may use plain HTTP, or HTTPS with unchecked certificates. It does
	// not apply to hosts that they redirect to.
	Insecure []string
	// PlainCredentials allows credentials over plain HTTP to the registries in Insecure, and to token servers that they name. Otherwise, such a
	// registry and its token server get no credentials. Registries at loopback addresses get them anyway.
	PlainCredentials bool
	// Dial connects to hosts and proxies; default redirect.Dial.
	Dial redirect.DialFunc
	// Transport replaces the transport with the settings above. Redirects are then checked only if the target is an address instead of a
	// name.
	Transport http.RoundTripper
	// AnswerBytes is the maximum size of every response except blobs; default 4 MiB.
	AnswerBytes int64
	// MaxPerRegistry is the maximum number of concurrent downloads from one registry; default 32. The same maximum applies separately to
	// other requests. It does not limit uploads, because an upload may wait for a download from the same registry. Callers with parallel
	// uploads use Access.MaxPerRegistry as their own limit.
	MaxPerRegistry int
	// Stall is the time after which a connection is closed that sends no response, accepts no data, or sends less than 1 KiB/s; default 1 minute.
	Stall time.Duration
	// Backoff is the approximate pause before the first retry; default 200 ms. Each further pause is twice as long. Pauses vary randomly
	// by up to half their length.
	Backoff time.Duration
}

// Access provides access to all registries. It is safe for concurrent use.
type Access struct {
	opts      Options
	transport http.RoundTripper
	hosts     *redirect.Hosts
}

// New returns an Access with the given options.
func New(opts Options) *Access {
	if opts.Keychain == nil {
		opts.Keychain = credentials.Default()
	}
	if opts.Dial == nil {
		opts.Dial = redirect.Dial
	}
	setDefault(&opts.AnswerBytes, 4<<20) // the usual limit of registries for manifests
	setDefault(&opts.MaxPerRegistry, 32)
	setDefault(&opts.Stall, time.Minute)
	setDefault(&opts.Backoff, 200*time.Millisecond)
	a := &Access{opts: opts, hosts: redirect.NewHosts()}
	a.transport = a.newTransport()
	return a
}

func setDefault[T int | int64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// MaxPerRegistry returns the maximum number of concurrent requests of a kind to one registry.
func (a *Access) MaxPerRegistry() int { return a.opts.MaxPerRegistry }

// Reference parses a pullspec.
func (a *Access) Reference(pullspec string) (name.Reference, error) {
	if strings.ContainsFunc(pullspec, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return nil, fmt.Errorf("pullspec %q: control characters are not allowed", pullspec)
	}
	ref, err := name.ParseReference(pullspec)
	if err != nil {
		return nil, fmt.Errorf("pullspec %q: %w", pullspec, err)
	}
	a.hosts.Name(ref.Context().RegistryStr())
	if a.insecure(ref.Context().RegistryStr()) {
		return name.ParseReference(pullspec, name.Insecure)
	}
	return ref, nil
}

// registry returns the registry at a host from a pullspec or a mirror set.
func (a *Access) registry(host string) (name.Registry, error) {
	a.hosts.Name(host)
	if a.insecure(host) {
		return name.NewRegistry(host, name.Insecure)
	}
	return name.NewRegistry(host)
}

func (a *Access) insecure(registry string) bool {
	return slices.ContainsFunc(a.opts.Insecure, func(s string) bool { return s == AnyRegistry || location.Matches(s, registry) })
}

// Transport returns the transport of these options, without credentials. Callers may wrap it and pass it to the library instead of the
// transport in Remote.
func (a *Access) Transport() http.RoundTripper { return a.transport }

// Remote returns library options that use this access. The library remembers the result of its first contact with a registry, even a
// failure. Therefore, a Puller or Pusher with these options should not outlive an operation. Parse references with Reference: the Access
// trusts no other hosts, and checks their addresses as if a server had chosen them.
func (a *Access) Remote() []remote.Option {
	return []remote.Option{
		remote.WithAuthFromKeychain(a.keychain()),
		remote.WithTransport(a.transport),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}),
		remote.WithUserAgent(userAgent),
		remote.WithJobs(a.opts.MaxPerRegistry),
		// Our transport retries requests. The library only restarts whole uploads.
		remote.WithRetryStatusCodes(),
		remote.WithRetryPredicate(transport.IsWorthRestarting),
		remote.WithRetryBackoff(remote.Backoff{Duration: a.opts.Backoff, Factor: 3, Jitter: 0.5, Steps: 4}),
	}
}

// RemoteFor returns the options of Remote for an operation that ends with ctx.
func (a *Access) RemoteFor(ctx context.Context) []remote.Option {
	return append(a.Remote(), remote.WithContext(ctx))
}
