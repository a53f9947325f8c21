package rollout_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// TestRunReportsTheFailureOfEveryWorker checks that simultaneous failures of workers are all reported, each with its own manifest. With the
// race detector, it also finds data that workers share without a lock.
func TestRunReportsTheFailureOfEveryWorker(t *testing.T) {
	const manifests = 160
	c := newCluster()
	c.onApply = func(_ context.Context, name string) error {
		time.Sleep(time.Second) // all workers wake up at the same time
		return fmt.Errorf("%s cannot be applied", name)
	}
	var list []*manifest.Manifest
	for i := range manifests {
		list = append(list, configMap(t, fmt.Sprintf("10_c%d_01", i), fmt.Sprint("m", i)))
	}
	executor := c.executor()
	executor.Width = 16
	synctest.Test(t, func(t *testing.T) {
		progress, _, err := executor.Run(t.Context(), newPlan(t, release.Initializing, list...), rollout.Settled{})
		require.NoError(t, err)
		require.Len(t, progress.Problems, manifests)
		for _, problem := range progress.Problems {
			assert.ErrorContains(t, problem.Err, problem.ID.Name+" cannot be applied")
		}
	})
}
