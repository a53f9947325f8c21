package operator

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestFormats reads what the first version wrote into clusters: testdata/v1 is never written anew. A version that cannot
// read a sample as these lines say breaks the update to it, or the way back from it.
func TestFormats(t *testing.T) {
	t.Parallel()
	read := func(name string) *unstructured.Unstructured {
		data, err := os.ReadFile(filepath.Join("testdata", "v1", name))
		require.NoError(t, err)
		u := &unstructured.Unstructured{}
		require.NoError(t, json.Unmarshal(data, &u.Object))
		return u
	}
	t.Run("it reads a ReleaseRollout", func(t *testing.T) {
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
	t.Run("it holds a pause of a version that writes another status", func(t *testing.T) {
		t.Parallel()
		u := read("releaserollout.json")
		require.NoError(t, unstructured.SetNestedField(u.Object, "of another type", "status", "current"))
		require.NoError(t, unstructured.SetNestedField(u.Object, "unknown", "spec", "later"))
		rollout := releaseRolloutOf(u)
		require.NotNil(t, rollout)
		assert.True(t, rollout.Spec.Paused)
	})
	t.Run("it reads an estimate", func(t *testing.T) {
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
	for name, later := range map[string]bool{"it reads a ReleaseStatus": false, "it reads a ReleaseStatus of a version that writes more": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := read("releasestatus.json")
			if later {
				require.NoError(t, unstructured.SetNestedField(u.Object, "unknown", "status", "later"))
			}
			reader := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(u).Build()
			status, err := ReadReleaseStatus(t.Context(), reader, "version")
			require.NoError(t, err)
			require.Len(t, status.Status.Releases, 2)
			first, second := status.Status.Releases[0], status.Status.Releases[1]
			assert.Equal(t, "4.23.0", first.Version)
			require.Len(t, first.Evidence, 1)
			assert.Equal(t, "Release <release@platform.example>", first.Evidence[0].Identity)
			assert.Equal(t, "https://mirror.example/signatures", first.Evidence[0].Store)
			assert.True(t, time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC).Equal(first.Evidence[0].SignedAt.Time))
			assert.Equal(t, "nobody signed it", second.Forced)
			assert.Equal(t, 1, status.Status.SkippedCount)
			assert.Equal(t, "openshift-cluster-version", status.Status.Inventory.Namespace)
		})
	}
	t.Run("it reads who holds a Lease", func(t *testing.T) {
		t.Parallel()
		const unique, fingerprint = "0b8d2c3e-5d1f-4f0e-9a77-0123456789ab", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmno-_"
		for holder, want := range map[string]Identity{
			"cluster-version-operator-7d4b9c-x2x4z_" + unique:                     {Host: "cluster-version-operator-7d4b9c-x2x4z", Unique: unique},
			"cluster-version-operator-7d4b9c-x2x4z_" + unique + "_" + fingerprint: {Host: "cluster-version-operator-7d4b9c-x2x4z", Unique: unique, Fingerprint: fingerprint},
			"of-a-later_format_with_more":                                         {Host: "of-a-later_format_with_more"},
		} {
			got := ParseIdentity(holder)
			assert.Equal(t, want.Host, got.Host)
			assert.Equal(t, want.Fingerprint, got.Fingerprint)
		}
	})
}
