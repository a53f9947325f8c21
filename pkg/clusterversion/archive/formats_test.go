package archive_test

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

	"github.com/cluster-version/cvo/pkg/clusterversion/archive"
)

// TestFirstVersionFormatsAreReadable reads objects that the first version wrote to clusters. Never regenerate testdata/v1: a version that
// reads a sample differently breaks the update to it, or the rollback from it.
func TestFirstVersionFormatsAreReadable(t *testing.T) {
	t.Parallel()
	read := func(name string) *unstructured.Unstructured {
		data, err := os.ReadFile(filepath.Join("testdata", "v1", name))
		require.NoError(t, err)
		u := &unstructured.Unstructured{}
		require.NoError(t, json.Unmarshal(data, &u.Object))
		return u
	}
	for name, later := range map[string]bool{"reads a ReleaseStatus": false, "reads a ReleaseStatus of a version that writes more fields": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := read("releasestatus.json")
			if later {
				require.NoError(t, unstructured.SetNestedField(u.Object, "unknown", "status", "later"))
			}
			reader := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(u).Build()
			status, err := archive.ReadReleaseStatus(t.Context(), reader, "version")
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
}
