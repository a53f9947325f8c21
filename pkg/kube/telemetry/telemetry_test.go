package telemetry_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/kube/telemetry"
)

// TestHandlerServesTheValidMetrics registers a counter and a failing collector.
func TestHandlerServesTheValidMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "valid_total", Help: "Valid."})
	invalid := prometheus.CollectorFunc(func(out chan<- prometheus.Metric) {
		out <- prometheus.NewInvalidMetric(prometheus.NewDesc("invalid", "Invalid.", nil, nil), assert.AnError)
	})
	require.NoError(t, registry.Register(counter))
	require.NoError(t, registry.Register(invalid))
	recorder := httptest.NewRecorder()
	telemetry.Handler(registry).ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	assert.Equal(t, http.StatusOK, recorder.Code)
	assert.Contains(t, recorder.Body.String(), "valid_total 0")
}

func TestRegistryHasTheStandardCollectors(t *testing.T) {
	t.Parallel()
	registry, err := telemetry.Registry()
	require.NoError(t, err)
	_, err = telemetry.Registry()
	require.NoError(t, err, "a second call is allowed")
	families, err := registry.Gather()
	require.NoError(t, err)
	names := map[string]bool{}
	for _, family := range families {
		names[family.GetName()] = true
	}
	assert.True(t, names["go_goroutines"])
	assert.True(t, names["go_sched_latencies_seconds"], "all runtime metrics of Go are registered")
}
