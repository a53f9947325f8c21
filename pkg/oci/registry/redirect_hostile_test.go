package registry_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/registry"
)

// TestRedirectsToInternalAddressesAreRejected covers a registry that redirects to an address that it cannot reach itself, such as a
// cloud's metadata service. It redirects the first request, or a later request in the middle of a download.
//
//threat:registry-signature-store
func TestRedirectsToInternalAddressesAreRejected(t *testing.T) {
	for name, first := range map[string]int32{"it rejects the first request's redirect": 1, "it rejects the redirect of a resumed download": 2} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			store := images()
			n.serve("169.254.169.254", store)
			broken := breaking(1, 1000, store)
			var asked atomic.Int32
			n.serve("registry.example", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/blobs/") && asked.Add(1) >= first {
					http.Redirect(w, req, "https://169.254.169.254"+req.URL.Path, http.StatusTemporaryRedirect)
					return
				}
				broken.ServeHTTP(w, req)
			}))
			access := n.access(registry.Options{})
			_, err := pull(t, access, push(t, access, "registry.example/a:b"))
			require.ErrorContains(t, err, "169.254.169.254")
			assert.GreaterOrEqual(t, asked.Load(), first)
			assert.Empty(t, n.requests("169.254.169.254", ""))
		})
	}
}
