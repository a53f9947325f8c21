package install_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/install"
)

// before has something done before each request is sent.
func before(cfg *rest.Config, do func(*http.Request)) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			do(r)
			return next.RoundTrip(r)
		})
	})
	return cfg
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func takesLease(r *http.Request) bool {
	return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/leases/version")
}

// TestUninstallSeesTheLastWrites has the operator make an object, and make one anew, after the uninstall has looked and
// before it has the Lease.
func TestUninstallSeesTheLastWrites(t *testing.T) {
	t.Parallel()
	cfg, c, cv := installed(t)
	require.NoError(t, c.Create(t.Context(), leaseOf("", 1)))
	collectGarbage(t, c)
	write := sync.OnceFunc(func() {
		assert.NoError(t, c.Create(t.Context(), ofPlatform(cv, configMap("last"))))
		assert.NoError(t, c.Delete(t.Context(), configMap("of-the-platform")))
		assert.NoError(t, c.Create(t.Context(), ofPlatform(cv, configMap("of-the-platform"))))
	})
	_, err := uninstall(t, before(cfg, func(r *http.Request) {
		if takesLease(r) {
			write()
		}
	}), install.Removal{Platform: true})
	require.NoError(t, err)
	assert.False(t, there(t, c, configMap("last")))
	assert.False(t, there(t, c, configMap("of-the-platform")))
}
