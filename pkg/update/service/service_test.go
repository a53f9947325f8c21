package service_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	enginecluster "github.com/cluster-version/cvo/pkg/engine/cluster"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	updategraph "github.com/cluster-version/cvo/pkg/update/graph"
	"github.com/cluster-version/cvo/pkg/update/service"
	"github.com/cluster-version/cvo/test/env"
)

// newCluster returns a client of a control plane with the namespace of the CA bundle.
func newCluster(t *testing.T) client.Client {
	t.Helper()
	scheme, err := enginecluster.NewScheme()
	require.NoError(t, err)
	c, err := client.New(env.New(t, env.Options{Audit: env.AuditNone}).Config("test"), client.Options{Scheme: scheme})
	require.NoError(t, err)
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: api.ConfigManagedNamespace}}))
	return c
}

// TestUpdateServiceIsVerifiedByTheClustersCA queries a service whose certificate is valid only with the cluster's CA bundle.
func TestUpdateServiceIsVerifiedByTheClustersCA(t *testing.T) {
	cluster := newCluster(t)
	agent := ""
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agent = r.Header.Get("User-Agent")
		_, _ = w.Write([]byte(`{"nodes":[{"version":"1.0.0","payload":"a"},{"version":"1.0.1","payload":"b"}],"edges":[[0,1]]}`))
	}))
	defer server.Close()
	asker := service.NewAsker(cluster, registry.Options{Backoff: 1}, service.Options{})
	query := updategraph.Query{Service: server.URL, Version: "1.0.0"}
	_, err := asker.Ask(t.Context(), query, updategraph.Answer{})
	require.ErrorContains(t, err, "certificate")

	bundle := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: api.ConfigManagedNamespace, Name: api.TrustedCABundle},
		Data:       map[string]string{api.CABundleKey: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))},
	}
	require.NoError(t, cluster.Create(t.Context(), bundle))
	defer func() { assert.NoError(t, cluster.Delete(t.Context(), bundle)) }()
	answer, err := asker.Ask(t.Context(), query, updategraph.Answer{})
	require.NoError(t, err)
	assert.Len(t, answer.Available, 1)
	assert.Equal(t, "ClusterVersionOperator", agent)

	bundle.Data[api.CABundleKey] = "nothing"
	require.NoError(t, cluster.Update(t.Context(), bundle))
	_, err = asker.Ask(t.Context(), query, updategraph.Answer{})
	require.ErrorContains(t, err, "reading the cluster's network configuration")
}
