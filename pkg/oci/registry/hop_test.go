package registry_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/oci/registry/redirect"
)

var redirects = []step{
	{"follows from public to public", "a.example", "203.0.113.10", "b.example", "198.51.100.7", ""},
	{"follows from private to private", "registry.corp.example", "10.1.2.3", "storage.corp.example", "10.9.9.9", ""},
	{"follows from private to an IPv4 address", "registry.corp.example", "10.1.2.3", "10.9.9.9", "10.9.9.9", ""},
	{"follows from private to an IPv6 address", "registry.corp.example", "10.1.2.3", "[fd12::7]", "", ""},
	{"follows from private to shared", "registry.corp.example", "fd12::1", "storage.corp.example", "100.64.0.9", ""},
	{"follows from private to public", "registry.corp.example", "10.1.2.3", "b.example", "198.51.100.7", ""},
	{"follows from loopback to private", "localhost", "127.0.0.1", "storage.corp.example", "10.9.9.9", ""},
	{"follows within a loopback host", "localhost:5001", "127.0.0.1", "localhost:9000", "127.0.0.1", ""},
	{"follows over NAT64", "a.example", "64:ff9b::cb00:710a", "b.example", "64:ff9b::c633:6407", ""},
	{"refuses a metadata service by name", "a.example", "203.0.113.10", "metadata.google.internal", "169.254.169.254", "169.254.169.254 is a metadata address"},
	{"refuses a metadata service by a DNS service that echoes addresses", "a.example", "203.0.113.10", "169.254.169.254.nip.io", "169.254.169.254", "169.254.169.254 is a metadata address"},
	{"refuses a metadata service behind NAT64", "a.example", "203.0.113.10", "[64:ff9b::a9fe:a9fe]", "", "64:ff9b::a9fe:a9fe is a metadata address"},
	{"refuses a metadata service from private", "registry.corp.example", "10.1.2.3", "metadata.google.internal", "169.254.169.254", "169.254.169.254 is a metadata address"},
	{"refuses a metadata service from loopback", "localhost:5001", "127.0.0.1", "metadata.google.internal", "169.254.169.254", "169.254.169.254 is a metadata address"},
	{"refuses the API server", "a.example", "203.0.113.10", "kubernetes.default.svc", "10.96.0.1", "10.96.0.1 is a private address"},
	{"refuses the API server from public over NAT64", "a.example", "64:ff9b::cb00:710a", "kubernetes.default.svc", "10.96.0.1", "10.96.0.1 is a private address"},
	{"refuses private IPv4 addresses in IPv6 addresses", "a.example", "203.0.113.10", "b.example", "::ffff:10.0.0.5", "10.0.0.5 is a private address"},
	{"refuses loopback", "a.example", "203.0.113.10", "b.example", "127.0.0.1", "127.0.0.1 is a loopback address"},
	{"refuses loopback from private", "registry.corp.example", "10.1.2.3", "localhost", "127.0.0.1", "127.0.0.1 is a loopback address"},
	{"refuses another name for loopback from loopback", "localhost:5001", "127.0.0.1", "evil.example:5001", "127.0.0.1", "127.0.0.1 is a loopback address"},
	{"refuses another address of the same name", "a.example", "203.0.113.10", "a.example:8443", "127.0.0.1", "127.0.0.1 is a loopback address"},
}

//threat:registry-signature-store
func TestRedirectsOfRegistriesIntoOurNetworkAreRejected(t *testing.T) {
	for _, tt := range redirects {
		t.Run("it "+tt.name, func(t *testing.T) {
			store := images()
			n := tt.network(t, redirectBlobs("https://"+tt.to, store), store)
			access := n.direct(registry.Options{})
			_, err := pull(t, access, push(t, access, tt.from+"/a:b"))
			tt.check(t, n, "redirect", err)
			downloads := slices.DeleteFunc(n.requests(tt.from, "/blobs/"), func(s seen) bool { return s.method != http.MethodGet })
			assert.Len(t, downloads, 1, "a refused redirect is not retried")
		})
	}
}

