// Package exposition takes a registry of metrics and returns them in the text format of Prometheus.
package exposition

import (
	"bytes"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"
)

// Text returns all metrics of a registry, sorted by name.
func Text(t *testing.T, registry prometheus.Gatherer) string {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	var out bytes.Buffer
	for _, f := range families {
		_, err := expfmt.MetricFamilyToText(&out, f)
		require.NoError(t, err)
	}
	return out.String()
}
