package sources

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestFirstVersionReleaseRolloutIsReadable reads objects that the first version wrote to clusters. Never regenerate testdata/v1: a version
// that reads a sample differently breaks the update to it, or the rollback from it.
func TestFirstVersionReleaseRolloutIsReadable(t *testing.T) {
	t.Parallel()
	read := func(name string) *unstructured.Unstructured {
		data, err := os.ReadFile(filepath.Join("testdata", "v1", name))
		require.NoError(t, err)
		u := &unstructured.Unstructured{}
		require.NoError(t, json.Unmarshal(data, &u.Object))
		return u
	}
	t.Run("reads a ReleaseRollout", func(t *testing.T) {
		t.Parallel()
		u := read("releaserollout.json")
		rollout := releaseRolloutOf(u)
		require.NotNil(t, rollout)
		assert.True(t, rollout.Spec.Paused)
		current := rollout.Status.Current
		require.NotNil(t, current)
		require.NotNil(t, current.PausedBefore)
		assert.Equal(t, int32(50), *current.PausedBefore)
		assert.Equal(t, "4.23.0", current.To)
		require.Len(t, rollout.Status.History, 1)
		assert.Equal(t, 123*time.Second, rollout.Status.History[0].Runlevels[0].Took.Duration)
	})
	t.Run("keeps a pause from a version that writes another status", func(t *testing.T) {
		t.Parallel()
		u := read("releaserollout.json")
		require.NoError(t, unstructured.SetNestedField(u.Object, "of another type", "status", "current"))
		require.NoError(t, unstructured.SetNestedField(u.Object, "unknown", "spec", "later"))
		rollout := releaseRolloutOf(u)
		require.NotNil(t, rollout)
		assert.True(t, rollout.Spec.Paused)
	})
	t.Run("reads an estimate", func(t *testing.T) {
		t.Parallel()
		rollout := releaseRolloutOf(read("releaserollout-estimate.json"))
		require.NotNil(t, rollout)
		estimate := rollout.Status.Estimate
		require.NotNil(t, estimate)
		assert.Equal(t, 12*time.Minute, estimate.RemainingLow.Duration)
		assert.Equal(t, 25*time.Minute+30*time.Second, estimate.RemainingHigh.Duration)
		assert.True(t, time.Date(2026, 11, 21, 10, 12, 0, 0, time.UTC).Equal(estimate.EarliestCompletion.Time))
		assert.True(t, time.Date(2026, 11, 21, 10, 25, 30, 0, time.UTC).Equal(estimate.LatestCompletion.Time))
		assert.Equal(t, "History", estimate.Basis)
		assert.Equal(t, int32(3), estimate.Rollouts)
	})
}
