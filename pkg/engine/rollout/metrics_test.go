package rollout_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/release"
)

func TestMetricsCountApplies(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	metrics, err := rollout.NewMetrics(registry)
	require.NoError(t, err)
	_, err = rollout.NewMetrics(registry)
	require.Error(t, err, "registered twice")

	c := newCluster()
	c.onApply = func(_ context.Context, name string) error {
		if name == "broken" {
			return errors.New("no")
		}
		return nil
	}
	executor := c.executor()
	executor.Metrics = metrics
	plan := newPlan(t, release.Updating, configMap(t, "10_a_01", "fine"), configMap(t, "10_b_01", "broken"))
	_, _, err = executor.Run(t.Context(), plan, rollout.Settled{})
	require.NoError(t, err)
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP cluster_operator_payload_errors Report the number of errors encountered applying the payload.
# TYPE cluster_operator_payload_errors gauge
cluster_operator_payload_errors{version="1.1.0"} 1
`), "cluster_operator_payload_errors"))
	assert.Equal(t, map[string]uint64{"created": 1, "failed": 1}, observations(t, registry))

	// A canceled attempt does not count.
	ctx, cancel := context.WithCancel(t.Context())
	c.onApply = func(ctx context.Context, _ string) error { cancel(); return ctx.Err() }
	_, _, err = executor.Run(ctx, newPlan(t, release.Updating, configMap(t, "10_c_01", "late")), rollout.Settled{})
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, map[string]uint64{"created": 1, "failed": 1}, observations(t, registry))
}

// observations returns the number of applies in the histogram by result.
func observations(t *testing.T, registry prometheus.Gatherer) map[string]uint64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	counts := map[string]uint64{}
	for _, f := range families {
		if f.GetName() != "cvo_apply_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			counts[m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleCount()
		}
	}
	return counts
}

func TestProgressIsKnownBeforeTheFirstPass(t *testing.T) {
	c := newCluster()
	c.dropped = map[string][]string{"b": {".spec.x"}}
	plan := newPlan(t, release.Updating, configMap(t, "10_a_01", "a"), configMap(t, "20_b_01", "b"), clusterOperator(t, "30_c_01", "c", "1.1.0"))
	assert.Zero(t, rollout.Settled{}.Progress(plan).Done)

	found, settled := c.roll(t, plan, rollout.Settled{})
	known := settled.Progress(plan)
	assert.Equal(t, 2, known.Done)
	assert.Equal(t, found.Runlevels, known.Runlevels)
	assert.Equal(t, found.Dropped, known.Dropped)
	assert.Empty(t, known.Problems, "the current waits have not been evaluated")

	restored := rollout.Restore(inventory.Inventory{}.With(settled.Records(plan)...), "1.1.0").Progress(plan)
	assert.Equal(t, 2, restored.Done)
	require.Len(t, restored.Dropped, 1)
	assert.Equal(t, found.Dropped[0].ID, restored.Dropped[0].ID)
	assert.Empty(t, restored.Dropped[0].Fields)
}
