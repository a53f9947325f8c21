package registry_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/registry"
)

// introductions are servers that a registry names without a redirect.
var introductions = []step{
	{"follows a public registry to a public server", "registry.example", "203.0.113.10", "other.example", "198.51.100.7", ""},
	{"follows a private registry to a private server", "registry.corp.example", "10.1.2.3", "other.corp.example", "10.9.9.9", ""},
	{"follows a private registry to a public server", "registry.corp.example", "10.1.2.3", "other.example", "198.51.100.7", ""},
	{"follows a registry to its own host at another port", "registry.corp.example", "10.1.2.3", "registry.corp.example:8443", "10.1.2.3", ""},
	{"follows a private registry to a private IPv4 address", "registry.corp.example", "10.1.2.3", "10.9.9.9", "10.9.9.9", ""},
	{"follows a private registry to a private IPv6 address", "registry.corp.example", "10.1.2.3", "[fd12::7]", "", ""},
	{"follows a registry at an IPv4 address to its own address at another port", "10.1.2.3", "10.1.2.3", "10.1.2.3:8443", "10.1.2.3", ""},
	{"refuses to follow a public registry to a private IPv4 address", "registry.example", "203.0.113.10", "10.9.9.9", "10.9.9.9", "10.9.9.9 is a private address"},
	{"refuses to follow a public registry to a private server", "registry.example", "203.0.113.10", "kubernetes.default.svc", "10.96.0.1", "10.96.0.1 is a private address"},
	{"refuses to follow a public registry to a metadata service", "registry.example", "203.0.113.10", metadataServer, "169.254.169.254", "169.254.169.254 is a metadata address"},
	{"refuses to follow a private registry to a metadata service", "registry.corp.example", "10.1.2.3", metadataServer, "169.254.169.254", "169.254.169.254 is a metadata address"},
	{"refuses to follow a private registry to a loopback address", "registry.corp.example", "10.1.2.3", "other.example", "127.0.0.1", "127.0.0.1 is a loopback address"},
	{"refuses to follow a private registry to a link-local address", "registry.corp.example", "10.1.2.3", "other.example", "169.254.7.7", "169.254.7.7 is a link-local address"},
}

// withTokens puts a token server in front of a registry.
func withTokens(realm string, store http.Handler) (guarded, tokens http.Handler) {
	server := &tokenServer{service: "registry", realm: realm}
	return server.guard(store), server
}

//threat:registry-names-token
func TestAddressesOfTokenServersAreChecked(t *testing.T) {
	for _, tt := range introductions {
		t.Run("it "+tt.name, func(t *testing.T) {
			guarded, tokens := withTokens("https://"+tt.to+"/token", images())
			n := tt.network(t, guarded, tokens)
			access := n.direct(registry.Options{})
			ref, err := access.Reference(tt.from + "/a:b")
			require.NoError(t, err)
			_, err = pull(t, access, ref)
			if tt.want == "" {
				require.ErrorContains(t, err, "NAME_UNKNOWN") // the registry is empty, but it responds
				err = nil
			}
			tt.check(t, n, "token server", err)
		})
	}
}

// TestConfiguredAddressesAreNotChecked uses a public registry with a token server at a private address. The registry either names the
// address, or a name that stands for an address inside the client.
//
//threat:registry-names-token
func TestConfiguredAddressesAreNotChecked(t *testing.T) {
	for _, host := range []string{"10.9.9.9", "10.9.9.9.address.invalid"} {
		guarded, tokens := withTokens("https://"+host+"/token", images())
		n := newNetwork(t)
		n.serveAt("registry.example", guarded, "203.0.113.10")
		n.serve("10.9.9.9", tokens)
		for _, configured := range []bool{false, true} {
			opts, want := registry.Options{}, "10.9.9.9 is a private address"
			if configured {
				opts.Insecure, want = []string{"10.9.9.9"}, "NAME_UNKNOWN" // the registry is empty, but it responds
			}
			access := n.direct(opts)
			ref, err := access.Reference("registry.example/a:b")
			require.NoError(t, err)
			_, err = pull(t, access, ref)
			require.ErrorContains(t, err, want)
			assert.Equal(t, configured, len(n.requests("10.9.9.9", "/token")) > 0)
		}
	}
}

// TestRegistryMayBeItsOwnTokenServer uses a registry at an address that no other registry may name. The registry is its own token server.
//
//threat:registry-names-token
func TestRegistryMayBeItsOwnTokenServer(t *testing.T) {
	n := newNetwork(t)
	guarded, tokens := withTokens("https://registry.example/token", images())
	mux := http.NewServeMux()
	mux.Handle("/token", tokens)
	mux.Handle("/v2/", guarded)
	n.serveAt("registry.example", mux, "127.0.0.1")
	access := n.direct(registry.Options{})
	ref, err := access.Reference("registry.example/a:b")
	require.NoError(t, err)
	_, err = pull(t, access, ref)
	require.ErrorContains(t, err, "NAME_UNKNOWN")
	assert.NotEmpty(t, n.requests("registry.example", "/token"))
}

// TestRegistryCannotBlockAnother uses a public registry that names the token server of another registry as its own.
//
//threat:registry-names-token
func TestRegistryCannotBlockAnother(t *testing.T) {
	for name, realm := range map[string]string{
		"cannot block a private registry":                     "https://registry.corp.example/v2/",
		"cannot block the token server of a private registry": "https://tokens.corp.example/token",
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			guarded, tokens := withTokens("https://tokens.corp.example/token", images())
			n.serveAt("registry.corp.example", guarded, "10.1.2.3")
			n.serveAt("tokens.corp.example", tokens, "10.1.2.4")
			hostile, _ := withTokens(realm, images())
			n.serveAt("hostile.example", hostile, "203.0.113.10")
			access := n.direct(registry.Options{})
			// The order in which the registries respond must not matter.
			for _, host := range []string{"registry.corp.example", "hostile.example", "registry.corp.example", "hostile.example", "registry.corp.example"} {
				ref, err := access.Reference(host + "/a:b")
				require.NoError(t, err)
				_, err = pull(t, access, ref)
				require.Error(t, err)
				if host == "registry.corp.example" {
					assert.ErrorContains(t, err, "NAME_UNKNOWN")
				}
			}
		})
	}
}

// TestUploadLocationsAreChecked uses registries that name another server as the location of an upload.
//
//threat:registry-names-token
func TestUploadLocationsAreChecked(t *testing.T) {
	for _, tt := range introductions {
		t.Run("it "+tt.name, func(t *testing.T) {
			store := images()
			n := tt.network(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/blobs/uploads/") {
					w.Header().Set("Location", "https://"+tt.to+req.URL.Path+"one")
					w.WriteHeader(http.StatusAccepted)
					return
				}
				store.ServeHTTP(w, req)
			}), store)
			access := n.direct(registry.Options{})
			ref, err := access.Reference(tt.from + "/a:b")
			require.NoError(t, err)
			err = remote.Write(ref, image(t), append(access.Remote(), remote.WithContext(t.Context()))...)
			tt.check(t, n, "upload location", err)
		})
	}
}