// TestRedirectsOfWebServersIntoOurNetworkAreRejected covers signature stores and update services, each with its own kind of client.
//
//threat:registry-signature-store
func TestRedirectsOfWebServersIntoOurNetworkAreRejected(t *testing.T) {
	for _, tt := range redirects {
		t.Run("it "+tt.name, func(t *testing.T) {
			nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			n := tt.network(t, redirectBlobs("https://"+tt.to, nothing), nothing)
			access := n.direct(registry.Options{})
			for _, client := range []*http.Client{access.WebClient(), access.RetryingWebClient()} {
				tt.check(t, n, "redirect", get(t, redirect.Safe(client), "https://"+tt.from+"/blobs/x"))
			}
			assert.Len(t, n.requests(tt.from, ""), 2, "a refused redirect is not retried")
		})
	}
}

func get(t *testing.T, client *http.Client, url string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

//threat:registry-signature-store
func TestEveryRedirectIsChecked(t *testing.T) {
	n := newNetwork(t)
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	n.serveAt("storage.corp.example", nothing, "10.9.9.9")
	n.serveAt("b.example", http.RedirectHandler("https://storage.corp.example", http.StatusFound), "198.51.100.7")
	n.serveAt("a.corp.example", http.RedirectHandler("https://b.example", http.StatusFound), "10.1.2.3")
	err := get(t, n.direct(registry.Options{}).WebClient(), "https://a.corp.example")
	require.ErrorContains(t, err, "refusing the redirect from b.example to storage.corp.example: 10.9.9.9 is a private address; configure storage.corp.example itself to allow it")
	assert.Empty(t, n.requests("storage.corp.example", ""))
}

// TestAddressMayRedirectToItself uses storage at an IP address, which redirects to another path of its own.
func TestAddressMayRedirectToItself(t *testing.T) {
	for _, again := range []string{"10.9.9.9", "[fd12::7]", "[fd12:0:0::7]"} {
		host := again
		if host != "10.9.9.9" {
			host = "[fd12::7]"
		}
		t.Run("it follows to "+again, func(t *testing.T) {
			n, store := newNetwork(t), images()
			n.serveAt("registry.corp.example", redirectBlobs("https://"+host, store), "10.1.2.3")
			n.serve(strings.Trim(host, "[]"), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if rest, ok := strings.CutPrefix(req.URL.Path, "/again"); ok {
					req.URL.Path = rest
					store.ServeHTTP(w, req)
					return
				}
				http.Redirect(w, req, "https://"+again+"/again"+req.URL.Path, http.StatusFound)
			}))
			access := n.direct(registry.Options{})
			_, err := pull(t, access, push(t, access, "registry.corp.example/a:b"))
			require.NoError(t, err)
		})
	}
}

// TestErrorsNameAddresses uses a registry that redirects to IP addresses where nothing listens.
func TestErrorsNameAddresses(t *testing.T) {
	for _, host := range []string{"10.9.9.9", "[fd12::7]"} {
		n := newNetwork(t)
		n.serveAt("registry.corp.example", redirectBlobs("https://"+host, images()), "10.1.2.3")
		access := n.direct(registry.Options{})
		ref := push(t, access, "registry.corp.example/a:b")
		_, err := pull(t, access, ref)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		err = failure.Explain("reading", ref, err)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.ErrorContains(t, err, `Get "https://`+host+"/")
		assert.NotContains(t, err.Error(), ".invalid")
	}
}

// TestReboundNameIsRejected resolves a name to a different address for each connection. Every connection is checked again, regardless of
// earlier lookups and connections.
//
//threat:registry-signature-store
func TestReboundNameIsRejected(t *testing.T) {
	n := newNetwork(t)
	n.serveAt("a.example", http.RedirectHandler("https://b.example", http.StatusFound), "203.0.113.10")
	n.serveAt("b.example", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "198.51.100.7", "10.0.0.5")
	client := n.direct(registry.Options{}).WebClient()
	require.NoError(t, get(t, client, "https://a.example"))
	require.ErrorContains(t, get(t, client, "https://a.example"), "10.0.0.5 is a private address")
	assert.Len(t, n.requests("b.example", ""), 1)
}

