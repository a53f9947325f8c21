package precondition

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/test/env"
)

func TestServerReportsItsKinds(t *testing.T) {
	cfg := env.New(t, env.Options{Audit: env.AuditNone}).Config("server")
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	require.NoError(t, err)
	c, err := client.New(cfg, client.Options{})
	require.NoError(t, err)
	broken := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1.broken.example.com"},
		"spec": map[string]any{
			"group": "broken.example.com", "version": "v1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "default", "name": "nobody"},
		},
	}}
	require.NoError(t, c.Create(t.Context(), broken))
	t.Cleanup(func() { _ = c.Delete(context.WithoutCancel(t.Context()), broken) })
	gv := schema.GroupVersion{Group: "broken.example.com", Version: "v1"}
	assert.Eventually(t, func() bool { return ReadServer(t.Context(), d).Unknown[gv] }, time.Minute, 100*time.Millisecond, "an API without a response is unknown")
	s := ReadServer(t.Context(), d)
	require.NoError(t, s.Err)
	assert.Regexp(t, `^v1\.\d+\.\d+`, s.Version)
	assert.True(t, s.Kinds[schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}], "all other APIs are listed")
	assert.False(t, s.Kinds[schema.GroupVersionKind{Version: "v1", Kind: "Eviction"}], "subresources are not listed")
	assert.False(t, s.Kinds[schema.GroupVersionKind{Group: "policy", Version: "v1beta1", Kind: "PodDisruptionBudget"}])
}

func TestSilentServerIsReported(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			_, _ = w.Write([]byte(`{"gitVersion": "v1.36.3"}`))
			return
		}
		http.Error(w, "no", http.StatusServiceUnavailable)
	}))
	d, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: web.URL})
	require.NoError(t, err)
	s := ReadServer(t.Context(), d)
	require.ErrorContains(t, s.Err, "reading the list of APIs: ")
	assert.Empty(t, s.Kinds)
	web.Close()
	require.ErrorContains(t, ReadServer(t.Context(), d).Err, "reading the server's version: ")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, ReadServer(ctx, d).Err)
}
