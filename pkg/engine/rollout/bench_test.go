package rollout_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// BenchmarkSilentPass measures a pass over a platform with 1,000 objects that have all settled. Every watch event costs one.
func BenchmarkSilentPass(b *testing.B) {
	c := newCluster()
	var list []*manifest.Manifest
	for i := range 1000 {
		m, err := manifest.Parse(fmt.Sprintf("0000_%02d_c%d_01.yaml", i%90, i%60), fmt.Appendf(nil, "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: m%d}}", i), manifest.Limits{})
		require.NoError(b, err)
		list = append(list, m...)
	}
	plan, err := rollout.NewPlan(release.Release{Version: "1.1.0"}, list, release.Reconciling)
	require.NoError(b, err)
	executor := c.executor()
	_, settled, err := executor.Run(b.Context(), plan, rollout.Settled{})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		var progress report.Progress
		progress, settled, err = executor.Run(b.Context(), plan, settled)
		require.NoError(b, err)
		require.True(b, progress.Complete)
	}
}