// TestConfiguredHostsMayHaveAnyAddress covers registries in the cluster's configuration, which may have any address.
func TestConfiguredHostsMayHaveAnyAddress(t *testing.T) {
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	n := newNetwork(t)
	n.serveAt("registry.example", redirectBlobs("https://mirror.corp.example:5000", nothing), "203.0.113.10")
	n.serveAt("mirror.corp.example:5000", nothing, "10.0.0.5")
	n.serveAt("a.example", http.RedirectHandler("https://a.example", http.StatusFound), "203.0.113.10", "127.0.0.1")
	for name, opts := range map[string]registry.Options{
		"it follows to a mirror":                         {Mirrors: mirrors(t, "registry.example", "mirror.corp.example:5000/copy")},
		"it follows to an insecure registry":             {Insecure: []string{"mirror.corp.example"}},
		"it follows to an insecure registry with a port": {Insecure: []string{"mirror.corp.example:5000"}},
	} {
		t.Run(name, func(t *testing.T) {
			client := &http.Client{Transport: n.direct(opts).Transport()}
			assert.NoError(t, get(t, client, "https://registry.example/blobs/x"))
		})
	}
	t.Run("it does not follow to an unlisted host if all registries are insecure", func(t *testing.T) {
		client := &http.Client{Transport: n.direct(registry.Options{Insecure: []string{registry.AnyRegistry}}).Transport()}
		assert.ErrorContains(t, get(t, client, "https://registry.example/blobs/x"), "10.0.0.5 is a private address")
	})
	t.Run("it follows within the configured host", func(t *testing.T) {
		err := get(t, redirect.Safe(n.direct(registry.Options{}).WebClient()), "https://a.example")
		assert.ErrorContains(t, err, "stopped after 5 redirects")
	})
}

// TestRedirectsThroughAProxyAreCheckedByURL uses a proxy that resolves names, so only an address in the URL can be checked.
//
//threat:registry-signature-store
func TestRedirectsThroughAProxyAreCheckedByURL(t *testing.T) {
	n := newNetwork(t)
	n.serve("metadata.google.internal", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	n.serve("names.example", http.RedirectHandler("https://"+metadataServer, http.StatusFound))
	client := n.access(registry.Options{}).WebClient()
	require.NoError(t, get(t, client, "https://names.example"))
	for _, host := range []string{"169.254.169.254", "[64:ff9b::a9fe:a9fe]", "[::ffff:10.0.0.1]", "10.0.0.1", "2852039166", "0xa9fea9fe"} {
		n.serve("addresses.example", http.RedirectHandler("https://"+host, http.StatusFound))
		err := get(t, client, "https://addresses.example")
		_, refused := errors.AsType[*redirect.Error](err)
		assert.True(t, refused, "%s: %v", host, err)
		client.CloseIdleConnections()
	}
	for _, request := range n.proxy.Requests() {
		assert.Contains(t, []string{"CONNECT names.example:443", "CONNECT addresses.example:443", "CONNECT metadata.google.internal:443"}, request)
	}
}

// TestResolvedAddressesAreChecked uses the system's name resolution and connections.
//
//threat:registry-signature-store
func TestResolvedAddressesAreChecked(t *testing.T) {
	reached := false
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	t.Cleanup(target.Close)
	_, port, err := net.SplitHostPort(target.Listener.Addr().String())
	require.NoError(t, err)
	client := redirect.Safe(&http.Client{})

	named := httptest.NewServer(http.RedirectHandler("http://localhost:"+port, http.StatusFound))
	t.Cleanup(named.Close)
	require.ErrorContains(t, get(t, client, named.URL), "127.0.0.1 is a loopback address")
	assert.False(t, reached)

	same := httptest.NewServer(http.RedirectHandler(target.URL, http.StatusFound))
	t.Cleanup(same.Close)
	require.NoError(t, get(t, client, same.URL), "a registry on this machine may redirect to storage on this machine under the same name")
	assert.True(t, reached)
}
