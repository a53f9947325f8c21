package operator

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/pkg/updategraph"
)

// TestUpdateServiceOfACluster asks a service whose certificate only the cluster's bundle makes one to trust.
func TestUpdateServiceOfACluster(t *testing.T) {
	cluster := trustCluster(t)
	agent := ""
	service := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agent = r.Header.Get("User-Agent")
		_, _ = w.Write([]byte(`{"nodes":[{"version":"1.0.0","payload":"a"},{"version":"1.0.1","payload":"b"}],"edges":[[0,1]]}`))
	}))
	defer service.Close()
	options := Options{Access: registry.Options{Backoff: 1}, Seed: 7, UpdateService: UpdateService{URL: "https://told", Default: "https://default"}}
	updates, err := newUpdates(clock.RealClock{}, cluster, prometheus.NewRegistry(), options)
	require.NoError(t, err)
	assert.Equal(t, "https://told", updates.Service)
	assert.Equal(t, "https://default", updates.Default)
	assert.GreaterOrEqual(t, updates.Interval, 2*time.Minute)
	assert.LessOrEqual(t, updates.Interval, 4*time.Minute)

	query := updategraph.Query{Service: service.URL, Version: "1.0.0"}
	_, err = updates.Ask(t.Context(), query, updategraph.Answer{})
	require.ErrorContains(t, err, "certificate")

	bundle := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: api.ConfigManagedNamespace, Name: api.TrustedCABundle},
		Data:       map[string]string{api.CABundleKey: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: service.Certificate().Raw}))},
	}
	require.NoError(t, cluster.Create(t.Context(), bundle))
	defer func() { assert.NoError(t, cluster.Delete(t.Context(), bundle)) }()
	answer, err := updates.Ask(t.Context(), query, updategraph.Answer{})
	require.NoError(t, err)
	assert.Len(t, answer.Available, 1)
	assert.Equal(t, "ClusterVersionOperator", agent)

	bundle.Data[api.CABundleKey] = "nothing"
	require.NoError(t, cluster.Update(t.Context(), bundle))
	_, err = updates.Ask(t.Context(), query, updategraph.Answer{})
	require.ErrorContains(t, err, "reading how the cluster reaches the outside")
}
